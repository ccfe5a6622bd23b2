#include "lib/train/training_state.h"

#include <nlohmann/json.hpp>
#include <numeric>

#include "tests/train/tiny_run.h"

#include "tests/catch.h"

using namespace scatterlm;

TEST_CASE(
    "a layer's linear maps are declared as matrices, which fill their tensor; embedding, head, routers and vectors are not") {
  TinyRun run([](Config& config) { config.model.moe.shared_intermediate_size = 8; });
  size_t maps = 0;
  for (const auto& unit : run.state->model.units()) {
    for (const auto& p : unit->params()) {
      const bool map = p.name.find("_proj") != p.name.npos && p.shape.size() > 1;
      REQUIRE(p.matrix_rows.empty() == !map);
      if (map) REQUIRE(std::accumulate(p.matrix_rows.begin(), p.matrix_rows.end(), int64_t{0}) == p.shape[p.shape.size() - 2]);
      maps += map;
    }
  }
  REQUIRE(maps == 3 + 4 + 2 + 2);  // attention of experts, experts and the shared one; grouped-query attention, dense MLP
}

TEST_CASE("counters go through a checkpoint's state") {
  TinyRun run, other;
  for (int i = 0; i < 3; i++) run.trainer->step();
  const auto counters = run.state->counters();
  REQUIRE(counters.at("step") == 3);
  REQUIRE(counters.at("tokens") == 3 * 128);
  REQUIRE(counters.at("optimizer_updates") == 3.0);
  other.state->load_counters(counters, 3, "state.json");
  REQUIRE(other.state->counters() == counters);
}

TEST_CASE("counters that no run has are refused, with the file and the key") {
  TinyRun run;
  for (int i = 0; i < 3; i++) run.trainer->step();
  const auto good = run.state->counters();
  const auto refuses = [&](int64_t step, const nlohmann::json& change, const std::string& message) {
    auto counters = good;
    counters.update(change);
    REQUIRE_THROWS_WITH(TinyRun().state->load_counters(counters, step, "s"), message);
  };
  refuses(3, {{"step", "three"}}, "s: 'step' is not a count");
  refuses(3, {{"step", -3}}, "s: 'step' is not a count");
  refuses(3, {{"step", 4}}, "s: 'step' is 4, at step 3 it is 3; use another checkpoint");
  refuses(int64_t{1} << 62, {{"step", int64_t{1} << 62}},
          "s: step 4611686018427387904 is more than a run can have; use another checkpoint");
  refuses(3, {{"tokens", nullptr}}, "s: 'tokens' is not a count");
  refuses(3, {{"data_position", uint64_t{1} << 63}}, "s: 'data_position' is not a count");
  refuses(3, {{"data_position", 25}}, "s: 'data_position' is 25, at step 3 it is 24; use another checkpoint");
  refuses(3, {{"optimizer_updates", {1}}}, "s: 'optimizer_updates' is not a number");
  refuses(3, {{"optimizer_updates", 4}}, "s: 'optimizer_updates' is 4, of 3 steps; use another checkpoint");
  refuses(3, {{"nonfinite", {0, 0}}}, "s: 'nonfinite' has 2 numbers, not 3; use another checkpoint");
  refuses(3, {{"nonfinite", {0, "1", 0}}}, "s: 'nonfinite' is not a number");
  refuses(3, {{"nonfinite", {0, -1, 0}}}, "s: 'nonfinite' holds -1, of 3 steps; use another checkpoint");
  REQUIRE_THROWS_WITH(run.state->load_counters(nlohmann::json::array(), 3, "s"), "s: 'step' is missing");
}

TEST_CASE("Muon trains every kind of layer, and a checkpoint brings back its state to the bit") {
  const auto muon = [](Config& config) {
    config.optim.name = OptimizerName::kMuon;
    config.optim.lr = 0.01;
  };
  TinyRun run(muon), other(muon), adamw;
  run.trainer->step();
  const double first = run.trainer->report().loss;
  for (int i = 0; i < 9; i++) run.trainer->step();
  REQUIRE(run.trainer->report().loss < first - 0.5);
  const auto path = save_training((run.folder / "run").string(), *run.state);
  resume_training(CheckpointReader(path), *other.state);
  REQUIRE(all_equal(other.tensors(), run.tensors()));
  for (auto* each : {&run, &other}) each->trainer->step();
  REQUIRE(all_equal(other.tensors(), run.tensors()));
  REQUIRE_THROWS_WITH(resume_training(CheckpointReader(path), *adamw.state),
                      ContainsSubstring("has no optimiser state 'exp_avg/") && ContainsSubstring("optim.name: adamw needs"));
}

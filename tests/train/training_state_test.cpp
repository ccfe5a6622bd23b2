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
  other.state->load_counters(counters);
  REQUIRE(other.state->counters() == counters);
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

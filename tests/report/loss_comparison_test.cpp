#include "lib/report/loss_comparison.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "lib/config/load.h"
#include "lib/util/error.h"
#include "tests/catch.h"

using namespace scatterlm;

namespace {

constexpr double kTokens = 10 * 2048;  // of runs with ten steps

Side trained_side(const std::string& name, std::vector<double> block_ms) {
  const std::string path = "configs/" + name + ".yaml";
  return {.name = name,
          .path = path,
          .config = load_config(path, {"train.steps=10", "optim.warmup_steps=2"}),
          .numerics = {at::kCPU, at::kFloat, true},
          .peak_gib = 1,
          .block_ms = std::move(block_ms)};
}

ComparedRun run(const std::string& value, int64_t seed, LossCurve curve, std::optional<double> load = {}) {
  return {.folder = value + "x",
          .value = value,
          .seed = seed,
          .result = {.curve = std::move(curve), .bits_per_byte = 3, .load_max_mean = load}};
}

/// Every half takes `seconds`.
LossCurve two_points(double middle, double last, double seconds = 1) {
  return {{kTokens / 2, middle, seconds}, {kTokens, last, 2 * seconds}};
}

}  // namespace

TEST_CASE("loss_curve: tokens and seconds to a loss, by hand") {
  const LossCurve curve = {{100, 4, 10}, {200, 3, 14}, {300, 3.5, 15}, {400, 2, 17}};
  // Three quarters of the way from 4 to 3, not the later 3.25 beyond 300.
  REQUIRE((point_at_loss(curve, 3.25) == LossPoint{175, 3.25, 13}));
  REQUIRE((point_at_loss(curve, 2.75) == LossPoint{350, 2.75, 16}));  // half of the way from 3.5 to 2
  REQUIRE((point_at_loss(curve, 3) == curve[1]));
  REQUIRE((point_at_loss(curve, 5) == curve[0]));  // the first evaluation
  REQUIRE(!point_at_loss(curve, 1.9));
  REQUIRE(!point_at_loss({}, 1));
}

TEST_CASE("loss_curve: the mean has the points that all have") {
  REQUIRE((mean_curve({{{1, 2, 5}, {2, 4, 7}, {3, 6, 9}}, {{1, 4, 6}, {3, 2, 8}}}) == LossCurve{{1, 3, 5.5}, {3, 4, 8.5}}));
}

TEST_CASE("loss_curve: what metrics.jsonl says") {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("scatterlm_curve_{}", getpid());
  std::filesystem::create_directories(folder);
  const auto read = [&](const std::string& text) {
    std::ofstream(folder / "metrics.jsonl") << text;
    return read_result(folder);
  };
  const auto result = read(
      R"({"step":2,"tokens":10,"step_ms":500,"val_loss":null,"nonfinite_steps":0,"load_max_mean":9,"routers":[{"dead_experts":7}]}
{"step":5,"tokens":20,"step_ms":1000,"val_loss":2.5,"val_bpb":3.6,"nonfinite_steps":1,"load_max_mean":1.5,"routers":[{"dead_experts":1},{"dead_experts":2}]}
{"step":6,"tokens":30,"step_ms":100,"val_lo)");
  REQUIRE((result.curve == LossCurve{{20, 2.5, 2 * 0.5 + 3 * 1.0}}));
  REQUIRE(
      (result.bits_per_byte == 3.6 && result.load_max_mean == 1.5 && result.dead_experts == 3 && result.nonfinite_steps == 1));
  REQUIRE(!read("{\"step\":1,\"tokens\":10,\"step_ms\":1,\"nonfinite_steps\":0,\"load_max_mean\":1,\"routers\":[]}\n")
               .load_max_mean);
  REQUIRE_THROWS_WITH(read("{}\n"), ContainsSubstring("metrics.jsonl:1: 'step' is"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("loss_comparison: shares of tokens and time, by hand") {
  // The second model is at the first one's 2.0 half-way between its two evaluations, after 3 + 1.5 of the first one's 4
  // seconds.
  const LossComparison comparison{
      .sweep = "",
      .models = {{trained_side("tiny_dense", {100, 200, 400}), {run("", 1, two_points(3, 2, 2))}},
                 {trained_side("tiny_moe", {125, 400, 400}), {run("", 1, two_points(2.5, 1.5, 3), 1.25)}}}};
  const auto json = loss_comparison(comparison, true);
  const auto& moe = json["rows"][1];
  REQUIRE((json["sweep"].is_null() && moe["best"].is_null() && moe["by_value"].is_null()));
  REQUIRE((moe["val_loss"] == 1.5 && moe["val_loss_above_first"] == -0.5 && moe["load_max_mean"] == 1.25));
  REQUIRE(moe["tokens_to_first_loss"].get<double>() == Approx(0.75 * kTokens));
  REQUIRE(moe["tokens_share"].get<double>() == Approx(0.75));
  REQUIRE(moe["seconds_to_first_loss"].get<double>() == Approx(4.5));
  REQUIRE(moe["seconds_share"].get<double>() == Approx(4.5 / 4));
  REQUIRE((moe["seconds"] == 6 && moe["trained_tok_s"].get<double>() == Approx(kTokens / 6)));
  const auto& dense = json["rows"][0];
  REQUIRE(
      (dense["tokens_share"] == 1 && dense["seconds_share"] == 1 && dense["seconds"] == 4 && dense["load_max_mean"].is_null()));
  const auto text = loss_comparison_text(json);
  REQUIRE_THAT(text,
               ContainsSubstring("tiny_moe reaches the final validation loss of tiny_dense, 2.0000 nats per token, in 0.750 of "
                                 "its tokens and 1.125 of its time.\n"));
  // 2048 tokens in 400 ms, the median of the blocks, are 5120 per second; the run took 6 s for 20480.
  REQUIRE_THAT(text, ContainsSubstring("3413 (0.667)"));
  const auto slower = loss_comparison({"", {comparison.models[1], comparison.models[0]}}, true);
  REQUIRE(slower["rows"][1]["tokens_share"].is_null());
  REQUIRE_THAT(loss_comparison_text(slower),
               ContainsSubstring("tiny_dense does not reach the final validation loss of tiny_moe"));
}

TEST_CASE("loss_comparison: the best value by the mean over seeds") {
  // 2e-3 has the best single run, 1e-3 the best mean; a run of 4e-3 ended without a loss, so its mean does not count.
  const ComparedModel dense{
      trained_side("tiny_dense", {100}),
      {run("1e-3", 1, two_points(3, 1.9)), run("1e-3", 2, two_points(5, 2.1)), run("2e-3", 1, two_points(3, 1.5)),
       run("2e-3", 2, two_points(3, 2.7)), run("4e-3", 1, two_points(3, 1.0)), run("4e-3", 2, {{kTokens / 2, 1.0}})}};
  const auto json = loss_comparison({"optim.lr", {dense, dense}}, true);
  const auto& row = json["rows"][0];
  REQUIRE((row["best"] == "1e-3" && row["val_loss"] == 2.0 && row["val_loss_min"] == 1.9 && row["val_loss_max"] == 2.1));
  REQUIRE((row["curve"][0] == nlohmann::ordered_json{kTokens / 2, 4.0, 1.0} && row["by_value"][1]["val_loss"] == 2.1));
  REQUIRE((row["failed"] == 0 && row["by_value"][2]["val_loss"] == 1.0 && row["by_value"][2]["failed"] == 1));
  const auto text = loss_comparison_text(json);
  REQUIRE_THAT(text, ContainsSubstring("2.0000 (1.9000 to 2.1000)"));
  REQUIRE_THAT(text, ContainsSubstring("The best optim.lr of tiny_dense is at an end of the sweep, 1e-3"));
  REQUIRE_THAT(text, ContainsSubstring("1.0000 (1 failed)"));
  REQUIRE_THAT(text, ContainsSubstring("tiny_dense, optim.lr=4e-3, seed 2: ended without a finite validation loss\n"));
  const ComparedModel broken{dense.side, {run("4e-3", 2, {})}};
  REQUIRE_THROWS_WITH(loss_comparison({"optim.lr", {broken}}, true),
                      ContainsSubstring("no run ended with a finite validation loss"));
  REQUIRE(loss_comparison({"optim.lr", {broken}}, false)["rows"][0]["runs"][0]["val_loss"].is_null());
}

TEST_CASE("loss_comparison: runs that failed") {
  auto failed = run("", 2, two_points(3, 1));  // after its last evaluation
  failed.error = "disk full";
  const ComparedModel model{trained_side("tiny_dense", {100}), {run("", 1, two_points(3, 2)), failed}};
  const auto json = loss_comparison({"", {model}}, true);
  const auto& row = json["rows"][0];
  REQUIRE((row["val_loss"] == 2.0 && row["failed"] == 1 && row["val_bpb"] == 3.0));
  REQUIRE(
      (row["runs"][0]["error"].is_null() && row["runs"][1]["error"] == "disk full" && row["runs"][1]["val_loss"].is_null()));
  REQUIRE((failed_runs(json, "x.json") == std::vector<std::string>{"tiny_dense, seed 2: disk full"}));
  REQUIRE_THAT(loss_comparison_text(json), ContainsSubstring("\nFailed:\n  tiny_dense, seed 2: disk full\n"
                                                             "The figures of tiny_dense leave out 1 of its seeds.\n"));
  try {
    loss_comparison({"", {{model.side, {failed}}}}, true);
    FAIL("is a comparison without a loss");
  } catch (const Error& error) {
    REQUIRE(error.code() == kExitFailure);
    REQUIRE_THAT(error.what(),
                 ContainsSubstring("tiny_dense: no run ended with a finite validation loss (tiny_dense, seed 2: disk full)"));
  }
  REQUIRE(failed_runs(nlohmann::json::parse(R"({"rows":[{"name":"a","runs":[{"folder":"a"}]}]})"), "x.json").empty());
  REQUIRE_THROWS_WITH(failed_runs(nlohmann::json::parse(R"({"rows":[{"runs":[]}, {"runs":[{"error":"e"}]}]})"), "x.json"),
                      ContainsSubstring("x.json: 'seed' is missing"));
}

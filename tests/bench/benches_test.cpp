#include "lib/bench/bench.h"
#include "tests/catch.h"

namespace scatterlm::bench {
namespace {

const MoeShape kShape{.tokens = 5, .model = 16, .width = 24, .experts = 6, .top_k = 3};

Conditions few_rounds(const Machine& machine) { return {.machine = machine, .routing = RoutingPattern::kSkewed, .rounds = 2}; }

}  // namespace

TEST_CASE("benches: each measures one shape after the other", "[benches]") {
  const Machine machine;
  for (const auto& bench : all_benches()) {
    INFO(bench.name);
    const auto measurements = bench.parse("7B-mid;5,16,24,6,3");
    REQUIRE(measurements.size() == 2);
    REQUIRE(measurements[0].shape == "7B-mid 24576,1536,512,64,4");
    REQUIRE(measurements[1].shape == "5,16,24,6,3");
    const auto rows = measurements[1].run(few_rounds(machine)).rows;
    REQUIRE_FALSE(rows.empty());
    for (const auto& row : rows) {
      REQUIRE((row["T"] == 5 && row["K"] == 3 && row["dtype"] == "fp32" && row["routing"] == "skewed"));
      REQUIRE(row["max_err_ratio"].is_number());
    }
  }
}

TEST_CASE("moe_mlp: dense MLPs as wide as the experts of a token and as all", "[benches]") {
  auto shape = kShape;
  shape.beside_all_dense = true;
  const Machine machine;
  const auto row = measure_moe_mlp(make_inputs(shape, RoutingPattern::kRandom, at::kCPU), few_rounds(machine)).rows[0];
  const auto flops = [&](const std::string& rival, const std::string& pass) {
    const double ms = row[rival][pass]["ms"], tflops = row[rival][pass]["tflops"];
    return ms * tflops * 1e9;
  };
  REQUIRE(flops("dense", "fwd") == Approx(6.0 * 5 * 16 * 24 * 3));
  REQUIRE(flops("dense_all", "fwd") == Approx(6.0 * 5 * 16 * 24 * 6));
  REQUIRE(flops("dense_all", "fwdbwd") == Approx(18.0 * 5 * 16 * 24 * 6));
  REQUIRE(double(row["fwd_ms"]) * double(row["fwd_tflops"]) * 1e9 == Approx(forward_flops(shape)));
}

TEST_CASE("inference: the weights of the experts that the tokens take", "[benches]") {
  const Machine machine;
  const auto row_of_routing = [&](RoutingPattern routing) {
    return measure_inference(make_inputs(kShape, routing, at::kCPU), few_rounds(machine)).rows[0];
  };
  REQUIRE(row_of_routing(RoutingPattern::kBalanced)["touched_experts"] == 6);
  const auto row = row_of_routing(RoutingPattern::kOne);
  REQUIRE(row["touched_experts"] == 1);
  REQUIRE(double(row["fwd_ms"]) * double(row["fwd_gbps"]) * 1e6 == Approx(3.0 * 4 * 16 * 24));
}

}  // namespace scatterlm::bench

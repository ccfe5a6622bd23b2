#include "lib/bench/bench.h"
#include "lib/bench/norms.h"
#include "lib/util/memory_meter.h"
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
    if (!bench.has_experts) continue;
    const bool moa = bench.name == "moa" || bench.name == "parallel_linear";
    const bool kernels_alone = bench.name == "grouped_gemm" || bench.name == "gather_sum" || bench.name == "routing" ||
                               bench.name == "adamw" || bench.name == "muon";
    const auto measurements = bench.parse(moa ? "jetmoe;2,5,16,4,3,1" : "7B-mid;5,16,24,6,3");
    REQUIRE(measurements.size() == 2);
    REQUIRE(measurements[0].shape == (moa ? "jetmoe 8,4096,2048,8,2,16" : "7B-mid 24576,1536,512,64,4"));
    REQUIRE(measurements[1].shape == (moa ? "2,5,16,4,3,1" : "5,16,24,6,3"));
    const auto rows = measurements[1].run(few_rounds(machine)).rows;
    REQUIRE_FALSE(rows.empty());
    for (const auto& row : rows) {
      REQUIRE((row["D"] == 16 && row["K"] == 3 && row["dtype"] == "fp32" && row["routing"] == "skewed"));
      REQUIRE(row["max_err_ratio"].is_number());
      for (const auto* key : {"saved_mib", "peak_mib", "host_us"}) REQUIRE(row.contains(key) != kernels_alone);
    }
  }
}

TEST_CASE("rms_norm, qk_norm_rope: checked, then timed beside LibTorch", "[benches]") {
  const Machine machine;
  const auto rows_of = [&](size_t bench, const char* shapes, const char* shape) {
    REQUIRE_FALSE(all_benches()[bench].has_experts);
    const auto measurements = all_benches()[bench].parse(shapes);
    REQUIRE(measurements[0].shape.find("olmoe_1b_7b") == 0);
    REQUIRE(measurements[1].shape == shape);
    return measurements[1].run(few_rounds(machine)).rows;
  };
  const auto norm = rows_of(all_benches().size() - 3, "olmoe_1b_7b;5,24", "5,24")[0];
  REQUIRE((norm["D"] == 24 && norm["max_err_ratio"].is_number() && norm["aten"]["fwdbwd"]["gbps"].is_number()));
  REQUIRE(double(norm["fwdbwd_ms"]) * double(norm["fwdbwd_gbps"]) * 1e6 == Approx(8.0 * 4 * 5 * 24));
  const auto heads = rows_of(all_benches().size() - 2, "olmoe_1b_7b;2,5,4,2,16", "2,5,4,2,16");
  REQUIRE(heads.size() == 3);
  REQUIRE((heads[0]["norm"] == "none" && heads[1]["norm"] == "head" && heads[2]["norm"] == "full"));
  REQUIRE(heads[2]["single"]["fwd"]["gbps"].is_number());
  REQUIRE(double(heads[0]["fwd_ms"]) * double(heads[0]["fwd_gbps"]) * 1e6 == Approx(4.0 * 2 * 10 * 6 * 16));
  REQUIRE(double(heads[2]["fwdbwd_ms"]) * double(heads[2]["fwdbwd_gbps"]) * 1e6 == Approx(4.0 * 10 * 16 * (2 * 6 + 2 * 8 + 6)));
}

TEST_CASE("cross_entropy: checked, then timed beside LibTorch", "[benches]") {
  const Machine machine;
  const auto& bench = all_benches().back();
  REQUIRE_FALSE(bench.has_experts);
  const auto measurements = bench.parse("dense_124m;5,24");
  REQUIRE(measurements[0].shape == "dense_124m 5336,50304");
  REQUIRE(measurements[1].shape == "5,24");
  const auto row = measurements[1].run(few_rounds(machine)).rows[0];
  REQUIRE((row["V"] == 24 && row["max_err_ratio"].is_number() && row["aten"]["fwdbwd"]["gbps"].is_number()));
  REQUIRE(double(row["fwd_ms"]) * double(row["fwd_gbps"]) * 1e6 == Approx(4.0 * 5 * 24));
  REQUIRE(double(row["fwdbwd_ms"]) * double(row["fwdbwd_gbps"]) * 1e6 == Approx(8.0 * 5 * 24));
}

TEST_CASE("rms_norm, qk_norm_rope: shapes that are none", "[benches]") {
  REQUIRE_THROWS_WITH(parse_qk_norm_shapes("1,2,3,2,16"), "--shapes: H of '1,2,3,2,16' must be a multiple of Hkv");
  REQUIRE_THROWS_WITH(parse_qk_norm_shapes("1,2,4,2,15"), "--shapes: P of '1,2,4,2,15' must be even");
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
  REQUIRE(double(row["fwd_ms"]) * double(row["fwd_tflops"]) * 1e9 == Approx(6.0 * 5 * 16 * 24 * 3));
}

TEST_CASE("router: its share of a layer", "[benches]") {
  const Machine machine;
  const auto row = measure_router(make_inputs(kShape, RoutingPattern::kRandom, at::kCPU), few_rounds(machine)).rows[0];
  const double router = row["fwdbwd_ms"], experts = row["experts"]["fwdbwd"]["ms"];
  REQUIRE(double(row["share_percent"]) == Approx(100 * router / (router + experts)));
  REQUIRE(row["aten"]["fwd"]["ms"].is_number());
}

TEST_CASE(
    "token_rounding: beside the same rows given, beside plain top-k and, where they fill tiles, beside equal numbers of rows",
    "[benches]") {
  const Machine machine;
  // 200 rows each become 256: at most T. 256 are left as they are.
  const int64_t tokens = GENERATE(200, 256);
  const MoeShape shape{.tokens = tokens, .model = 16, .width = 8, .experts = 2, .top_k = 2};
  const auto measured = measure_token_rounding(make_inputs(shape, RoutingPattern::kRandom, at::kCPU), few_rounds(machine));
  const auto& row = measured.rows[0];
  REQUIRE(row["rows"] == 2 * tokens);
  const double ms = row["fwdbwd_ms"], given = row["given"]["fwdbwd"]["ms"], balanced = row["balanced"]["fwdbwd"]["ms"],
               topk = row["topk"]["fwdbwd"]["ms"];
  REQUIRE(double(row["over_given_percent"]) == Approx(100 * (ms / given - 1)));
  if (tokens == 256)
    REQUIRE(double(row["over_balanced_percent"]) == Approx(100 * (ms / balanced - 1)));
  else
    REQUIRE(row["over_balanced_percent"].is_null());
  REQUIRE((measured.text.find("a row takes") != std::string::npos) == (tokens == 256));
  REQUIRE(double(row["over_topk_percent"]) == Approx(100 * (ms / topk - 1)));
}

TEST_CASE("token_rounding: a choice with pairs dropped and filled is right", "[benches]") {
  const Machine machine;
  const MoeShape shape{.tokens = 256, .model = 16, .width = 8, .experts = 4, .top_k = 2};
  const auto row = measure_token_rounding(make_inputs(shape, RoutingPattern::kRandom, at::kCPU), few_rounds(machine)).rows[0];
  REQUIRE(row["rows"] == 4 * 128);  // for 139, 107, 123 and 143
  REQUIRE(double(row["max_err_ratio"]) > 0);
}

TEST_CASE("moa: both projections, with attention between them and without", "[benches]") {
  const Machine machine;
  const MoaShape shape{.batch = 2, .sequence = 5, .model = 16, .experts = 4, .top_k = 3, .heads = 2};
  const auto row = measure_moa(make_inputs(shape, RoutingPattern::kRandom, at::kCPU), few_rounds(machine)).rows[0];
  REQUIRE((row["B"] == 2 && row["S"] == 5 && row["heads"] == 2 && row["with_attention"]["max_err_ratio"].is_number()));
  const double flops = 4.0 * 10 * 3 * 16 * 256, attention = 2.0 * 2 * 5 * 5 * 3 * 256;
  REQUIRE(double(row["fwd_ms"]) * double(row["fwd_tflops"]) * 1e9 == Approx(flops));
  REQUIRE(double(row["fwdbwd_ms"]) * double(row["fwdbwd_tflops"]) * 1e9 == Approx(3 * flops));
  const auto& dense = row["dense"]["fwdbwd"];
  REQUIRE(double(dense["ms"]) * double(dense["tflops"]) * 1e9 == Approx(3 * flops));
  const auto& both = row["with_attention"]["fwdbwd"];
  REQUIRE(double(both["ms"]) * double(both["tflops"]) * 1e9 == Approx(3 * (flops + attention)));
}

TEST_CASE("parallel_linear: four orders of rows", "[benches]") {
  const Machine machine;
  const MoaShape shape{.batch = 1, .sequence = 7, .model = 16, .experts = 4, .top_k = 2, .heads = 1};
  const auto rows = measure_parallel_linear(make_inputs(shape, RoutingPattern::kRandom, at::kCPU), few_rounds(machine)).rows;
  REQUIRE(rows.size() == 4);
  REQUIRE((rows[0]["rows"] == "token_to_token" && rows[3]["rows"] == "expert_to_expert"));
  for (const auto& row : rows)
    REQUIRE(double(row["fwdbwd_ms"]) * double(row["fwdbwd_tflops"]) * 1e9 == Approx(6.0 * 14 * 16 * 128));
}

TEST_CASE("muon: bytes of its passes, FLOPs of its products", "[benches]") {
  const Machine machine;
  const auto row = measure_muon(make_inputs(kShape, RoutingPattern::kRandom, at::kCPU), few_rounds(machine)).rows[0];
  const double elements = 3.0 * 6 * 16 * 24;
  REQUIRE(row["elements"] == elements);
  REQUIRE(double(row["momentum_ms"]) * double(row["momentum_gbps"]) * 1e6 == Approx(16 * elements));
  REQUIRE(double(row["aten"]["apply"]["ms"]) * double(row["aten"]["apply"]["gbps"]) * 1e6 == Approx(12 * elements));
  const double flops = 5.0 * 3 * 6 * (4 * 16 * 16 * 24 + 2 * 16 * 16 * 16);
  REQUIRE(double(row["newton_schulz_ms"]) * double(row["newton_schulz_tflops"]) * 1e9 == Approx(flops));
}

TEST_CASE("adamw: bytes of a step with either state, and of the norm", "[benches]") {
  const Machine machine;
  const auto row = measure_adamw(make_inputs(kShape, RoutingPattern::kRandom, at::kCPU), few_rounds(machine)).rows[0];
  const double elements = 3.0 * 6 * 16 * 24;
  REQUIRE(row["elements"] == elements);
  const auto bytes = [](const nlohmann::ordered_json& ms, const nlohmann::ordered_json& gbps) {
    return double(ms) * double(gbps) * 1e6;
  };
  REQUIRE(bytes(row["fp32_state_ms"], row["fp32_state_gbps"]) == Approx(elements * (4 + 3 * 8 + 2)));
  REQUIRE(bytes(row["bf16_state_ms"], row["bf16_state_gbps"]) == Approx(elements * (4 + 3 * 4)));
  REQUIRE(bytes(row["bf16_ms"], row["bf16_gbps"]) == Approx(elements * (2 + 3 * 4)));
  REQUIRE(bytes(row["aten"]["norm"]["ms"], row["aten"]["norm"]["gbps"]) == Approx(elements * 4));
}

TEST_CASE("adamw: memory for one kind of state, and for copies of its ends", "[benches]") {
  const Machine machine;
  const MoeShape shape{.tokens = 5, .model = 1024, .width = 1024, .experts = 4, .top_k = 2};
  const auto in = make_inputs(shape, RoutingPattern::kRandom, at::kCPU);
  const MemoryMeter meter(at::kCPU);
  const double elements = measure_adamw(in, few_rounds(machine)).rows[0]["elements"];
  REQUIRE(elements == 3.0 * 4 * 1024 * 1024);
  // 4 bytes of weights, 18 of float32 state with gradients and bfloat16 parameters, and 2 * 48 / 12 of the copies.
  REQUIRE(static_cast<double>(meter.peak_bytes()) < 34 * elements);
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

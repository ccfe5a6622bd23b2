#include "lib/bench/work.h"

#include <cmath>

#include "lib/bench/figure.h"
#include "tests/catch.h"

namespace scatterlm::bench {
namespace {

constexpr Ceilings kH200{.gemm_tflops = 723, .copy_tbps = 4.27};

double ms_of_bytes(MoeKernel kernel, const MoeShape& shape) {
  return bound_ms({.bytes = work_of(kernel, shape, 2).bytes}, kH200);
}

}  // namespace

TEST_CASE("work: HBM times of every kernel of the published shapes", "[work]") {
  // up, down, o, dh, dw2, dx_rows, dw1 in ms, worked out by hand for 723 TFLOP/s and 4.27 TB/s.
  const std::vector<std::vector<double>> hbm_ms = {
      {.156, .169, .133, .223, .066, .220, .117},    {.136, .189, .159, .159, .065, .236, .112},
      {.136, .118, .088, .159, .065, .165, .112},    {.136, .083, .053, .159, .065, .130, .112},
      {.503, .440, .283, .597, .220, .629, .409},    {.534, .440, .283, .723, .220, .629, .409},
      {.503, 1.194, 1.069, .503, .251, 1.383, .440}, {.943, .880, .566, .943, .440, 1.257, .817}};
  const MoeKernel kernels[] = {MoeKernel::kUp,  MoeKernel::kDown,   MoeKernel::kO,  MoeKernel::kDh,
                               MoeKernel::kDw2, MoeKernel::kDxRows, MoeKernel::kDw1};
  for (size_t i = 0; i < hbm_ms.size(); ++i)
    for (size_t j = 0; j < hbm_ms[i].size(); ++j) {
      INFO(published_shapes()[i].name << " " << kernel_name(kernels[j]));
      REQUIRE(ms_of_bytes(kernels[j], published_shapes()[i]) == Approx(hbm_ms[i][j]).margin(6e-4));
    }
}

TEST_CASE("work: roofline of the published shapes", "[work]") {
  const std::vector<std::pair<double, double>> tflops_of = {{579, 606}, {579, 620}, {635, 662}, {668, 685},
                                                            {668, 685}, {681, 694}, {586, 625}, {681, 694}};
  for (size_t i = 0; i < tflops_of.size(); ++i) {
    const auto& shape = published_shapes()[i];
    INFO(shape.name);
    const auto op = op_work(forward_work(shape, 2), backward_work(shape, 2), kH200);
    REQUIRE(tflops(op.forward.flops, *op.forward_bound_ms) == Approx(tflops_of[i].first).margin(1));
    REQUIRE(tflops(op.training.flops, *op.training_bound_ms) == Approx(tflops_of[i].second).margin(1));
  }
}

TEST_CASE("work: FLOPs of the op", "[work]") {
  const auto& shape = published_shapes()[1];
  const auto op = op_work(forward_work(shape, 2), backward_work(shape, 2), {});
  REQUIRE(op.forward.flops == 6.0 * 24576 * 8 * 1536 * 256);
  REQUIRE(op.training.flops == 3 * op.forward.flops);
  REQUIRE_FALSE(op.forward_bound_ms);
  REQUIRE(work_of(MoeKernel::kDgates, {.tokens = 3, .model = 8, .width = 264, .experts = 4, .top_k = 2}, 2).bytes == 4 * 6 * 4);
  REQUIRE(work_of(MoeKernel::kRouting, shape, 2).bytes == work_of(MoeKernel::kRouting, shape, 4).bytes);
  REQUIRE(2 * work_of(MoeKernel::kUp, shape, 2).bytes == work_of(MoeKernel::kUp, shape, 4).bytes);
}

TEST_CASE("work: router", "[work]") {
  const MoeShape shape{.tokens = 10, .model = 16, .width = 8, .experts = 6, .top_k = 2};
  const auto forward = router_forward_work(shape, 2), backward = router_backward_work(shape, 2);
  REQUIRE(forward.flops == 2 * 10 * 16 * 6);
  REQUIRE(backward.flops == 2 * forward.flops);
  REQUIRE(forward.bytes == 2 * (160 + 96) + 4 * 60 + 4 * 20 + 4 * 20 + 16 * 20);  // x, w, logits, gates, ids, metadata
  REQUIRE(backward.bytes == 2 * (160 + 96 + 160 + 96) + 4 * 60 + 4 * 20 + 4 * 20);
}

TEST_CASE("work: weights of the chosen experts", "[work]") {
  const MoeShape olmoe{.tokens = 1, .model = 2048, .width = 1024, .experts = 64, .top_k = 8};
  const auto work = weights_of(olmoe, 8, 2);
  REQUIRE(work.bytes == 8.0 * 3 * 2048 * 1024 * 2);
  REQUIRE(bound_ms(work, kH200) == Approx(0.02357).epsilon(1e-3));
}

TEST_CASE("figure: percentages of ceilings and roofline", "[figure]") {
  const Ceilings ceilings{.gemm_tflops = 500, .copy_tbps = 4};
  const Figure gemm{.name = "up", .ms = {2, 1.9, 2.5}, .work = {.flops = 4e11, .bytes = 1e6}, .bound_ms = 0.8};
  const auto json = to_json(gemm, ceilings);
  REQUIRE(json.dump() ==
          R"({"ms":2.0,"p10_ms":1.9,"p90_ms":2.5,"tflops":200.0,"ceiling_percent":40.0,"roofline_percent":40.0})");
  REQUIRE_THAT(format_figures({{.name = "up", .ms = {1, 1, 1}, .work = {.flops = 5e8}}}, {}), ContainsSubstring("500 GFLOP/s"));
  const Figure copy{.name = "dx", .ms = {0.5, 0.5, 0.5}, .work = {.bytes = 1e9}};
  REQUIRE(to_json(copy, ceilings).dump() ==
          R"({"ms":0.5,"p10_ms":0.5,"p90_ms":0.5,"gbps":2000.0,"ceiling_percent":50.0,"roofline_percent":null})");
  REQUIRE(to_json(copy, {})["ceiling_percent"].is_null());
  REQUIRE(format_figures({gemm, copy}, ceilings) ==
          "       ms    p10    p90        speed  of ceiling  of roofline\n"
          "up  2.000  1.900  2.500  200 TFLOP/s        40 %         40 %\n"
          "dx  0.500  0.500  0.500    2000 GB/s        50 %            -\n");
}

}  // namespace scatterlm::bench

#include "lib/bench/passes.h"

#include <ATen/ATen.h>

#include <torch/csrc/autograd/autograd.h>

#include "lib/bench/dense.h"
#include "lib/bench/layers.h"
#include "tests/catch.h"

namespace scatterlm::bench {
namespace {

std::vector<std::string> keys_of(const nlohmann::ordered_json& row) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : row.items()) keys.push_back(key);
  return keys;
}

}  // namespace

TEST_CASE("passes: ours and a rival's in the row and in the table", "[passes]") {
  const Machine machine;
  const Conditions conditions{.machine = machine, .routing = RoutingPattern::kRandom, .rounds = 2};
  nlohmann::ordered_json row;
  int ours = 0, rivals = 0;
  const auto text =
      time_passes({{"", "fwd", [&] { ++ours; }, {.flops = 1e9}, {}}, {"aten", "fwd", [&] { ++rivals; }, {.bytes = 8}, {}}},
                  conditions, row);
  REQUIRE((ours >= 2 && ours == rivals));
  REQUIRE(keys_of(row) == std::vector<std::string>{"fwd_ms", "fwd_p10_ms", "fwd_p90_ms", "fwd_tflops", "fwd_ceiling_percent",
                                                   "fwd_roofline_percent", "aten"});
  REQUIRE(row["aten"]["fwd"]["gbps"].is_number());
  REQUIRE_THAT(text, ContainsSubstring("fwd, aten "));
}

TEST_CASE("layers: parameters of their own on the same memory, gradients in fp32", "[passes]") {
  struct Inputs {
    at::Tensor x, weight;
  };
  const Inputs in{at::ones({2}), at::ones({2}, at::kBFloat16)};
  const auto layers = layers_of(in, {&Inputs::weight});
  REQUIRE((layers.size() == kNumLayers && layers[3].x.is_same(in.x)));
  at::Tensor sum = at::zeros({});
  for (const auto& layer : layers) sum = sum + (layer.weight * 0.375).sum().to(at::kFloat);
  torch::autograd::backward({sum}, {});
  const auto& [first, last] = std::pair{layers.front().weight, layers.back().weight};
  REQUIRE((first.is_leaf() && !first.is_same(last) && first.data_ptr() == in.weight.data_ptr()));
  REQUIRE((first.grad().is_same(last.grad()) && first.grad().equal(at::full({2}, 0.375 * kNumLayers))));
}

TEST_CASE("dense: FLOPs and shapes of one product, of two and of an MLP", "[passes]") {
  const auto x = at::randn({3, 8});
  const auto flops = [&](const std::vector<int64_t>& widths, DenseKind kind) {
    const auto passes = dense_passes("dense", x, widths, kind, Ceilings{.gemm_tflops = 1, .copy_tbps = 1});
    for (const auto& pass : passes) pass.run();  // throws where widths do not fit
    REQUIRE(passes[1].work.flops == 3 * passes[0].work.flops);
    REQUIRE(*passes[0].bound_ms == Approx(passes[0].work.flops / 1e9));
    return passes[0].work.flops;
  };
  REQUIRE(flops({16}, DenseKind::kProducts) == 2 * 3 * 8 * 16);
  REQUIRE(flops({16, 4}, DenseKind::kProducts) == 2 * 3 * (8 * 16 + 16 * 4));
  REQUIRE(flops({16, 8}, DenseKind::kSwiglu) == 2 * 3 * (8 * 16 + 8 * 8));
}

}  // namespace scatterlm::bench

// What only a GPU can show: graphs, and more elements than 32 bits count.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/AutogradState.h>
#include <c10/cuda/CUDAGuard.h>

#include "lib/ops/device.h"
#include "tests/ops/moe_mlp_cases.h"

namespace scatterlm {
namespace {

using namespace test::moe_mlp;
using test::Tensors;

/// As the program has it.
struct BackwardInThisThread {
  BackwardInThisThread() { c10::AutogradState::get_tls_state().set_multithreading_enabled(false); }
  ~BackwardInThisThread() { c10::AutogradState::get_tls_state().set_multithreading_enabled(true); }
};

struct Layer {
  Tensors leaves;
  at::Tensor ids_TK, dout_TD;

  /// Output, then gradients of x, w1, w2 and gates; metadata included.
  Tensors run() const {
    const auto routing = ops::make_routing(ids_TK, leaves[1].size(0));
    const auto out = ops::moe_mlp(leaves[0], leaves[1], leaves[2], leaves[3], routing, Activation::kSwiglu);
    auto results = torch::autograd::grad({out}, leaves, {dout_TD});
    results.insert(results.begin(), out.detach());
    return results;
  }
};

Layer make_layer(int64_t tokens, int64_t model, int64_t width, int64_t experts, const at::Tensor& ids_TK) {
  const auto options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  at::manual_seed(1);
  Tensors leaves = {at::randn({tokens, model}, options), at::randn({experts, 2 * width, model}, options).mul_(0.05),
                    at::randn({experts, model, width}, options).mul_(0.05),
                    at::rand(ids_TK.sizes(), options.dtype(at::kFloat))};
  for (auto& leaf : leaves) leaf.requires_grad_();
  return {leaves, ids_TK.to(at::kCUDA), at::randn({tokens, model}, options)};
}

}  // namespace

TEST_CASE("moe_mlp: a captured layer gives the same bits, for other inputs too", "[moe_mlp][.gpu]") {
  const BackwardInThisThread guard;  // what is captured runs in this thread
  const test::ExpertCase c{.name = "", .tokens = 515, .top_k = 3, .experts = 9, .model = 264, .width = 136};
  auto layer = make_layer(c.tokens, c.model, c.width, c.experts, c.ids());
  const c10::cuda::CUDAStreamGuard stream(c10::cuda::getStreamFromPool());
  layer.run();  // cuBLAS and the like set themselves up outside of the graph
  at::cuda::CUDAGraph graph;
  graph.capture_begin();
  const auto captured = layer.run();
  graph.capture_end();
  for (int round = 0; round < 2; ++round) {
    layer.leaves[0].detach().mul_(-1.5);
    layer.ids_TK.copy_(at::remainder(layer.ids_TK + 1, c.experts));
    graph.replay();
    const auto eager = layer.run();
    for (size_t i = 0; i < eager.size(); ++i) REQUIRE(at::equal(captured[i], eager[i]));
  }
}

TEST_CASE("moe_mlp: weight gradients when few experts take most rows", "[moe_mlp][.gpu]") {
  const int64_t tokens = 40000, experts = 32;
  at::manual_seed(3);
  auto ids_TK = at::randint(experts, {tokens, 2}, at::kInt);
  ids_TK.slice(0, 0, GENERATE(20000, 40000)).select(1, 0).fill_(5);
  const auto layer = make_layer(tokens, 512, 256, experts, ids_TK);
  ops::assume_compute_capability(80);  // never divides the rows of an expert
  const auto expected = layer.run();
  ops::assume_compute_capability(0);
  const auto results = layer.run();
  for (const size_t weight : {2, 3}) {
    const auto exact = expected[weight].to(at::kFloat), difference = results[weight].to(at::kFloat) - exact;
    REQUIRE(difference.norm().item<float>() < 0.005F * exact.norm().item<float>());  // both are rounded to bfloat16
  }
  for (int round = 0; round < 20; ++round) {
    const auto again = layer.run();
    for (size_t i = 0; i < again.size(); ++i) REQUIRE(at::equal(again[i], results[i]));
  }
}

TEST_CASE("moe_mlp: more than 2^31 elements", "[moe_mlp][.gpu]") {
  ops::assume_compute_capability(GENERATE(80, 0));                // the portable kernels, then the GPU's own
  constexpr int64_t kTokens = 1 << 17, kExperts = 8, kLast = 64;  // 2^20 rows of 2064
  const auto ids_TK = at::arange(kExperts, at::kInt).expand({kTokens, kExperts}).contiguous();
  auto layer = make_layer(kTokens, 64, 1032, kExperts, ids_TK);
  layer.dout_TD.slice(0, 0, -kLast).zero_();  // so gradients of weights are those of the last tokens
  const auto all = layer.run();
  auto last = layer;
  for (const int i : {0, 3}) last.leaves[i] = layer.leaves[i].detach().slice(0, -kLast).contiguous().requires_grad_();
  last.ids_TK = layer.ids_TK.slice(0, -kLast).contiguous();
  last.dout_TD = layer.dout_TD.slice(0, -kLast).contiguous();
  const auto alone = last.run();
  for (const int i : {0, 1, 4}) REQUIRE(at::equal(all[i].slice(0, -kLast), alone[i]));  // rows do not depend on other rows
  for (const int i : {2, 3})
    REQUIRE((all[i] - alone[i]).to(at::kFloat).norm().item<double>() < 1e-3 * alone[i].to(at::kFloat).norm().item<double>());
}

}  // namespace scatterlm

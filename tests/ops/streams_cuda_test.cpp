// Products over one routing that run at the same time on several streams of a GPU.
#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include "lib/ops/device.h"
#include "tests/ops/moe_mlp_cases.h"
#include "tests/ops/parallel_linear_forms.h"

namespace scatterlm {
namespace {

using test::ExpertCase;
using test::Op;
using test::Tensors;

/// An op over a routing, and leaves of its own.
struct StreamedProduct {
  Op op;
  Tensors leaves;
  at::Tensor dout;

  /// The output, then the gradients of the leaves.
  Tensors run() const {
    const auto out = op(leaves);
    auto results = torch::autograd::grad({out}, leaves, {dout});
    results.insert(results.begin(), out.detach());
    return results;
  }
};

StreamedProduct make_product(const Op& op, Tensors inputs, double scale) {
  for (auto& x : inputs) x = (x * scale).to(at::kBFloat16);
  inputs.back() = inputs.back().to(at::kFloat);  // gates
  for (auto& x : inputs) x = x.to(at::kCUDA).requires_grad_();
  const auto out = op(inputs);
  return {op, inputs, test::randn(out.sizes(), 7).to(out.options())};
}

/// Different products over the one routing of the case, a few tiles each, so that several kernels fit the GPU at the same time.
std::vector<StreamedProduct> make_products(const ExpertCase& c, const ops::Routing& routing) {
  const auto form = test::parallel_linear::all_forms().back();
  const Op mlp = [=](const Tensors&x) { return ops::moe_mlp(x[0], x[1], x[2], x[3], routing, Activation::kSwiglu); },
           linear = [=](const Tensors&x) { return ops::parallel_linear(x[0], x[1], routing, form.in, form.out, x[2]); };
  return {make_product(mlp, test::moe_mlp::make_inputs(c, Activation::kSwiglu), 1),
          make_product(linear, test::parallel_linear::make_inputs(c, form), 1),
          make_product(mlp, test::moe_mlp::make_inputs(c, Activation::kSwiglu), 1.25)};
}

}  // namespace

TEST_CASE("streams: products over one routing on several streams have the bits of products one after another",
          "[streams][.gpu]") {
  ops::assume_compute_capability(GENERATE(80, 0));  // the portable kernels, then the GPU's own
  const auto c = GENERATE(ExpertCase{.name = "mixed", .tokens = 515, .top_k = 3, .experts = 9, .model = 264, .width = 136},
                          // The gradients of the weight are divided among blocks, which then count the parts they have stored.
                          ExpertCase{.name = "one takes all",
                                     .tokens = 9000,
                                     .top_k = 1,
                                     .experts = 4,
                                     .model = 264,
                                     .width = 136,
                                     .load = ExpertCase::kOneTakesAll});
  INFO(c.name);
  const auto routing = ops::make_routing(c.ids().to(at::kCUDA), c.experts);
  const auto products = make_products(c, routing);
  std::vector<Tensors> expected;
  for (const auto& product : products) expected.push_back(product.run());

  // The first stream is that of the routing. All wait until the host has enqueued work for each; without that, a product would
  // end before the next one begins.
  constexpr int kRounds = 20, kRunsPerRound = 6;
  const auto home = c10::cuda::getCurrentCUDAStream(), gate = c10::cuda::getStreamFromPool();
  const std::vector streams = {home, c10::cuda::getStreamFromPool(), c10::cuda::getStreamFromPool()};
  for (int round = 0; round < kRounds; ++round) {
    INFO("round " << round);
    c10::cuda::device_synchronize();
    c10::cuda::CUDAEvent opened;
    {
      const c10::cuda::CUDAStreamGuard guard(gate);
      at::cuda::sleep(50'000'000);  // about 25 ms
      opened.record(gate);
    }
    for (const auto& stream : streams) opened.block(stream);
    std::vector<std::vector<Tensors>> results(products.size());
    for (int run = 0; run < kRunsPerRound; ++run) {
      for (size_t i = 0; i < products.size(); ++i) {
        const c10::cuda::CUDAStreamGuard guard(streams[i]);
        results[i].push_back(products[i].run());
      }
    }
    c10::cuda::device_synchronize();
    for (size_t i = 0; i < products.size(); ++i)
      for (const auto& result : results[i])
        for (size_t j = 0; j < result.size(); ++j) REQUIRE(at::equal(result[j], expected[i][j]));
  }
}

}  // namespace scatterlm

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

/// Streams do nothing before the host has had some 25 ms to enqueue work on each: otherwise work would end on one before the
/// next has any.
void hold(const std::vector<c10::cuda::CUDAStream>& streams) {
  c10::cuda::device_synchronize();
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  at::cuda::sleep(50'000'000);  // cycles
  c10::cuda::CUDAEvent end;
  end.record(guard.current_stream());
  for (const auto& stream : streams) end.block(stream);
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

  constexpr int kRounds = 20, kRunsPerRound = 6;
  const std::vector streams = {c10::cuda::getCurrentCUDAStream(), c10::cuda::getStreamFromPool(),
                               c10::cuda::getStreamFromPool()};  // the first is that of the routing
  for (int round = 0; round < kRounds; ++round) {
    INFO("round " << round);
    hold(streams);
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

TEST_CASE("streams: the gradient of a weight has the parts of all streams", "[streams][.gpu]") {
  ops::assume_compute_capability(0);
  const ExpertCase c{.name = "", .tokens = 515, .top_k = 3, .experts = 9, .model = 264, .width = 136};
  const auto routing = ops::make_routing(c.ids().to(at::kCUDA), c.experts);
  const auto on_gpu = [](const at::Tensor& x) { return x.to(at::kBFloat16).to(at::kCUDA); };
  const auto x1 = on_gpu(test::randn({c.tokens, c.model}, 1)), x2 = on_gpu(test::randn({c.tokens, c.model}, 2)),
             dout = on_gpu(test::randn({c.tokens * c.top_k, c.width}, 3));
  const auto weight = on_gpu(test::randn({c.experts, c.width, c.model}, 4)).requires_grad_();
  weight.set_grad_dtype(std::nullopt);
  const auto product = [&](const at::Tensor& x) {
    return ops::parallel_linear(x, weight, routing, ops::RowOrder::kToken, ops::RowOrder::kExpert);
  };
  const auto gradient = [&](const Tensors& inputs, const std::vector<c10::cuda::CUDAStream>& streams) {
    weight.mutable_grad() = at::zeros(weight.sizes(), weight.options().dtype(at::kFloat));
    hold(streams);
    Tensors outs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const c10::cuda::CUDAStreamGuard guard(streams[i]);
      outs.push_back(product(inputs[i]));
    }
    torch::autograd::backward(outs, Tensors(outs.size(), dout));
    c10::cuda::device_synchronize();
    return weight.grad();
  };
  const auto home = c10::cuda::getCurrentCUDAStream(), one = c10::cuda::getStreamFromPool(),
             two = c10::cuda::getStreamFromPool();
  // The stream that uses the weight first writes its part in place; that of another is rounded to bfloat16 and added.
  const auto rounded = torch::autograd::grad({product(x2)}, {weight}, {dout})[0];
  const auto expected = gradient({x1}, {home}) + rounded.to(at::kFloat);
  for (int round = 0; round < 20; ++round) REQUIRE(at::equal(gradient({x1, x2}, {one, two}), expected));
  const auto unrounded = gradient({x1, x2}, {home, home});
  REQUIRE_FALSE(at::equal(unrounded, expected));
  REQUIRE(at::equal(gradient({x1, x2}, {one, one}), unrounded));
}

}  // namespace scatterlm

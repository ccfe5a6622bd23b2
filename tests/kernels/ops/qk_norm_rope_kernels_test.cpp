// Norm and rotation of queries and keys as their op calls the kernels, on CPU tensors: compiled for tests/kernels/emulated.
#include "tests/ops/qk_norm_rope_cases.h"

namespace scatterlm {

using test::Tensors;

TEST_CASE("qk_norm_rope on kernels: values and gradients of every norm", "[qk_norm_rope]") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const auto norm = GENERATE(test::HeadNorm::kNone, test::HeadNorm::kHead, test::HeadNorm::kFull);
  const auto sizes =
      GENERATE(values<test::HeadSizes>({{1, 1, 1, 1, 16}, {2, 5, 3, 1, 48}, {2, 3, 4, 2, 64}, {1, 3, 2, 2, 24}}));
  test::require_qk_norm_rope(sizes, norm, {.dtype = dtype});
}

TEST_CASE("qk_norm_rope on kernels: the bits of one op after the other", "[qk_norm_rope]") {
  const auto norm = GENERATE(test::HeadNorm::kNone, test::HeadNorm::kHead, test::HeadNorm::kFull);
  const test::HeadSizes sizes{2, 5, 4, 2, 32};
  Tensors in;
  for (const auto& x : test::qk_norm_rope_inputs(sizes, norm)) in.push_back(x.to(at::kBFloat16));
  const auto call = test::qk_norm_rope_call(sizes, norm, in);
  const auto [q, k, v] = ops::qk_norm_rope(in[0], call.options, call.cos, call.sin);
  const auto plain = ops::ref::qk_norm_rope(in[0], call.options, call.cos, call.sin);
  REQUIRE((at::equal(q, plain.q) && at::equal(k, plain.k) && at::equal(v, plain.v)));
  REQUIRE(v.data_ptr() == in[0].narrow(2, 6 * 32, 64).data_ptr());
}

TEST_CASE("qk_norm_rope on kernels: gradients in the strides of attention", "[qk_norm_rope]") {
  const test::HeadSizes sizes{2, 5, 4, 2, 32};
  Tensors in;
  for (const auto& x : test::qk_norm_rope_inputs(sizes, test::HeadNorm::kFull)) in.push_back(x.to(at::kFloat).requires_grad_());
  const auto call = test::qk_norm_rope_call(sizes, test::HeadNorm::kFull, in);
  const auto grads_of = [&](const std::function<at::Tensor(const at::Tensor&)>& lay) {
    const auto [q, k, v] = ops::qk_norm_rope(in[0], call.options, call.cos, call.sin);
    Tensors grads;
    for (const auto* x : {&q, &k, &v}) grads.push_back(lay(test::randn(x->sizes(), 9).to(at::kFloat)));
    return torch::autograd::grad({q, k, v}, in, grads);
  };
  const auto expected = grads_of([](const at::Tensor& x) { return x; });
  const auto heads_outside = grads_of([](const at::Tensor& x) { return x.transpose(1, 2).contiguous().transpose(1, 2); });
  const auto spread = grads_of([](const at::Tensor& x) { return at::stack({x, x}, -1).select(-1, 0); });
  const auto shifted = grads_of([](const at::Tensor& x) { return at::cat({x, x}, -1).slice(-1, 1).narrow(-1, 31, 32); });
  for (const auto* grads : {&heads_outside, &spread, &shifted})
    for (size_t i = 0; i < in.size(); ++i) REQUIRE(at::equal((*grads)[i], expected[i]));
}

TEST_CASE("qk_norm_rope on kernels: only the queries are used", "[qk_norm_rope]") {
  const test::HeadSizes sizes{1, 3, 2, 1, 16};
  const auto x = test::randn({1, 3, 4 * 16}, 1).to(at::kFloat).requires_grad_();
  const auto call = test::qk_norm_rope_call(sizes, test::HeadNorm::kNone, {x});
  const auto q = ops::qk_norm_rope(x, call.options, call.cos, call.sin).q;
  const auto dx = torch::autograd::grad({q}, {x}, {at::ones_like(q)})[0];
  REQUIRE(dx.narrow(2, 0, 32).abs().min().item<float>() > 0);
  REQUIRE(dx.narrow(2, 32, 32).abs().max().item<float>() == 0);
}

}  // namespace scatterlm

#include "lib/ops/router_scores.h"

#include "tests/ops/router_forms.h"

#include "tests/ops/check_op.h"

namespace scatterlm {
namespace {

using ops::RouterOptions;
using ops::RouterOutput;
using test::all_forms;
using test::Tensors;

/// All differentiable outputs in one vector: gates, prob_sum, lse_sq_sum.
template <class Output>
at::Tensor join(const Output& out) {
  if constexpr (requires { out.gates_TK; }) {
    return at::cat({out.gates_TK.flatten(), out.prob_sum_E, out.lse_sq_sum.view({1})});
  } else {
    return at::cat({out.gates.flatten(), out.prob_sum, out.lse_sq_sum.view({1})});
  }
}

/// The router as it runs on a GPU without kernels.
RouterOutput plain_router(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                          const RouterOptions& options) {
  const auto wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return ops::ref::router_scores(at::linear(x.to(wide), weight.to(wide)), bias, options);
}

/// The router of given logits: x = logits, weight = identity.
RouterOutput route_logits(const at::Tensor& logits_TE, const RouterOptions& options,
                          const std::optional<at::Tensor>& bias = {}) {
  return ops::router(logits_TE, at::eye(logits_TE.size(1), logits_TE.options()), bias, options);
}

at::Tensor tensor(std::vector<std::vector<double>> rows, at::ScalarType dtype = at::kFloat) {
  std::vector<at::Tensor> tensors;
  for (const auto& row : rows) tensors.push_back(at::tensor(row, dtype));
  return at::stack(tensors);
}

}  // namespace

TEST_CASE("router: values and gradients of every form", "[router]") {
  const auto experts = GENERATE(1, 2, 7);
  const auto top_k = GENERATE(1, 2, 7);
  if (top_k > experts) return;
  const auto form = GENERATE_COPY(from_range(all_forms(top_k)));
  const bool biased = GENERATE(false, true);
  const auto bias = biased ? std::optional(0.3 * test::randn({experts}, 9)) : std::nullopt;
  const auto op = [&](const Tensors& x) { return join(ops::router(x[0], x[1], bias, form)); };
  const auto formula = [&](const Tensors& x) { return join(reference::router(x[0], x[1], bias, form)); };
  const Tensors inputs = {test::randn({5, 4}, 1), test::randn({experts, 4}, 2)};
  test::require_equals_reference(op, formula, inputs);
  test::require_finite_differences(op, inputs, 1e-6);
  // Two ulps: among so many tiny cases the plain error of some is small by luck.
  test::require_low_precision(op, formula, inputs, {.dtype = at::kFloat, .ulps = 2});

  const auto out = ops::router(inputs[0], inputs[1], bias, form);
  const auto truth = reference::router(inputs[0], inputs[1], bias, form);
  REQUIRE(at::equal(out.ids_TK, truth.ids.to(at::kInt)));
  REQUIRE(at::equal(out.counts_E, truth.counts.to(at::kInt)));
}

TEST_CASE("router: the gradient of other readers of x goes through the router", "[router]") {
  const RouterOptions form{.num_experts_per_tok = 2};
  const auto op = [&](const Tensors& x) {
    const auto out = ops::router(x[0], x[1], {}, form);
    return at::cat({join(out).view(-1), out.x_TD.tanh().view(-1)});
  };
  const auto formula = [&](const Tensors& x) {
    return at::cat({join(reference::router(x[0], x[1], {}, form)).view(-1), x[0].tanh().view(-1)});
  };
  const Tensors inputs = {test::randn({5, 4}, 1), test::randn({3, 4}, 2)};
  test::require_equals_reference(op, formula, inputs);
  test::require_low_precision(op, formula, inputs, {.dtype = at::kFloat, .ulps = 2});

  const auto rows = [&](const Tensors& x) { return ops::router(x[0], inputs[1], {}, form).x_TD.tanh(); };
  test::require_equals_reference(rows, [](const Tensors& x) { return x[0].tanh(); }, {inputs[0]});
}

TEST_CASE("router: the twin for other devices agrees", "[router]") {
  const auto form = GENERATE(from_range(all_forms(3)));
  const auto x = test::randn({50, 8}, 1), weight = test::randn({9, 8}, 2);
  const bool biased = GENERATE(false, true);
  const auto bias = biased ? std::optional(0.3 * test::randn({9}, 3)) : std::nullopt;
  const auto out = ops::router(x, weight, bias, form), twin = plain_router(x, weight, bias, form);
  REQUIRE(at::equal(out.ids_TK, twin.ids_TK));
  REQUIRE(at::equal(out.counts_E, twin.counts_E));
  REQUIRE(test::max_abs(join(out) - join(twin)) < 1e-12);
}

TEST_CASE("router: softmax before top-k renormalised equals top-k before softmax", "[router]") {
  const auto x = test::randn({64, 16}, 1).to(at::kFloat), weight = test::randn({12, 16}, 2).to(at::kFloat);
  const auto before = ops::router(x, weight, {}, {.num_experts_per_tok = 4, .topk_before_softmax = true});
  const auto after = ops::router(x, weight, {}, {.num_experts_per_tok = 4, .norm_topk_prob = true});
  REQUIRE(at::equal(before.ids_TK, after.ids_TK));
  REQUIRE(at::equal(before.gates_TK, after.gates_TK));
}

TEST_CASE("router: bfloat16 input keeps logits in fp32", "[router]") {
  const auto x = test::randn({32, 24}, 1).to(at::kBFloat16), weight = test::randn({6, 24}, 2).to(at::kBFloat16);
  const auto out = ops::router(x, weight, {}, {.num_experts_per_tok = 2}),
             wide = ops::router(x.to(at::kFloat), weight.to(at::kFloat), {}, {.num_experts_per_tok = 2});
  REQUIRE(out.gates_TK.scalar_type() == at::kFloat);
  REQUIRE(at::equal(out.gates_TK, wide.gates_TK));
  REQUIRE(at::equal(out.ids_TK, wide.ids_TK));
}

TEST_CASE("router: ties go to the lower index", "[router]") {
  const auto form = GENERATE(from_range(all_forms(3)));
  const auto out = route_logits(tensor({{1, 2, 2, 1, 2, 2}, {0, 0, 0, 0, 0, 0}}), form);
  REQUIRE(at::equal(out.ids_TK, tensor({{1, 2, 4}, {0, 1, 2}}, at::kInt)));
  REQUIRE(out.counts_E.sum().item<int>() == 6);
}

TEST_CASE("router: experts of equal rows are taken in whole groups, those of equal groups in order", "[router]") {
  const int64_t groups = 16, split = GENERATE(2, 4, 11), top_groups = 3;
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const auto rows = test::randn({groups, 36}, 1).repeat_interleave(split, 0).to(dtype);
  auto x = test::randn({500, 36}, 2).to(dtype);
  x[7].zero_();
  const auto out = ops::router(x, rows, {}, {.num_experts_per_tok = top_groups * split});
  const auto ids = out.ids_TK.view({-1, top_groups, split});
  const auto group = at::floor_divide(ids, split);
  REQUIRE(at::equal(group, group.select(2, 0).unsqueeze(2).expand_as(group)));
  REQUIRE(at::equal(std::get<0>((ids % split).sort(2)), at::arange(split, ids.options()).expand_as(ids)));
  REQUIRE(at::equal(ids[7].flatten(), at::arange(top_groups * split, ids.options())));
  REQUIRE(at::allclose(out.gates_TK.view_as(ids).sum(2), split * out.gates_TK.view_as(ids).select(2, 0)));
}

TEST_CASE("router: huge logits give finite gates and exact limits", "[router]") {
  const auto out = route_logits(tensor({{3e4, -3e4, 0}, {1e-30, 3e4, 3e4}}), {.num_experts_per_tok = 2});
  REQUIRE(at::equal(out.gates_TK, tensor({{1, 0}, {0.5, 0.5}})));
  REQUIRE(at::equal(out.ids_TK, tensor({{0, 2}, {1, 2}}, at::kInt)));
}

TEST_CASE("router: NaN ranks above infinity, in the op and in its twin", "[router]") {
  struct Case {
    std::vector<double> logits;
    std::vector<int> ids;
  };
  const auto c = GENERATE(values<Case>({{{1, NAN, 3, 2}, {1, 2, 3, 0}},
                                        {{INFINITY, NAN, INFINITY, -INFINITY}, {1, 0, 2, 3}},
                                        {{-INFINITY, 0, NAN, NAN}, {2, 3, 1, 0}},
                                        {{NAN, NAN, NAN, NAN}, {0, 1, 2, 3}},
                                        {{-INFINITY, -INFINITY, -1e30, -INFINITY}, {2, 0, 1, 3}}}));
  const auto form = GENERATE(from_range(all_forms(4)));
  const auto dtype = GENERATE(at::kFloat, at::kDouble);
  const auto one = at::ones({1, 1}, dtype), weight = at::tensor(c.logits, dtype).unsqueeze(1);
  const auto out = ops::router(one, weight, {}, form), twin = plain_router(one, weight, {}, form);
  for (const auto* ids : {&out.ids_TK, &twin.ids_TK}) REQUIRE(at::equal(ids->flatten(), at::tensor(c.ids, at::kInt)));
  REQUIRE(at::allclose(out.gates_TK, twin.gates_TK, 1e-5, 1e-8, /*equal_nan=*/true));
}

TEST_CASE("router: the bias moves the selection, never the gates of the chosen", "[router]") {
  const auto form = GENERATE(from_range(all_forms(1)));
  const auto logits = tensor({{2, 1, 0}, {1, 2, 0}}, at::kDouble);
  const auto bias = at::tensor({0.0, 0.0, 10.0}, at::kDouble);
  const auto out = route_logits(logits, form, bias);
  REQUIRE(at::equal(out.ids_TK, tensor({{2}, {2}}, at::kInt)));
  REQUIRE(at::equal(out.counts_E, at::tensor({0, 0, 2}, at::kInt)));
  const auto alone = reference::router(logits, at::eye(3, at::kDouble), bias, form);
  REQUIRE(test::max_abs(out.gates_TK - alone.gates) < 1e-15);
  REQUIRE(test::max_abs(out.prob_sum_E - route_logits(logits, form).prob_sum_E) == 0);
}

TEST_CASE("router: auxiliary loss is 1 at balance, E/K at worst", "[router]") {
  const int64_t experts = 4, tokens = 8;
  const auto loss_of = [&](const at::Tensor& logits) {
    const auto out = route_logits(logits, {.num_experts_per_tok = 1});
    return ops::load_balance_loss(out.prob_sum_E, experts * out.counts_E / static_cast<double>(tokens), tokens).item<double>();
  };
  const auto balanced = 100 * at::eye(experts, at::kDouble).repeat({2, 1});
  REQUIRE(std::abs(loss_of(balanced) - 1) < 1e-12);
  auto worst = at::zeros({tokens, experts}, at::kDouble);
  worst.select(1, 2).fill_(100);
  REQUIRE(std::abs(loss_of(worst) - 4) < 1e-12);
}

TEST_CASE("router: gradients of the losses are the published formulas", "[router]") {
  const int64_t tokens = 6, experts = 5;
  const auto logits = test::randn({tokens, experts}, 1).requires_grad_();
  const auto out = route_logits(logits, {.num_experts_per_tok = 2});
  const auto fraction = out.counts_E.to(at::kDouble) / static_cast<double>(tokens * 2);
  const auto probs = at::softmax(logits.detach(), 1);

  const auto aux =
      torch::autograd::grad({ops::load_balance_loss(out.prob_sum_E, experts * fraction, tokens)}, {logits}, {}, true)[0];
  const auto aux_formula = (static_cast<double>(experts) / tokens) * probs * (fraction - (probs * fraction).sum(1, true));
  REQUIRE(test::max_abs(aux - aux_formula) < 1e-13);

  const auto z = torch::autograd::grad({out.lse_sq_sum / static_cast<double>(tokens)}, {logits})[0];
  REQUIRE(test::max_abs(z - 2.0 / tokens * at::logsumexp(logits.detach(), 1, true) * probs) < 1e-13);
}

TEST_CASE("router: same bits for any number of threads", "[router]") {
  const auto x = test::randn({777, 8}, 1).to(at::kFloat), weight = test::randn({16, 8}, 2).to(at::kFloat);
  const auto op = [](const Tensors& in) { return join(ops::router(in[0], in[1], {}, {.num_experts_per_tok = 4})); };
  test::require_thread_independent(op, {x, weight});
}

TEST_CASE("router: no tokens", "[router]") {
  const auto out = route_logits(at::empty({0, 4}), {.num_experts_per_tok = 2});
  REQUIRE(out.ids_TK.sizes() == at::IntArrayRef({0, 2}));
  REQUIRE(at::equal(out.counts_E, at::zeros({4}, at::kInt)));
  REQUIRE(out.lse_sq_sum.item<float>() == 0);
}

TEST_CASE("router: errors", "[router]") {
  const auto x = at::ones({3, 4}), weight = at::ones({5, 4});
  REQUIRE_THROWS_WITH(ops::router(x, at::ones({5, 6}), {}, {}),
                      ContainsSubstring("[router] x and weight must be [T, D] and [E, D], got [3, 4] and [5, 6]"));
  REQUIRE_THROWS_WITH(ops::router(x, weight, {}, {.num_experts_per_tok = 6}),
                      ContainsSubstring("num_experts_per_tok must be in 1..E=5, got 6"));
  REQUIRE_THROWS_WITH(ops::router(x, weight, at::ones({4}), {}), ContainsSubstring("bias must be [E=5], got [4]"));
  REQUIRE_THROWS_WITH(ops::router(x, weight, {}, {.score = RouterScore::kSigmoid, .topk_before_softmax = true}),
                      ContainsSubstring("needs softmax"));
  REQUIRE_THROWS_WITH(ops::load_balance_loss(at::ones({4}), at::ones({3}), 1),
                      ContainsSubstring("[load_balance_loss] load must be [4] as prob_sum, got [3]"));
}

TEST_CASE("router: on a GPU", "[router][.gpu]") {
  const auto form = GENERATE(from_range(all_forms(4)));
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  test::require_low_precision([&](const Tensors& x) { return join(ops::router(x[0], x[1], {}, form)); },
                              [&](const Tensors& x) {
                                if (x[0].scalar_type() == at::kDouble) return join(reference::router(x[0], x[1], {}, form));
                                return join(plain_router(x[0].cpu(), x[1].cpu(), {}, form)).to(x[0].device());
                              },
                              {test::randn({65, 64}, 1), test::randn({16, 64}, 2)},
                              {.dtype = dtype, .device = at::kCUDA, .ulps = 4});
}

}  // namespace scatterlm

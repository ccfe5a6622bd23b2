#include "lib/bench/inputs.h"

#include <ATen/ATen.h>

#include "lib/ops/rope.h"
#include "lib/util/error.h"

namespace scatterlm::bench {

namespace {
constexpr const char* kPatternNames[] = {"random", "balanced", "skewed", "collapsed", "one"};  // in the order of RoutingPattern

at::TensorOptions options_on(at::Device device) {
  return at::TensorOptions(device).dtype(device.is_cuda() ? at::kBFloat16 : at::kFloat);
}

/// ids and gates of logits that it draws.
std::pair<at::Tensor, at::Tensor> draw_choice(RoutingPattern pattern, int64_t tokens, int64_t experts, int64_t top_k,
                                              at::Device device) {
  const auto logits_TE = at::randn({tokens, experts}, at::TensorOptions(device).dtype(at::kFloat));
  const auto choice = choose_experts(pattern, logits_TE, top_k);
  return {choice.ids_TK.contiguous(), choice.gates_TK.contiguous()};
}

}  // namespace

const char* routing_name(RoutingPattern pattern) { return kPatternNames[static_cast<int>(pattern)]; }

RoutingPattern parse_routing(const std::string& name) {
  const auto* found = std::find(std::begin(kPatternNames), std::end(kPatternNames), name);
  if (found == std::end(kPatternNames))
    fail_user("--routing: got '{}', must be random, balanced, skewed, collapsed or one", name);
  return static_cast<RoutingPattern>(found - kPatternNames);
}

Choice choose_experts(RoutingPattern pattern, const at::Tensor& logits_TE, int64_t top_k) {
  const int64_t tokens = logits_TE.size(0), experts = logits_TE.size(1);
  const auto int32 = logits_TE.options().dtype(at::kInt);
  if (pattern == RoutingPattern::kBalanced || pattern == RoutingPattern::kOne) {
    const auto ids_TK = pattern == RoutingPattern::kOne
                            ? at::zeros({tokens, top_k}, int32)
                            : at::arange(tokens * top_k, int32).remainder(experts).view({tokens, top_k});
    return {ids_TK, at::softmax(logits_TE.slice(1, 0, top_k), 1)};
  }
  auto logits = logits_TE;
  const auto number_E = at::arange(experts, logits.options());
  if (pattern == RoutingPattern::kSkewed) logits = logits - at::log1p(number_E);
  if (pattern == RoutingPattern::kCollapsed) logits = logits - number_E / 2;
  const auto [chosen, ids] = at::topk(logits, top_k, 1);
  return {ids.to(at::kInt), at::softmax(chosen, 1)};
}

MoeInputs make_inputs(const MoeShape& shape, RoutingPattern pattern, at::Device device) {
  const int64_t tokens = shape.tokens, model = shape.model, width = shape.width, experts = shape.experts;
  const auto options = options_on(device);
  at::manual_seed(0);
  MoeInputs in{.shape = shape};
  in.x_TD = at::randn({tokens, model}, options).mul_(0.2);
  in.w1 = at::randn({experts, 2 * width, model}, options).mul_(0.02);
  in.w2 = at::randn({experts, model, width}, options).mul_(0.02);
  std::tie(in.ids_TK, in.gates_TK) = draw_choice(pattern, tokens, experts, shape.top_k, device);
  in.dout_TD = at::randn({tokens, model}, options).mul_(0.2);
  return in;
}

MoaInputs make_inputs(const MoaShape& shape, RoutingPattern pattern, at::Device device) {
  const int64_t tokens = shape.tokens(), model = shape.model, width = shape.width(), experts = shape.experts;
  const std::vector<int64_t> keys = {shape.batch, shape.sequence, shape.heads, MoaShape::kHeadWidth};
  const auto options = options_on(device);
  at::manual_seed(0);
  MoaInputs in{.shape = shape};
  in.x_TD = at::randn({tokens, model}, options).mul_(0.2);
  in.wq = at::randn({experts, width, model}, options).mul_(0.02);
  in.wo = at::randn({experts, model, width}, options).mul_(0.02);
  std::tie(in.ids_TK, in.gates_TK) = draw_choice(pattern, tokens, experts, shape.top_k, device);
  in.k = at::randn(keys, options);
  in.v = at::randn(keys, options);
  in.dout_TD = at::randn({tokens, model}, options);
  std::tie(in.cos, in.sin) = ops::rope_tables(shape.sequence, MoaShape::kHeadWidth, /*theta=*/10000, device);
  return in;
}

}  // namespace scatterlm::bench

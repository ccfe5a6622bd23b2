#include "lib/nn/router.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/ops/normal.h"
#include "lib/ops/router_scores.h"
#include "lib/ops/token_rounding.h"

namespace scatterlm::nn {
namespace {

/// [2]: pairs dropped, pairs filled.
at::Tensor changes(const at::Tensor& counts_E, const ops::Routing& rounded) {
  const auto more_E = rounded.offsets_E1.diff() - counts_E;
  return at::stack({more_E.clamp_max(0).sum().neg(), more_E.clamp_min(0).sum()}).to(at::kDouble);
}

}  // namespace

double gate_scale_at_init(ops::RouterOptions options, int64_t num_experts, double logit_std) {
  options.routed_scaling_factor = 1;
  const int64_t tokens = std::clamp<int64_t>((1 << 20) / num_experts, 256, 4096);
  const auto logits_TE = at::empty({tokens, num_experts}, at::kFloat);
  ops::fill_normal(logits_TE.view(-1), ops::stream_of(0, "gate_scale_at_init"), 0, static_cast<float>(logit_std));
  const auto gates_TK = ops::router_scores(logits_TE, std::nullopt, options).gates_TK;
  const double squares = gates_TK.to(at::kDouble).square().sum().item<double>() / static_cast<double>(tokens);
  return std::stod(fmt::format("{:.4g}", std::sqrt(static_cast<double>(options.num_experts_per_tok) / squares)));
}

Router::Router(const RouterConfig& config, std::string name, int64_t num_experts, int64_t top_k, int64_t hidden, double std,
               ParameterUnit& unit, at::Device device)
    : config(config), name(std::move(name)), num_experts(num_experts) {
  options = {.num_experts_per_tok = top_k,
             .score = config.score,
             .topk_before_softmax = config.topk_before_softmax,
             .norm_topk_prob = config.norm_topk_prob};
  options.routed_scaling_factor = config.routed_scaling_factor.value_or(0);
  if (!config.routed_scaling_factor)
    options.routed_scaling_factor = gate_scale_at_init(options, num_experts, std * std::sqrt(static_cast<double>(hidden)));
  weight = unit.param(this->name + ".weight", {num_experts, hidden}, Init::normal(std), Decay::kYes, {}, LrGroup::kRouter);
  if (config.balance == Balance::kBias) bias = at::zeros({num_experts}, at::TensorOptions().dtype(at::kFloat).device(device));
}

Router::Output Router::forward(const at::Tensor& x_TD, Context& context) {
  const auto selection_bias = bias.defined() ? std::optional(bias) : std::nullopt;
  auto out = ops::router(x_TD, weight, selection_bias, options);
  std::optional<ops::RoundedRouting> rounding;
  if (context.router_choices) {
    if (config.rounding == Rounding::kNearest) rounding = ops::token_rounding(out, options);
    context.router_choices->push_back({.counts_E = out.counts_E,
                                       .prob_sum_E = out.prob_sum_E,
                                       .lse_sq_sum = out.lse_sq_sum,
                                       .rounded = rounding ? changes(out.counts_E, rounding->routing) : at::Tensor()});
  }
  if (rounding) return {rounding->gates_R, rounding->routing, out.x_TD};
  return {out.gates_TK, out.routing ? *out.routing : ops::make_routing(out.ids_TK, num_experts), out.x_TD};
}

double router_saved_bytes(int64_t num_experts, int64_t top_k) { return 4.0 * static_cast<double>(num_experts + 5 * top_k); }

void Router::update_bias(const at::Tensor& counts_E, const at::Tensor& apply) {
  if (bias.defined()) bias += config.bias_update_rate * apply * at::sign(counts_E.mean() - counts_E).to(at::kFloat);
}

}  // namespace scatterlm::nn

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
  weight = unit.param(this->name + ".weight", {num_experts, hidden}, Init::normal(std), Decay::kYes);
  if (config.balance == Balance::kBias) bias = at::zeros({num_experts}, at::TensorOptions().dtype(at::kFloat).device(device));
}

Router::Output Router::forward(const at::Tensor& x_TD, Context& context) {
  const auto selection_bias = bias.defined() ? std::optional(bias) : std::nullopt;
  auto out = ops::router(x_TD, weight, selection_bias, options);
  std::optional<ops::RoundedRouting> rounding;
  if (auto* step = context.router_step) {
    if (rounded.defined()) rounding = ops::token_rounding(out, options);
    step->choices.push_back({out, rounding ? changes(out.counts_E, rounding->routing) : at::Tensor()});
  }
  if (rounding) return {rounding->gates_R, rounding->routing};
  return {out.gates_TK, ops::make_routing(out.ids_TK, num_experts)};
}

void Router::update_bias(const at::Tensor& apply) {
  if (bias.defined()) bias += config.bias_update_rate * apply * at::sign(counts.mean() - counts).to(at::kFloat);
}

at::Tensor Router::step_losses(double tokens) const {
  const auto aux =
      num_experts * at::dot(counts, prob_sum) / (tokens * tokens * static_cast<double>(options.num_experts_per_tok));
  return at::stack({aux, lse_sq_sum / tokens});
}

RouterStatistics::RouterStatistics(const std::vector<Router*>& routers, at::Device device) {
  int64_t experts = 0, size = 0;
  std::vector<at::Tensor> per_pick;
  const auto fp64 = at::TensorOptions().dtype(at::kDouble);
  for (const auto* router : routers) {
    const auto picks = static_cast<double>(router->options.num_experts_per_tok);
    per_pick.push_back(at::full({router->num_experts}, static_cast<double>(router->num_experts) / picks, fp64));
    experts += router->num_experts;
    size += 2 * router->num_experts + 1 + (router->config.rounding == Rounding::kNearest ? 2 : 0);
  }
  if (!routers.empty()) experts_per_pick_ = at::cat(per_pick).to(device);
  totals_ = at::zeros({size}, fp64.device(device));
  int64_t count = 0, square = 2 * experts, change = square + static_cast<int64_t>(routers.size());
  for (auto* router : routers) {
    router->counts = totals_.narrow(0, count, router->num_experts);
    router->prob_sum = totals_.narrow(0, experts + count, router->num_experts);
    router->lse_sq_sum = totals_[square++];
    if (router->config.rounding == Rounding::kNearest) {
      router->rounded = totals_.narrow(0, change, 2);
      change += 2;
    }
    count += router->num_experts;
  }
}

void RouterStatistics::add(RouterStep& step, const RouterConfig& config) {
  if (step.choices.empty()) return;
  std::vector<at::Tensor> counts, prob_sums, squares, rounded;
  for (const auto& choice : step.choices) {
    counts.push_back(choice.output.counts_E);
    prob_sums.push_back(choice.output.prob_sum_E);
    squares.push_back(choice.output.lse_sq_sum.view({1}));
    if (choice.rounded.defined()) rounded.push_back(choice.rounded);
  }
  const auto num_routers = static_cast<double>(step.choices.size());
  step.choices.clear();
  const auto prob_sum = at::cat(prob_sums), lse_sq_sum = at::cat(squares);
  std::vector<at::Tensor> parts{at::cat(counts).to(at::kDouble), prob_sum.detach().to(at::kDouble),
                                lse_sq_sum.detach().to(at::kDouble)};
  parts.insert(parts.end(), rounded.begin(), rounded.end());
  auto sums = at::cat(parts);
  step.comm.all_reduce(sums);
  totals_ += sums;

  const auto add = [&](const at::Tensor& term) { step.loss = step.loss.defined() ? step.loss + term : term; };
  if (config.balance == Balance::kAux && config.aux_loss_coef > 0) {
    const auto load = totals_.narrow(0, 0, prob_sum.size(0)) * experts_per_pick_ / step.tokens_so_far;
    add(config.aux_loss_coef / num_routers *
        ops::load_balance_loss(prob_sum, load.to(prob_sum.scalar_type()), step.tokens_of_step));
  }
  if (config.z_loss_coef > 0) add(config.z_loss_coef / num_routers / step.tokens_of_step * lse_sq_sum.sum());
}

}  // namespace scatterlm::nn

#include "lib/nn/router.h"

#include "lib/ops/token_rounding.h"

namespace scatterlm::nn {
namespace {

/// [2]: pairs dropped, pairs filled.
at::Tensor changes(const at::Tensor& counts_E, const ops::Routing& rounded) {
  const auto more_E = rounded.offsets_E1.diff() - counts_E;
  return at::stack({more_E.clamp_max(0).sum().neg(), more_E.clamp_min(0).sum()}).to(at::kDouble);
}

}  // namespace

Router::Router(const RouterConfig& config, std::string name, int64_t num_experts, int64_t top_k, int64_t hidden, double std,
               Unit& unit, at::Device device)
    : config(config), name(std::move(name)), num_experts(num_experts) {
  options = {.num_experts_per_tok = top_k,
             .score = config.score,
             .topk_before_softmax = config.topk_before_softmax,
             .norm_topk_prob = config.norm_topk_prob,
             .routed_scaling_factor = config.routed_scaling_factor};
  weight = unit.param(this->name + ".weight", {num_experts, hidden}, Init::normal(std), Decay::kYes);
  const auto state = at::TensorOptions().dtype(at::kDouble).device(device);
  counts = at::zeros({num_experts}, state);
  prob_sum = at::zeros({num_experts}, state);
  lse_sq_sum = at::zeros({}, state);
  if (config.rounding == Rounding::kNearest) rounded = at::zeros({2}, state);
  if (config.balance == Balance::kBias) bias = at::zeros({num_experts}, state.dtype(at::kFloat));
}

Router::Output Router::forward(const at::Tensor& x_TD, Context& context) {
  const auto selection_bias = bias.defined() ? std::optional(bias) : std::nullopt;
  auto out = ops::router(x_TD, weight, selection_bias, options);
  std::optional<ops::RoundedRouting> rounding;
  if (context.router_step && rounded.defined()) rounding = ops::token_rounding(out, options);
  if (auto* step = context.router_step) {
    const double tokens = step->tokens_so_far, top_k = static_cast<double>(options.num_experts_per_tok);
    std::vector<at::Tensor> parts{out.counts_E.to(at::kDouble), out.prob_sum_E.detach().to(at::kDouble),
                                  out.lse_sq_sum.detach().to(at::kDouble).view({1})};
    if (rounding) parts.push_back(changes(out.counts_E, rounding->routing));
    auto statistics = at::cat(parts);
    step->comm.all_reduce(statistics);
    counts += statistics.narrow(0, 0, num_experts);
    prob_sum += statistics.narrow(0, num_experts, num_experts);
    lse_sq_sum += statistics[2 * num_experts];
    if (rounding) rounded += statistics.narrow(0, 2 * num_experts + 1, 2);

    auto add = [&](const at::Tensor& term) { step->loss = step->loss.defined() ? step->loss + term : term; };
    if (config.balance == Balance::kAux && config.aux_loss_coef > 0) {
      const auto fraction = (counts / (tokens * top_k)).to(out.prob_sum_E.scalar_type());
      add(config.aux_loss_coef * ops::load_balance_loss(out.prob_sum_E, fraction, step->tokens_of_step));
    }
    if (config.z_loss_coef > 0) add(config.z_loss_coef / step->tokens_of_step * out.lse_sq_sum);
  }
  if (rounding) return {rounding->gates_R, rounding->routing};
  return {out.gates_TK, ops::make_routing(out.ids_TK, num_experts)};
}

void Router::begin_step() {
  counts.zero_();
  prob_sum.zero_();
  lse_sq_sum.zero_();
  if (rounded.defined()) rounded.zero_();
}

void Router::update_bias(const at::Tensor& apply) {
  if (bias.defined()) bias += config.bias_update_rate * apply * at::sign(counts.mean() - counts).to(at::kFloat);
}

at::Tensor Router::step_losses(double tokens) const {
  const auto aux =
      num_experts * at::dot(counts, prob_sum) / (tokens * tokens * static_cast<double>(options.num_experts_per_tok));
  return at::stack({aux, lse_sq_sum / tokens});
}

}  // namespace scatterlm::nn

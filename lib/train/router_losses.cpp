#include "lib/train/router_losses.h"

#include <ATen/ATen.h>

namespace scatterlm {

at::Tensor RouterSums::losses(double tokens) const {
  const auto picks = static_cast<double>(router->options.num_experts_per_tok);
  const auto aux = router->num_experts * at::dot(counts, prob_sum) / (tokens * tokens * picks);
  return at::stack({aux, lse_sq_sum / tokens});
}

RouterLosses::RouterLosses(const nn::Model& model) : config_(model.config().router) {
  int64_t experts = 0, size = 0;
  std::vector<at::Tensor> per_pick;
  const auto fp64 = at::TensorOptions().dtype(at::kDouble);
  for (const auto* router : model.routers()) {
    const auto picks = static_cast<double>(router->options.num_experts_per_tok);
    per_pick.push_back(at::full({router->num_experts}, static_cast<double>(router->num_experts) / picks, fp64));
    experts += router->num_experts;
    size += 2 * router->num_experts + 1 + (router->config.rounding == Rounding::kNearest ? 2 : 0);
  }
  if (!per_pick.empty()) experts_per_pick_ = at::cat(per_pick).to(model.device());
  totals_ = at::zeros({size}, fp64.device(model.device()));
  int64_t count = 0, square = 2 * experts, change = square + static_cast<int64_t>(model.routers().size());
  for (auto* router : model.routers()) {
    auto& sums = routers_.emplace_back(RouterSums{.router = router});
    sums.counts = totals_.narrow(0, count, router->num_experts);
    sums.prob_sum = totals_.narrow(0, experts + count, router->num_experts);
    sums.lse_sq_sum = totals_[square++];
    if (router->config.rounding == Rounding::kNearest) {
      sums.rounded = totals_.narrow(0, change, 2);
      change += 2;
    }
    count += router->num_experts;
  }
}

at::Tensor RouterLosses::add(std::vector<nn::RouterChoice> choices, double tokens_so_far, double tokens_of_step, Comm& comm) {
  if (choices.empty()) return {};
  std::vector<at::Tensor> counts, prob_sums, squares, rounded;
  for (const auto& choice : choices) {
    counts.push_back(choice.counts_E);
    prob_sums.push_back(choice.prob_sum_E);
    squares.push_back(choice.lse_sq_sum.view({1}));
    if (choice.rounded.defined()) rounded.push_back(choice.rounded);
  }
  const auto num_routers = static_cast<double>(choices.size());
  const auto prob_sum = at::cat(prob_sums), lse_sq_sum = at::cat(squares);
  std::vector<at::Tensor> parts{at::cat(counts).to(at::kDouble), prob_sum.detach().to(at::kDouble),
                                lse_sq_sum.detach().to(at::kDouble)};
  parts.insert(parts.end(), rounded.begin(), rounded.end());
  auto sums = at::cat(parts);
  comm.all_reduce(sums);
  totals_ += sums;

  at::Tensor loss;
  const auto add_term = [&](const at::Tensor& term) { loss = loss.defined() ? loss + term : term; };
  if (config_.balance == Balance::kAux && config_.aux_loss_coef > 0) {
    const auto load = totals_.narrow(0, 0, prob_sum.size(0)) * experts_per_pick_ / tokens_so_far;
    add_term(config_.aux_loss_coef / num_routers *
             ops::load_balance_loss(prob_sum, load.to(prob_sum.scalar_type()), tokens_of_step));
  }
  if (config_.z_loss_coef > 0) add_term(config_.z_loss_coef / num_routers / tokens_of_step * lse_sq_sum.sum());
  return loss;
}

void RouterLosses::update_biases(const at::Tensor& apply) {
  for (auto& sums : routers_) sums.router->update_bias(sums.counts, apply);
}

}  // namespace scatterlm

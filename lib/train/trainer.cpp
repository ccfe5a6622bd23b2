#include "lib/train/trainer.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <utility>

#include "lib/ops/token_rounding.h"
#include "lib/optim/lr_schedule.h"

namespace scatterlm {
namespace {

/// One row of statistics per router: max/mean load, dead experts, entropy of the mean probabilities, shares that rounding
/// dropped and filled, auxiliary loss, z-loss, then the load of every expert relative to the mean.
at::Tensor router_row(const RouterSums& router, double tokens) {
  const auto& counts = router.counts;
  const auto mean_prob = router.prob_sum / tokens;
  const auto entropy = -at::xlogy(mean_prob, mean_prob).sum();
  const auto rounded = router.rounded.defined() ? router.rounded / counts.sum() : at::zeros({2}, counts.options());
  return at::cat({at::stack({counts.max() / counts.mean(), (counts == 0).sum().to(at::kDouble), entropy}), rounded,
                  router.losses(tokens), counts / counts.mean()});
}

/// max/mean load where one expert takes every token.
double load_limit(const nn::Router& router) {
  return static_cast<double>(router.num_experts) / static_cast<double>(router.options.num_experts_per_tok);
}

}  // namespace

std::optional<std::string> rounding_warning(const ModelConfig& config, int64_t tokens_per_pass) {
  if (config.router.rounding == Rounding::kNone) return std::nullopt;
  const auto& moe = config.moe;
  const double rows = static_cast<double>(tokens_per_pass * moe.num_experts_per_tok) / static_cast<double>(moe.num_experts);
  if (rows >= 2 * ops::kRoundingTile) return std::nullopt;
  return fmt::format(
      "model.router.rounding: nearest with {:.0f} rows per expert and micro-batch learns worse than plain top-k, from {} on it does "
      "not; raise train.micro_batch_size or lower model.moe.num_experts",
      rows, 2 * ops::kRoundingTile);
}

Trainer::Trainer(TrainingState& state)
    : state_(state),
      config_(state.config),
      comm_(state.comm),
      model_(state.model),
      loader_(state.loader),
      gradients_(state.gradients),
      router_losses_(model_),
      plan_(config_.train, comm_.world()) {}

void Trainer::step(const std::function<void()>& before_update) {
  comm_.set_step(state_.steps + 1);
  const auto ce_sum = accumulate_gradients();
  const auto& optim = config_.optim;
  loss_ = ce_sum / static_cast<double>(config_.train.global_batch_tokens);
  grad_norm_ = gradients_.norm();
  const auto finite = (at::isfinite(loss_) & at::isfinite(grad_norm_)).to(at::kFloat);
  const auto scale = optim.clip_grad_norm > 0 ? at::clamp_min(grad_norm_ / optim.clip_grad_norm, 1) : at::ones_like(grad_norm_);

  if (before_update) before_update();
  state_.steps++;
  const double lr = learning_rate(optim, state_.steps, state_.total_steps());
  state_.optimizer->step(gradients_.reduced(), lr, scale, 1 - finite);
  router_losses_.update_biases(finite);
  state_.skipped.count(finite);
}

Batch Trainer::next_batch() {
  const StorageScope storage(comm_);
  return loader_.next(plan_.micro_batch).to(model_.device());
}

at::Tensor Trainer::accumulate_gradients() {
  const auto& train = config_.train;
  const int64_t sequences = plan_.sequences, micro = plan_.micro_batch;
  gradients_.begin_step();
  router_losses_.begin_step();

  const auto total = static_cast<double>(train.global_batch_tokens);
  auto ce_sum = at::zeros({1}, at::TensorOptions().dtype(at::kDouble).device(model_.device()));
  for (int64_t done = 0; done < sequences; done += micro) {
    const auto batch = next_batch();
    std::vector<nn::RouterChoice> choices;
    nn::Context context{.router_choices = &choices, .recompute = train.recompute};
    const auto ce = model_.cross_entropy_sum(batch, context);
    const auto so_far = static_cast<double>((done + micro) * train.sequence_length);
    const auto router_loss = router_losses_.add(std::move(choices), so_far, total, comm_);
    const auto objective = router_loss.defined() ? ce / total + router_loss : ce / total;
    gradients_.begin_micro_batch(done + micro == sequences);
    torch::autograd::backward({objective}, {});
    gradients_.end_micro_batch();
    ce_sum += ce.detach();
  }
  comm_.all_reduce(ce_sum);
  return ce_sum;
}

StepReport Trainer::report() {
  const auto tokens = static_cast<double>(config_.train.global_batch_tokens);
  std::vector<at::Tensor> rows{loss_, grad_norm_.to(at::kDouble), state_.skipped.values()};
  for (const auto& router : router_losses_.routers()) rows.push_back(router_row(router, tokens));
  const auto read = at::cat(rows).cpu();  // the one wait for the device
  const double* values = read.const_data_ptr<double>();
  const auto take = [&](int64_t count) { return std::exchange(values, values + count); };
  const auto next = [&] { return *take(1); };

  StepReport report;
  report.step = state_.steps;
  report.total_steps = state_.total_steps();
  report.tokens = state_.tokens();
  report.lr = learning_rate(config_.optim, state_.steps, state_.total_steps());
  report.loss = next();
  report.grad_norm = next();
  const auto skipped = SkippedSteps::counts_of(take(SkippedSteps::kSize));
  report.nonfinite_steps = skipped.total;
  report.nonfinite_row = skipped.longest_row;
  state_.skipped.begin_report();
  for (const auto* router : model_.routers()) {
    const int64_t experts = router->num_experts;
    RouterReport row{.name = router->name.substr(0, router->name.rfind(".router")),
                     .load_max_mean = next(),
                     .load_limit = load_limit(*router),
                     .num_experts = experts,
                     .dead_experts = static_cast<int64_t>(next()),
                     .entropy = next(),
                     .drop = next(),
                     .fill = next(),
                     .aux_loss = next(),
                     .z_loss = next()};
    const double* loads = take(experts);
    row.loads.assign(loads, loads + experts);
    report.load_max_mean = std::max(report.load_max_mean, row.load_max_mean);
    report.aux_loss += row.aux_loss / static_cast<double>(model_.routers().size());
    report.z_loss += row.z_loss / static_cast<double>(model_.routers().size());
    report.routers.push_back(std::move(row));
  }
  return report;
}

}  // namespace scatterlm

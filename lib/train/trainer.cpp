#include "lib/train/trainer.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <nlohmann/json.hpp>

#include "lib/config/load.h"
#include "lib/ops/token_rounding.h"
#include "lib/optim/lr_schedule.h"
#include "lib/util/error.h"

namespace scatterlm {
namespace {

/// One row of statistics per router: max/mean load, dead experts, entropy of the mean probabilities, shares that rounding
/// dropped and filled, auxiliary loss, z-loss.
constexpr int64_t kRouterColumns = 7;
at::Tensor router_row(const nn::Router& router, double tokens) {
  const auto& counts = router.counts;
  const auto mean_prob = router.prob_sum / tokens;
  const auto entropy = -at::xlogy(mean_prob, mean_prob).sum();
  const auto rounded = router.rounded.defined() ? router.rounded / counts.sum() : at::zeros({2}, counts.options());
  return at::cat({at::stack({counts.max() / counts.mean(), (counts == 0).sum().to(at::kDouble), entropy}), rounded,
                  router.step_losses(tokens)});
}

/// max/mean load where one expert takes every token.
double load_limit(const nn::Router& router) {
  return static_cast<double>(router.num_experts) / static_cast<double>(router.options.num_experts_per_tok);
}

}  // namespace

int64_t sequences_per_pass(const TrainConfig& config, int64_t world) {
  const int64_t sequences = config.global_batch_tokens / config.sequence_length;
  if (sequences % world != 0) {
    fail_user("train.global_batch_tokens {} is {} sequences, which {} ranks cannot share equally; give a multiple of {}",
              config.global_batch_tokens, sequences, world, world * config.sequence_length);
  }
  const int64_t micro = config.micro_batch_size > 0 ? config.micro_batch_size : sequences / world;
  if (sequences / world % micro != 0) {
    fail_user("train.micro_batch_size {} does not divide the {} sequences that each of {} ranks has in a step; give a divisor",
              micro, sequences / world, world);
  }
  return micro;
}

std::optional<std::string> rounding_warning(const Config& config, int64_t world) {
  if (config.model.router.rounding == Rounding::kNone) return std::nullopt;
  const auto& moe = config.model.moe;
  const int64_t tokens = sequences_per_pass(config.train, world) * config.train.sequence_length;
  const double rows = static_cast<double>(tokens * moe.num_experts_per_tok) / static_cast<double>(moe.num_experts);
  if (rows >= 2 * ops::kRoundingTile) return std::nullopt;
  return fmt::format(
      "model.router.rounding: nearest with {:.0f} rows per expert and micro-batch learns worse than plain top-k, from {} on it does "
      "not; raise train.micro_batch_size or lower model.moe.num_experts",
      rows, 2 * ops::kRoundingTile);
}

Trainer::Trainer(const Config& config, Comm& comm, nn::Model& model, Optimizer& optimizer, Loader& loader)
    : config_(config),
      comm_(comm),
      model_(model),
      optimizer_(optimizer),
      loader_(loader),
      gradients_(config.parallel, model.units(), comm),
      total_steps_(scatterlm::total_steps(config.train)),
      nonfinite_(at::zeros({3}, at::TensorOptions().dtype(at::kDouble).device(model.device()))) {}

void Trainer::step(const std::function<void()>& before_update) {
  comm_.set_step(steps_ + 1);
  const auto ce_sum = accumulate_gradients();
  const auto& optim = config_.optim;
  loss_ = ce_sum / static_cast<double>(config_.train.global_batch_tokens);
  grad_norm_ = gradients_.norm();
  const auto finite = (at::isfinite(loss_) & at::isfinite(grad_norm_)).to(at::kFloat);
  const auto scale = optim.clip_grad_norm > 0 ? at::clamp_min(grad_norm_ / optim.clip_grad_norm, 1) : at::ones_like(grad_norm_);

  if (before_update) before_update();
  steps_++;
  optimizer_.step(gradients_.reduced(), learning_rate(optim, steps_, total_steps_), scale, 1 - finite);
  for (auto* router : model_.routers()) router->update_bias(finite);

  const auto skipped = (1 - finite).to(at::kDouble);
  const auto in_row = (nonfinite_.narrow(0, 1, 1) + 1) * skipped;
  nonfinite_ = at::cat({nonfinite_.narrow(0, 0, 1) + skipped, in_row, at::maximum(in_row, nonfinite_.narrow(0, 2, 1))});
}

at::Tensor Trainer::accumulate_gradients() {
  const auto& train = config_.train;
  const int64_t sequences = train.global_batch_tokens / train.sequence_length;
  const int64_t micro = sequences_per_pass(train, comm_.world()) * comm_.world();
  gradients_.begin_step();
  model_.begin_step();

  const auto total = static_cast<double>(train.global_batch_tokens);
  auto ce_sum = at::zeros({1}, nonfinite_.options());
  for (int64_t done = 0; done < sequences; done += micro) {
    const auto batch = loader_.next(micro).to(model_.device());
    nn::RouterStep router_step{comm_, total, static_cast<double>((done + micro) * train.sequence_length)};
    nn::Context context{.router_step = &router_step};
    const auto ce = model_.cross_entropy_sum(batch, context);
    const auto objective = router_step.loss.defined() ? ce / total + router_step.loss : ce / total;
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
  std::vector<at::Tensor> rows{loss_, grad_norm_.to(at::kDouble), nonfinite_};
  for (const auto* router : model_.routers()) rows.push_back(router_row(*router, tokens));
  const auto read = at::cat(rows).cpu();  // the one wait for the device
  const double* values = read.const_data_ptr<double>();

  StepReport report;
  report.step = steps_;
  report.total_steps = total_steps_;
  report.tokens = this->tokens();
  report.lr = learning_rate(config_.optim, steps_, total_steps_);
  report.loss = values[0];
  report.grad_norm = values[1];
  report.nonfinite_steps = static_cast<int64_t>(values[2]);
  report.nonfinite_row = static_cast<int64_t>(values[4]);
  nonfinite_.narrow(0, 2, 1).copy_(nonfinite_.narrow(0, 1, 1));
  values += 5;
  for (const auto* router : model_.routers()) {
    report.routers.push_back({.name = router->name.substr(0, router->name.rfind(".router")),
                              .load_max_mean = values[0],
                              .load_limit = load_limit(*router),
                              .dead_experts = static_cast<int64_t>(values[1]),
                              .entropy = values[2],
                              .drop = values[3],
                              .fill = values[4],
                              .aux_loss = values[5],
                              .z_loss = values[6]});
    report.load_max_mean = std::max(report.load_max_mean, values[0]);
    report.aux_loss += values[5] / static_cast<double>(model_.routers().size());
    report.z_loss += values[6] / static_cast<double>(model_.routers().size());
    values += kRouterColumns;
  }
  return report;
}

nlohmann::json Trainer::state() const {
  const auto counts = nonfinite_.cpu();
  const double* nonfinite = counts.const_data_ptr<double>();
  return {{"step", steps_},
          {"tokens", tokens()},
          {"seed", config_.train.seed},
          {"data_position", loader_.position()},
          {"optimizer_updates", optimizer_.updates().item<double>()},
          {"nonfinite", {nonfinite[0], nonfinite[1], nonfinite[2]}}};
}

void Trainer::load_state(const nlohmann::json& state) {
  steps_ = state.at("step").get<int64_t>();
  loader_.seek(state.at("data_position").get<int64_t>());
  optimizer_.updates().fill_(state.at("optimizer_updates").get<double>());
  nonfinite_.copy_(at::tensor(state.at("nonfinite").get<std::vector<double>>(), at::kDouble));
}

}  // namespace scatterlm

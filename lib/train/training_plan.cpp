#include "lib/train/training_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/config/load.h"
#include "lib/nn/model_size.h"
#include "lib/train/batch_plan.h"
#include "lib/train/flops.h"
#include "lib/train/memory_estimate.h"
#include "lib/util/error.h"
#include "lib/util/text.h"

namespace scatterlm {
namespace {

constexpr double kMib = 1 << 20;

/// Memory as the driver gives it.
const PlannedGpu kGpus[] = {{"h200", "NVIDIA H200", 143771 * kMib},
                            {"h100", "NVIDIA H100 80GB HBM3", 81559 * kMib},
                            {"a100", "NVIDIA A100-SXM4-80GB", 81920 * kMib},
                            {"b200", "NVIDIA B200", 183359 * kMib},
                            {"rtx4090", "NVIDIA GeForce RTX 4090", 24564 * kMib}};

/// A GPU trains in bfloat16 unless the configuration says otherwise.
at::ScalarType planned_dtype(const TrainConfig& config) {
  return config.dtype == TrainDtype::kFloat32 ? at::kFloat : at::kBFloat16;
}

int64_t largest_micro_batch(Config config, Recompute recompute, const BatchPlan& batch, const PlanRequest& request,
                            double states) {
  config.train.recompute = recompute;
  const int64_t sequences = batch.sequences / request.gpus;
  for (int64_t size = sequences; size > 0; size--) {
    if (sequences % size != 0) continue;
    const auto activations = estimate_activations(config, planned_dtype(config.train), size * config.train.sequence_length);
    if (states + activations.total() <= kUsable * request.gpu.memory_bytes) return size;
  }
  return 0;
}

/// Gradients are reduced, in each micro-batch with ZeRO 2; then weights, or with ZeRO 0 gradients, are gathered.
double link_bytes(const Config& config, const BatchPlan& batch, int64_t ranks) {
  const auto parameters = static_cast<double>(nn::model_size(config.model).total), n = static_cast<double>(ranks);
  const bool rounded = config.parallel.reduce_dtype == DataType::kBfloat16 || config.train.grad_dtype == DataType::kBfloat16;
  const double gradient = rounded ? 2 : 4;
  const auto weight = static_cast<double>(c10::elementSize(planned_dtype(config.train)));
  const auto reductions = config.parallel.zero == 2 ? static_cast<double>(batch.sequences / batch.micro_batch) : 1.0;
  const double gathered = config.parallel.zero == 0 ? gradient : weight;
  return (n - 1) / n * parameters * (reductions * gradient + gathered);
}

std::string gib(double bytes) { return format_bytes(bytes); }

}  // namespace

PlannedGpu planned_gpu(const std::string& name) {
  std::string names;
  for (const auto& gpu : kGpus) {
    if (gpu.name == name) return gpu;
    names += (names.empty() ? "" : ", ") + gpu.name;
  }
  fail_user("--gpu: got '{}', must be one of {}", name, names);
}

TrainingPlan plan_training(const Config& config, const PlanRequest& request) {
  const BatchPlan batch(config.train, request.gpus);
  const auto size = nn::model_size(config.model);
  const auto dtype = planned_dtype(config.train);
  const auto states = estimate_memory(config, dtype, request.gpus);
  const auto activations = estimate_activations(config, dtype, batch.per_pass * config.train.sequence_length);
  TrainingPlan plan{.total_parameters = size.total,
                    .active_parameters = size.active,
                    .flops_per_token = nn::flops_per_token(config.model, config.train.sequence_length),
                    .weights = static_cast<double>(states.weights),
                    .gradients = static_cast<double>(states.gradients),
                    .optimizer = static_cast<double>(states.optimizer),
                    .activations = activations.layers,
                    .head = activations.head,
                    .micro_batch_size = batch.per_pass};
  for (const auto recompute : {Recompute::kNone, Recompute::kNorms, Recompute::kLayer})
    plan.largest_by_recompute.push_back(
        largest_micro_batch(config, recompute, batch, request, static_cast<double>(states.total())));
  plan.largest_micro_batch_size = plan.largest_by_recompute[static_cast<size_t>(config.train.recompute)];
  plan.link_bytes_per_step = link_bytes(config, batch, request.gpus);
  const auto step_tokens = static_cast<double>(config.train.global_batch_tokens);
  plan.tokens = request.tokens > 0 ? request.tokens : step_tokens * static_cast<double>(total_steps(config.train));
  const double flops_per_second =
      static_cast<double>(request.gpus) * request.mfu * peak_bfloat16(request.gpu.driver_name)->flops;
  plan.tokens_per_second = flops_per_second / plan.flops_per_token;
  plan.step_seconds = step_tokens / plan.tokens_per_second;
  plan.hours = plan.tokens / plan.tokens_per_second / 3600;
  return plan;
}

double planned_memory(const Config& config, at::ScalarType dtype, int64_t ranks) {
  const int64_t tokens = BatchPlan(config.train, ranks).per_pass * config.train.sequence_length;
  return static_cast<double>(estimate_memory(config, dtype, ranks).total()) +
         estimate_activations(config, dtype, tokens).total();
}

std::string measured_and_planned(double measured_gib, double planned_gib) {
  return fmt::format("memory: {:.1f} GiB at peak, {:.1f} GiB planned ({:+.1f} %)", measured_gib, planned_gib,
                     100 * (measured_gib / planned_gib - 1));
}

std::string plan_text(const TrainingPlan& plan, const Config& config, const PlanRequest& request) {
  const auto peak = *peak_bfloat16(request.gpu.driver_name);
  const auto count = [](auto value) { return format_count(static_cast<double>(value)); };
  std::string text = fmt::format("{}: {} parameters, {} active\n", config.run.name, count(plan.total_parameters),
                                 count(plan.active_parameters));
  text += fmt::format(
      "FLOPs per token: {} = 6 x active parameters in matrices + 12 x heads x head_dim x positions seen, summed over layers\n"
      "memory of each of {} GPU{} ({}, {}), parallel.zero {}:\n",
      count(plan.flops_per_token), request.gpus, request.gpus == 1 ? "" : "s", request.gpu.driver_name,
      gib(request.gpu.memory_bytes), config.parallel.zero);
  const auto line = [&](const std::string& name, double bytes) { text += fmt::format("  {:<44} {:>9}\n", name, gib(bytes)); };
  line("weights", plan.weights);
  line("gradients, with buffers to exchange them", plan.gradients);
  line("optimiser state", plan.optimizer);
  line(fmt::format("activations of {} x {} tokens", plan.micro_batch_size, config.train.sequence_length), plan.activations);
  line("output head, or the backward pass of a layer", plan.head);
  line("all", plan.memory());
  if (plan.memory() > kUsable * request.gpu.memory_bytes)
    text += fmt::format("This does not fit: {:.0f} % of the GPU are {}. {}\n", 100 * kUsable,
                        gib(kUsable * request.gpu.memory_bytes), memory_advice());
  text += plan.largest_micro_batch_size > 0
              ? fmt::format("largest train.micro_batch_size that fits: {}\n", plan.largest_micro_batch_size)
              : "not even train.micro_batch_size 1 fits\n";
  const auto& largest = plan.largest_by_recompute;
  text += fmt::format("  with train.recompute none: {}, norms: {}, layer: {}\n", largest[0], largest[1], largest[2]);
  if (request.gpus > 1) text += fmt::format("through the link of each GPU per step: {}\n", gib(plan.link_bytes_per_step));
  return text + fmt::format("{} tokens at {:.0f} % MFU of {:.0f} TFLOP/s ({}): {} tokens/s, {:.3g} s per step, {:.3g} hours\n",
                            count(plan.tokens), 100 * request.mfu, peak.flops / 1e12, peak.basis, count(plan.tokens_per_second),
                            plan.step_seconds, plan.hours);
}

nlohmann::ordered_json plan_json(const TrainingPlan& plan, const Config& config, const PlanRequest& request) {
  return {{"config", config.run.name},
          {"gpu", request.gpu.name},
          {"gpu_memory", request.gpu.memory_bytes},
          {"gpus", request.gpus},
          {"peak_flops", peak_bfloat16(request.gpu.driver_name)->flops},
          {"mfu", request.mfu},
          {"total_parameters", plan.total_parameters},
          {"active_parameters", plan.active_parameters},
          {"flops_per_token", plan.flops_per_token},
          {"weights", plan.weights},
          {"gradients", plan.gradients},
          {"optimizer", plan.optimizer},
          {"activations", plan.activations},
          {"head", plan.head},
          {"memory", plan.memory()},
          {"micro_batch_size", plan.micro_batch_size},
          {"largest_micro_batch_size", plan.largest_micro_batch_size},
          {"largest_micro_batch_size_by_recompute",
           {{"none", plan.largest_by_recompute[0]},
            {"norms", plan.largest_by_recompute[1]},
            {"layer", plan.largest_by_recompute[2]}}},
          {"link_bytes_per_step", plan.link_bytes_per_step},
          {"tokens", plan.tokens},
          {"tokens_per_second", plan.tokens_per_second},
          {"step_seconds", plan.step_seconds},
          {"hours", plan.hours}};
}

}  // namespace scatterlm

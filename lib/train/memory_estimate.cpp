#include "lib/train/memory_estimate.h"

#include <algorithm>

#include "lib/distributed/shape_comm.h"
#include "lib/nn/layer_kinds.h"
#include "lib/nn/model.h"
#include "lib/nn/model_size.h"
#include "lib/ops/cross_entropy.h"
#include "lib/optim/optimizer.h"
#include "lib/parallel/gradient_reducer.h"
#include "lib/util/error.h"
#include "lib/util/memory.h"
#include "lib/util/memory_meter.h"
#include "lib/util/text.h"

namespace scatterlm {
namespace {

std::string bytes_text(int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

}  // namespace

MemoryEstimate estimate_memory(const Config& config, at::ScalarType dtype, int64_t ranks) {
  constexpr int64_t kMost = 1'000'000'000'000'000;  // whose bytes still count in 64 bits
  if (nn::model_size(config.model).total > kMost)
    fail_user("the model has more than 1e15 parameters; make the sizes in model smaller");
  const auto comm = make_shape_comm(ranks);
  const MemoryMeter meter(at::kMeta);
  const nn::Model model(config.model, at::device(at::kMeta).dtype(dtype));
  allocate(model.units(), *comm);
  const int64_t weights = meter.peak_bytes();
  const GradientReducer gradients(config.parallel, model.units(), *comm, config.train.grad_dtype);
  const int64_t with_gradients = meter.peak_bytes();
  const auto optimizer = make_optimizer(config.optim, model.units(), *comm, Sharding(config.parallel, *comm));
  return {.weights = weights, .gradients = with_gradients - weights, .optimizer = meter.peak_bytes() - with_gradients};
}

ActivationEstimate estimate_activations(const Config& config, at::ScalarType dtype, int64_t tokens) {
  const ModelConfig& model = config.model;
  const auto width = static_cast<double>(c10::elementSize(dtype)), count = static_cast<double>(tokens);
  const auto hidden = static_cast<double>(model.hidden_size), vocab = static_cast<double>(model.vocab_size);
  const Recompute recompute = config.train.recompute;
  const double state = hidden * width;  // of one token
  double kept = 3 * state + 4, largest = 0, largest_layer = 0;
  for (const LayerKind kind : model.layer_kinds()) {
    double layer = 0;
    for (const double saved : {nn::sub_layer_kind(kind.attention).saved_bytes(model, width),
                               nn::sub_layer_kind(kind.mlp).saved_bytes(model, width)}) {
      layer += (recompute == Recompute::kNorms ? 1 : 2) * state + 4 + saved;
      largest = std::max(largest, saved);
    }
    kept += recompute == Recompute::kLayer ? state : layer;
    largest_layer = std::max(largest_layer, layer);
  }
  double backward = largest;  // what a layer takes while it is passed backwards
  if (recompute == Recompute::kNorms) backward += state;
  if (recompute == Recompute::kLayer) backward += largest_layer;
  const auto chunk = static_cast<double>(std::min(tokens, ops::cross_entropy_chunk(model.vocab_size, /*on_cpu=*/false)));
  const double gradient = 4 * vocab * hidden, logits = chunk * vocab * (4 + width);
  return {.layers = count * kept, .head = std::max(gradient + logits, count * backward)};
}

int64_t checkpoint_bytes(const MemoryEstimate& estimate, const OptimConfig& config, at::ScalarType dtype) {
  const bool are_master = dtype == (config.state_dtype == DataType::kFloat32 ? at::kFloat : at::kBFloat16);
  return estimate.optimizer + (are_master ? estimate.weights : 0);
}

std::string describe(const MemoryEstimate& estimate, const ParallelConfig& config, int64_t ranks) {
  return fmt::format(
      "weights {}, gradients {}, optimiser state {}: {} per rank (parallel.zero: {}, {} rank{}), activations of a micro-batch on top",
      bytes_text(estimate.weights), bytes_text(estimate.gradients), bytes_text(estimate.optimizer),
      bytes_text(estimate.total()), config.zero, ranks, ranks == 1 ? "" : "s");
}

std::string memory_advice() {
  return "activations shrink with train.micro_batch_size (sequences per forward pass) and train.recompute; gradients and optimiser state with "
         "parallel.zero 1 or 2 on more ranks, and with bfloat16 as train.grad_dtype and optim.state_dtype; all of them with the sizes in model";
}

std::optional<std::string> explain_too_large(const MemoryEstimate& estimate, at::Device device, int64_t local_ranks) {
  const int64_t sharing = device.is_cpu() ? local_ranks : 1;
  const double needed = static_cast<double>(estimate.total()) * static_cast<double>(sharing);
  const auto there = static_cast<double>(total_memory_bytes(device));
  if (needed <= there) return std::nullopt;
  return fmt::format("weights, gradients and optimiser state need {}{}, {} has {}: {}", format_bytes(needed),
                     sharing > 1 ? fmt::format(" for the {} ranks of this machine", sharing) : "",
                     device.is_cpu() ? "this machine" : "the GPU", format_bytes(there), memory_advice());
}

void require_memory(const Config& config, const ExecutionSetup& setup, const LaunchEnv& world) {
  const auto estimate = estimate_memory(config, setup.dtype, world.size);
  if (const auto text = explain_too_large(estimate, setup.device, world.local_size))
    fail_user("{}: {}", config.run.name, *text);
}

}  // namespace scatterlm

#include "lib/train/decode_speed.h"

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>

#include <algorithm>
#include <chrono>

#include "lib/nn/model_size.h"
#include "lib/ops/normal.h"
#include "lib/train/decoder.h"

namespace scatterlm {
namespace {

/// Wall time since the last lap, all work of the device included.
class DeviceWatch {
 public:
  explicit DeviceWatch(at::Device device) : device_(device) { lap_ms(); }

  double lap_ms() {
    if (device_.is_cuda()) at::accelerator::synchronizeDevice(device_.index());
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double, std::milli>(now - std::exchange(start_, now)).count();
  }

 private:
  at::Device device_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace

DecodeTimes measure_decoding(const Config& config, const ExecutionSetup& setup, const DecodeShape& shape, int64_t rounds) {
  nn::Model model(config.model, setup.options());
  allocate(model.units(), *make_single_comm());
  for (const auto& unit : model.units()) unit->flat_params().copy_(unit->initial_values(config.train.seed, 0, unit->size()));
  auto numbers = at::empty({shape.batch * shape.prompt}, at::kFloat);
  ops::fill_normal(numbers, ops::stream_of(static_cast<uint64_t>(config.train.seed), "prompt"), 0, 1e6F);
  const auto prompt_BS = numbers.to(at::kLong).remainder(config.model.vocab_size).view({shape.batch, -1}).to(setup.device);

  DecodeTimes times;
  Decoder decoder(model, shape.prompt + shape.tokens);
  for (int64_t round = 0; round <= rounds; round++) {
    decoder.restart();
    DeviceWatch watch(setup.device);
    auto next_B1 = decoder.next(prompt_BS).argmax(1, /*keepdim=*/true);
    const double prefill_ms = watch.lap_ms();
    for (int64_t i = 0; i < shape.tokens; i++) next_B1 = decoder.next(next_B1).argmax(1, /*keepdim=*/true);
    const double token_ms = watch.lap_ms() / static_cast<double>(shape.tokens);
    if (round == 0) continue;  // it allocates and records
    times.prefill_ms.push_back(prefill_ms);
    times.token_ms.push_back(token_ms);
  }
  return times;
}

double decoded_weight_bytes(const ModelConfig& model, int64_t batch, int64_t element_bytes) {
  ModelConfig taken = model;
  const auto widen = [&](auto& experts) {
    experts.num_experts_per_tok = std::min(experts.num_experts, batch * experts.num_experts_per_tok);
  };
  widen(taken.moe);
  widen(taken.moa);
  return static_cast<double>(nn::model_size(taken).active_matmul) * static_cast<double>(element_bytes);
}

}  // namespace scatterlm

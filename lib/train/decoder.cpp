#include "lib/train/decoder.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lib/ops/device.h"
#include "lib/ops/graph.h"
#include "lib/train/kernel_limits.h"

namespace scatterlm {
namespace {

/// Without kernels for the experts, the host reads the number of rows of each from the GPU in every layer.
bool waits_for_gpu(const nn::Model& model) {
  const auto& weights = model.units().front()->flat_params();
  return model.device().is_cuda() &&
         (!ops::has_kernels(weights) || !parts_without_kernel(model.config(), weights.scalar_type()).empty());
}

}  // namespace

Decoder::Decoder(nn::Model& model, int64_t positions)
    : model_(model), cache_(model.config().num_hidden_layers, model.device()), waits_for_gpu_(waits_for_gpu(model)) {
  cache_.reserve(positions);
}

at::Tensor Decoder::next(const at::Tensor& tokens_BS) {
  const at::NoGradGuard no_grad;
  const int64_t count = tokens_BS.size(1);
  if (cache_.reserve(cache_.length() + count)) recorded_step_ = nullptr;
  const auto logits_BV = count == 1 && !waits_for_gpu_ ? step(tokens_BS) : pass(tokens_BS);
  cache_.advance(count);
  return logits_BV;
}

at::Tensor Decoder::pass(const at::Tensor& tokens_BS) {
  nn::Context context{.cache = &cache_};
  const auto hidden_BSD = model_.forward(tokens_BS, context);
  return model_.logits(hidden_BSD.select(1, -1));
}

at::Tensor Decoder::step(const at::Tensor& tokens_B1) {
  if (recorded_step_) {
    tokens_B1_.copy_(tokens_B1);
  } else {
    tokens_B1_ = tokens_B1.clone();
    // Recording runs the step too, over the same position: it stores the same keys and values there as the start below.
    recorded_step_ = ops::captured([this] { logits_BV_ = pass(tokens_B1_); }, model_.device());
  }
  recorded_step_();
  return logits_BV_;
}

}  // namespace scatterlm

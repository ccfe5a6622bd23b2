#pragma once
#include <ATen/core/Tensor.h>

#include <functional>

#include "lib/nn/model.h"

namespace scatterlm {

/// Continues sequences token by token: keys and values of earlier positions are cached. On a GPU the first step, which takes
/// one token of each sequence, is recorded as a CUDA graph, and the host only starts it for the next tokens.
class Decoder {
 public:
  /// With room for `positions`, prompt included; for more it is allocated and recorded again. The model outlives it.
  explicit Decoder(nn::Model& model, int64_t positions = 0);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  /// Logits [B, V] fp32, on the model's device, of what follows tokens_BS [B, S], which come behind those of earlier calls. The
  /// first call takes the prompt in one pass, a later one takes one token of each sequence: S = 1. The next call overwrites
  /// them.
  at::Tensor next(const at::Tensor& tokens_BS);

  /// Forgets the sequences, for as many others: what is allocated and recorded remains.
  void restart() { cache_.clear(); }

 private:
  at::Tensor pass(const at::Tensor& tokens_BS);
  at::Tensor step(const at::Tensor& tokens_B1);

  nn::Model& model_;
  nn::KvCache cache_;
  bool waits_for_gpu_;                   ///< a pass does, so it cannot be recorded
  std::function<void()> recorded_step_;  ///< from tokens_B1_ to logits_BV_; empty until the first step
  at::Tensor tokens_B1_, logits_BV_;
};

}  // namespace scatterlm

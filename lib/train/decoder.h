#pragma once
#include <ATen/core/Tensor.h>

#include "lib/nn/model.h"

namespace scatterlm {

/// Continues sequences token by token: keys and values of earlier positions are cached.
class Decoder {
 public:
  /// The model outlives it.
  explicit Decoder(nn::Model& model);

  /// Logits [B, V] fp32, on the model's device, of what follows tokens_BS [B, S], which come behind those of earlier calls. The
  /// first call takes the prompt in one pass, a later one takes one token of each sequence: S = 1.
  at::Tensor next(const at::Tensor& tokens_BS);

 private:
  nn::Model& model_;
  nn::KvCache cache_;
};

}  // namespace scatterlm

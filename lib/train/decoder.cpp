#include "lib/train/decoder.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace scatterlm {

Decoder::Decoder(nn::Model& model) : model_(model) {
  cache_.layers.resize(static_cast<size_t>(model.config().num_hidden_layers));
}

at::Tensor Decoder::next(const at::Tensor& tokens_BS) {
  const at::NoGradGuard no_grad;
  nn::Context context{.cache = &cache_};
  const auto hidden_BSD = model_.forward(tokens_BS, context);
  return model_.logits(hidden_BSD.select(1, -1));
}

}  // namespace scatterlm

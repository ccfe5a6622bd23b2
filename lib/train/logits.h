#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

#include "lib/nn/model.h"

namespace scatterlm {

/// The token numbers "input_ids" [B, S] of a safetensors file, as int64. Throws Error for another tensor, shape or dtype, and
/// for a number that is not in the vocabulary.
at::Tensor read_ids(const std::string& path, int64_t vocab_size);

/// Writes the logits of every position, fp32, as the tensor "logits" [B, S, V] of a safetensors file, with one sequence in
/// memory at a time. `progress` is told the tokens done so far.
void write_logits(const std::string& path, nn::Model& model, const at::Tensor& ids_BS,
                  const std::function<void(int64_t)>& progress);

}  // namespace scatterlm

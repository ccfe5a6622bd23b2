// Products without experts, to compare with.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lib/bench/passes.h"

namespace scatterlm::bench {

enum class DenseKind { kProducts, kSwiglu };

/// Both passes of x [rows, n] times weights [out, in], one for each of `widths` = out, one after the other. With SwiGLU after
/// the first, its width counts gate and up. Gradients of x and of all weights.
std::vector<Pass> dense_passes(const std::string& other, const at::Tensor& x, const std::vector<int64_t>& widths,
                               DenseKind kind, const std::optional<Ceilings>& ceilings);

}  // namespace scatterlm::bench

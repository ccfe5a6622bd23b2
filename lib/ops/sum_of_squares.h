// The sum of the squares of several vectors: the square of a gradient's norm.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace scatterlm::ops {

/// Returns the sum of x^2 over all elements of `parts`, contiguous vectors on one device, as [1] float32. Sums of a GPU are in
/// float32 and float64, those of a CPU in float64; the same bits in every run.
at::Tensor sum_of_squares(const std::vector<at::Tensor>& parts);

namespace cuda {
/// Returns nothing where no kernel takes these tensors.
std::optional<at::Tensor> sum_of_squares(const std::vector<at::Tensor>& parts);
}  // namespace cuda

}  // namespace scatterlm::ops

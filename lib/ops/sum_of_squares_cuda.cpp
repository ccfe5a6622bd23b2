#include "kernels/sum_of_squares.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "lib/ops/device.h"
#include "lib/ops/kernel_type.h"
#include "lib/ops/sum_of_squares.h"

namespace scatterlm::ops {
namespace {

/// Blocks for each vector: one wave of an H200, which has room for 8 blocks on each of 132 multiprocessors.
constexpr int64_t kPartialSums = 1024;

}  // namespace

std::optional<at::Tensor> cuda::sum_of_squares(const std::vector<at::Tensor>& parts) {
  for (const auto& x : parts)
    if (!has_kernels(x) || !is_float_or_bfloat16(x) || !x.is_contiguous() || !is_aligned(x)) return {};
  const c10::DeviceGuard guard(parts.front().device());
  const auto partials = at::empty({std::ssize(parts), kPartialSums}, parts.front().options().dtype(at::kFloat));
  for (int64_t i = 0; i < std::ssize(parts); ++i) {
    const auto& x = parts[static_cast<size_t>(i)];
    kernels::sum_of_squares(
        {x.const_data_ptr(), kernel_type(x), x.numel(), partials.mutable_data_ptr<float>() + i * kPartialSums, kPartialSums},
        current_stream(x));
  }
  return partials.sum(at::kDouble).to(at::kFloat).view({1});
}

}  // namespace scatterlm::ops

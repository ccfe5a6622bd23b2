#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "kernels/rope.h"
#include "lib/ops/device.h"
#include "lib/ops/rope.h"

namespace scatterlm::ops {
namespace {

bool kernel_takes(const at::Tensor& x) {
  const auto type = x.scalar_type();
  return has_kernels(x) && x.size(-1) % 16 == 0 && (type == at::kBFloat16 || type == at::kFloat);
}

/// Whether every head starts at a multiple of 16 bytes.
bool heads_are_aligned(const at::Tensor& x_BSGHP) {
  const auto strides = x_BSGHP.strides().slice(0, 4);
  return reinterpret_cast<uintptr_t>(x_BSGHP.const_data_ptr()) % 16 == 0 &&
         std::all_of(strides.begin(), strides.end(), [&](int64_t n) { return n * x_BSGHP.element_size() % 16 == 0; });
}

}  // namespace

std::optional<at::Tensor> cuda::rotate(const at::Tensor& x_BSGHP, const at::Tensor& cos, const at::Tensor& sin, int sign) {
  if (!kernel_takes(x_BSGHP)) return {};
  const c10::DeviceGuard guard(x_BSGHP.device());
  const auto x = heads_are_aligned(x_BSGHP) ? x_BSGHP : x_BSGHP.clone(at::MemoryFormat::Contiguous);
  auto y = at::empty(x.sizes(), x.options());
  kernels::rope({.x = x.const_data_ptr(),
                 .cos = cos.const_data_ptr<float>(),
                 .sin = sin.const_data_ptr<float>(),
                 .y = y.mutable_data_ptr(),
                 .type = x.scalar_type() == at::kFloat ? kernels::DataType::kFloat32 : kernels::DataType::kBfloat16,
                 .back = sign < 0,
                 .batch = x.size(0),
                 .positions = x.size(1),
                 .groups = x.size(2),
                 .heads = x.size(3),
                 .head_dim = x.size(4),
                 .stride_b = x.stride(0),
                 .stride_s = x.stride(1),
                 .stride_g = x.stride(2),
                 .stride_h = x.stride(3)},
                current_stream(x));
  return y;
}

}  // namespace scatterlm::ops

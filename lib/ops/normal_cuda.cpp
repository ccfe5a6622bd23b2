#include <c10/core/DeviceGuard.h>

#include "kernels/normal.h"
#include "lib/ops/device.h"
#include "lib/ops/normal.h"

bool scatterlm::ops::cuda::fill_normal(const at::Tensor& out, uint64_t stream, int64_t first, float scale) {
  if (!has_kernels(out)) return false;
  const c10::DeviceGuard guard(out.device());
  kernels::fill_normal({out.mutable_data_ptr<float>(), out.numel(), stream, static_cast<uint64_t>(first), scale},
                       current_stream(out));
  return true;
}

#include "lib/ops/documents.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "lib/ops/shape.h"
#include "lib/util/error.h"

namespace scatterlm::ops {
namespace {

/// A copy on the device, or the tensor itself on the CPU. From pageable memory the copy would hold up the host.
at::Tensor upload(const at::Tensor& x, at::Device device) {
  return device.is_cuda() ? x.pin_memory().to(device, /*non_blocking=*/true) : x;
}

}  // namespace

Documents::Documents(const at::Tensor& number_BS, at::Device device) : number_BS_(number_BS.contiguous()) {
  if (number_BS.dim() != 2 || number_BS.scalar_type() != at::kInt || !number_BS.is_cpu())
    fail("[documents] numbers must be int32 [B, S] on the CPU, got {} {} on {}", c10::toString(number_BS.scalar_type()),
         shape_of(number_BS), number_BS.device().str());
  std::vector<int32_t> offsets;
  const auto tokens = static_cast<int32_t>(number_BS_.numel()), length = static_cast<int32_t>(number_BS_.size(1));
  const auto* number = number_BS_.const_data_ptr<int32_t>();
  for (int32_t t = 0; t < tokens; ++t)
    if (t % length == 0 || number[t] != number[t - 1]) offsets.push_back(t);
  offsets.push_back(tokens);
  for (size_t n = 1; n < offsets.size(); ++n) longest_ = std::max<int64_t>(longest_, offsets[n] - offsets[n - 1]);
  offsets_N1_ = upload(at::tensor(offsets, at::kInt), device);
}

const at::Tensor& Documents::mask() const {
  if (mask_.defined()) return mask_;
  const auto number = upload(number_BS_, offsets_N1_.device());
  const auto positions = at::arange(length(), number.options());
  const auto causal = positions.unsqueeze(1) >= positions.unsqueeze(0);
  mask_ = ((number.unsqueeze(2) == number.unsqueeze(1)) & causal).unsqueeze(1);
  return mask_;
}

}  // namespace scatterlm::ops

#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

namespace scatterlm {

/// B sequences of S tokens. Every position counts: packing leaves no padding.
struct Batch {
  at::Tensor input_BS;   ///< int64
  at::Tensor target_BS;  ///< int64, the next token
  /// int32, number of the document within its row; only with intra-document masking. Stays on the CPU, where the lengths of the
  /// documents are counted.
  std::optional<at::Tensor> document_BS;

  /// The tokens on `device`.
  Batch to(at::Device device) const {
    // From pageable memory the copy would hold up the host.
    auto move = [&](const at::Tensor& t) { return (device.is_cuda() ? t.pin_memory() : t).to(device, /*non_blocking=*/true); };
    return {move(input_BS), move(target_BS), document_BS};
  }
};

}  // namespace scatterlm

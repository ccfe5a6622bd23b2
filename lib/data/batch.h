#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

namespace scatterlm {

/// B sequences of S tokens. Every position counts: packing leaves no padding.
struct Batch {
  at::Tensor input_BS;                    ///< int64
  at::Tensor target_BS;                   ///< int64, the next token
  std::optional<at::Tensor> document_BS;  ///< int32, number of the document within its row; only with intra-document masking

  Batch to(at::Device device) const {
    // From pageable memory the copy would hold up the host.
    auto move = [&](const at::Tensor& t) { return (device.is_cuda() ? t.pin_memory() : t).to(device, /*non_blocking=*/true); };
    return {move(input_BS), move(target_BS), document_BS ? std::optional(move(*document_BS)) : std::nullopt};
  }
};

}  // namespace scatterlm

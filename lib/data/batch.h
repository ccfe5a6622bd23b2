#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

namespace scatterlm {

/// B sequences of S tokens. Every position counts: packing leaves no padding.
struct Batch {
  at::Tensor input_BS;                     ///< int64
  at::Tensor target_BS;                    ///< int64, the next token
  std::optional<at::Tensor> document_BS;   ///< int32, number of the document inside the sequence; only with intra-document masking
};

}  // namespace scatterlm

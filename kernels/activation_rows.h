// Activations of dense MLPs, apart from a product.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/activation.h"

namespace scatterlm::kernels {

/// bf16, contiguous, aligned to 16 bytes. Gated: h has 2F columns, the gate first; otherwise F.
struct ActivationRowsArgs {
  Activation activation;
  const void* h;     ///< [R, 2F or F]
  int64_t num_rows;  ///< R
  int64_t width;     ///< F, a multiple of 8
};
/// a [R, F] = activation(h).
void activation_rows_fwd(const ActivationRowsArgs& args, void* a, cudaStream_t stream);
/// dh, as h, from da [R, F].
void activation_rows_bwd(const ActivationRowsArgs& args, const void* da, void* dh, cudaStream_t stream);

}  // namespace scatterlm::kernels

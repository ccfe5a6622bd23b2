// The functions of kernels/grouped_gemm.h for GPUs of compute capability 8.0 and later: cp.async, ldmatrix and mma.sync,
// nothing that a later chip lacks. Their callers have checked the arguments, and that there are rows.
#pragma once
#include "kernels/grouped_gemm.h"
#include "kernels/grouped_gemm/portable/tile.h"

namespace scatterlm::kernels::portable {

void fwd(const GroupedGemmFwdArgs& args, cudaStream_t stream);
void dgrad(const GroupedGemmDgradArgs& args, cudaStream_t stream);
void activation_fwd(const ActivationFwdArgs& args, cudaStream_t stream);
void activation_bwd(const ActivationBwdArgs& args, cudaStream_t stream);
void wgrad(const WgradArgs& args, cudaStream_t stream);

}  // namespace scatterlm::kernels::portable

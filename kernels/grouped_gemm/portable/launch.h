// The functions of kernels/grouped_gemm.h for GPUs of compute capability 8.0 and later: cp.async, ldmatrix and mma.sync,
// nothing that a later chip lacks. Their callers have checked the arguments, and that there are rows.
#pragma once
#include "kernels/grouped_gemm.h"
#include "kernels/grouped_gemm/portable/tile.h"

namespace scatterlm::kernels::portable {

void fwd(const GroupedGemmArgs& args, void* c, cudaStream_t stream);
void dgrad(const GroupedGemmArgs& args, void* c, cudaStream_t stream);
void activation_fwd(const GroupedGemmArgs& args, Activation activation, void* h, void* act, cudaStream_t stream);
void activation_bwd(const GroupedGemmArgs& args, Activation activation, const ActivationBwdArgs& outputs, cudaStream_t stream);
void wgrad(const WgradArgs& args, cudaStream_t stream);

}  // namespace scatterlm::kernels::portable

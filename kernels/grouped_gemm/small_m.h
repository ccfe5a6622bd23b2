// The forward products of kernels/grouped_gemm.h for at most kSmallM rows, on every chip. Their callers have checked the
// arguments, and that there are rows.
#pragma once
#include "kernels/grouped_gemm.h"

namespace scatterlm::kernels::small_m {

inline bool take(const GroupedGemmArgs& args) { return args.small_m_kernel && args.experts.num_rows <= kSmallM; }

void fwd(const GroupedGemmArgs& args, void* c, cudaStream_t stream);
void activation_fwd(const GroupedGemmArgs& args, Activation activation, void* h, void* act, cudaStream_t stream);

}  // namespace scatterlm::kernels::small_m

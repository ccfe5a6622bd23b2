// The forward products of kernels/grouped_gemm.h for at most kSmallM rows, on every chip. Their callers have checked the
// arguments, and that there are rows.
#pragma once
#include "kernels/grouped_gemm.h"

namespace scatterlm::kernels::small_m {

inline bool takes(int64_t num_rows) { return num_rows <= kSmallM; }

void fwd(const GroupedGemmFwdArgs& args, cudaStream_t stream);
void activation_fwd(const ActivationFwdArgs& args, cudaStream_t stream);

}  // namespace scatterlm::kernels::small_m

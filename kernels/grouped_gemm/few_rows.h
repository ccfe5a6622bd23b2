// The forward products of kernels/grouped_gemm.h for at most kFewRows rows, on every chip. Their callers have checked the
// arguments, and that there are rows.
#pragma once
#include "kernels/grouped_gemm.h"

namespace scatterlm::kernels::few_rows {

inline bool take(const GroupedGemmArgs& args) { return args.few_rows_kernel && args.experts.num_rows <= kFewRows; }

void fwd(const GroupedGemmArgs& args, void* c, cudaStream_t stream);
void activation_fwd(const GroupedGemmArgs& args, Activation activation, void* h, void* act, cudaStream_t stream);

}  // namespace scatterlm::kernels::few_rows

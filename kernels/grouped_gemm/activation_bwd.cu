#include "kernels/grouped_gemm/activation_bwd_epilogue.cuh"
#include "kernels/grouped_gemm/portable/launch.h"
#include "kernels/grouped_gemm/rows_launch.cuh"

namespace scatterlm::kernels {

int64_t dgates_partials(int64_t expert_width, int compute_capability) {
  return ceil_div(expert_width, compute_capability == kHopper ? kTileColumns : portable::kColumns);
}

void grouped_gemm_activation_bwd(const GroupedGemmArgs& args, Activation activation, const ActivationBwdArgs& outputs,
                                 cudaStream_t stream) {
  constexpr const char* kOp = "grouped_gemm_activation_bwd";
  check_operand(kOp, "a", args.a, args.k);
  check_operand(kOp, "b", args.b, args.n);
  check_operand(kOp, "h", outputs.h, args.n);
  check_operand(kOp, "act_gated", outputs.act_gated, args.n);
  refuse_bias(kOp, args);
  if (args.experts.num_rows == 0) return;
  if (!args.a_rows_R) throw KernelError("[grouped_gemm_activation_bwd] rows of a must be named by a_rows");
  if (args.compute_capability != kHopper) return portable::activation_bwd(args, activation, outputs, stream);
  with_activation(activation, [&](auto policy) {
    using Policy = decltype(policy);
    using Epilogue = ActivationBwdEpilogue<Policy>;
    const typename Epilogue::Params epilogue{
        .h = shifted_rows_map(kOp, outputs.h, args.experts.num_rows, Policy::kHalves, args.n),
        .act = shifted_rows_map(kOp, outputs.act_gated, args.experts.num_rows, args.n),
        .gates = outputs.gates,
        .sorted_R = outputs.sorted_R,
        .dgates_partial = outputs.dgates_partial,
        .n_tiles = static_cast<int>(dgates_partials(args.n, kHopper)),
        .width = static_cast<int>(args.n)};
    launch_rows<WeightTransposed, GatheredRows, Epilogue>(kOp, args, weight_transposed(kOp, args), kTileColumns, epilogue,
                                                          stream);
  });
}

}  // namespace scatterlm::kernels

#include "kernels/grouped_gemm/hopper/activation_bwd_epilogue.cuh"
#include "kernels/grouped_gemm/hopper/rows_launch.cuh"
#include "kernels/grouped_gemm/portable/launch.h"

namespace scatterlm::kernels {

using namespace hopper;

int64_t dgates_partials(int64_t expert_width, int compute_capability) {
  return ceil_div(expert_width, compute_capability == kHopper ? hopper::kTileColumns : portable::kTileColumns);
}

void grouped_gemm_activation_bwd(const ActivationBwdArgs& args, cudaStream_t stream) {
  constexpr const char* kOp = "grouped_gemm_activation_bwd";
  const auto& product = args.product;
  const int64_t rows = product.experts.num_rows, width = product.n;
  check_operand(kOp, "a", product.a, product.k);
  check_operand(kOp, "b", product.b, width);
  check_operand(kOp, "h", args.h, width);
  check_operand(kOp, "act_gated", args.act_gated, width);
  if (rows == 0) return;
  if (!product.a_rows_R) throw KernelError("[grouped_gemm_activation_bwd] rows of a must be named by a_rows");
  if (product.compute_capability != kHopper) return portable::activation_bwd(args, stream);
  with_activation(args.activation, [&](auto policy) {
    using Policy = decltype(policy);
    using Epilogue = ActivationBwdEpilogue<Policy>;
    const typename Epilogue::Params epilogue{.h = shifted_rows_map(kOp, args.h, rows, Policy::kHalves, width),
                                             .act = shifted_rows_map(kOp, args.act_gated, rows, width),
                                             .gates = args.gates,
                                             .sorted_R = args.sorted_R,
                                             .dgates_partial = args.dgates_partial,
                                             .n_tiles = static_cast<int>(dgates_partials(width, kHopper)),
                                             .width = static_cast<int>(width)};
    launch_rows<WeightTransposed, GatheredRows, Epilogue>(kOp, product, weight_transposed(kOp, product), kTileColumns, epilogue,
                                                          stream);
  });
}

}  // namespace scatterlm::kernels

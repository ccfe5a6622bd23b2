#include "kernels/grouped_gemm/portable/launch.h"
#include "kernels/grouped_gemm/rows_launch.cuh"
#include "kernels/grouped_gemm/small_m.h"

namespace scatterlm::kernels {

void grouped_gemm_activation_fwd(const GroupedGemmArgs& args, Activation activation, void* h, void* act, cudaStream_t stream) {
  constexpr const char* kOp = "grouped_gemm_activation_fwd";
  check_operand(kOp, "a", args.a, args.k);
  check_operand(kOp, "b", args.b, args.k);
  check_operand(kOp, "h", h, args.n);
  check_operand(kOp, "act", act, args.n);
  check_operand(kOp, "bias", args.bias, args.n);
  if (args.experts.num_rows == 0) return;
  if (!args.a_rows_R) throw KernelError("[grouped_gemm_activation_fwd] rows of a must be named by a_rows");
  if (small_m::take(args)) return small_m::activation_fwd(args, activation, h, act, stream);
  if (args.compute_capability != kHopper) return portable::activation_fwd(args, activation, h, act, stream);
  with_activation(activation, [&](auto policy) {
    using Policy = decltype(policy);
    using Epilogue = ActivationEpilogue<Policy>;
    const typename Epilogue::Params epilogue{shifted_rows_map(kOp, h, args.experts.num_rows, Policy::kHalves, args.n),
                                             shifted_rows_map(kOp, act, args.experts.num_rows, args.n)};
    launch_rows<WeightAsStored<Policy::kHalves>, GatheredRows, Epilogue>(
        kOp, args, weight_as_stored(kOp, args, Policy::kHalves), kTileColumns / Policy::kHalves, epilogue, stream);
  });
}

}  // namespace scatterlm::kernels

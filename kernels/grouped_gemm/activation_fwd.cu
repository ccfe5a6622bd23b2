#include "kernels/grouped_gemm/hopper/rows_launch.cuh"
#include "kernels/grouped_gemm/portable/launch.h"
#include "kernels/grouped_gemm/small_m.h"

namespace scatterlm::kernels {

using namespace hopper;

void grouped_gemm_activation_fwd(const ActivationFwdArgs& args, cudaStream_t stream) {
  constexpr const char* kOp = "grouped_gemm_activation_fwd";
  const auto& product = args.product;
  const int64_t rows = product.experts.num_rows, width = product.n;
  check_operand(kOp, "a", product.a, product.k);
  check_operand(kOp, "b", product.b, product.k);
  check_operand(kOp, "h", args.h, width);
  check_operand(kOp, "act", args.act, width);
  check_operand(kOp, "bias", args.bias, width);
  if (rows == 0) return;
  if (!product.a_rows_R) throw KernelError("[grouped_gemm_activation_fwd] rows of a must be named by a_rows");
  if (args.small_m_kernel && small_m::takes(rows)) return small_m::activation_fwd(args, stream);
  if (product.compute_capability != kHopper) return portable::activation_fwd(args, stream);
  with_activation(args.activation, [&](auto policy) {
    using Policy = decltype(policy);
    using Epilogue = ActivationEpilogue<Policy>;
    const typename Epilogue::Params epilogue{shifted_rows_map(kOp, args.h, rows, Policy::kHalves, width),
                                             shifted_rows_map(kOp, args.act, rows, width)};
    launch_rows<WeightAsStored<Policy::kHalves>, GatheredRows, Epilogue>(
        kOp, product, weight_as_stored(kOp, product, Policy::kHalves, args.bias), kTileColumns / Policy::kHalves, epilogue,
        stream);
  });
}

}  // namespace scatterlm::kernels

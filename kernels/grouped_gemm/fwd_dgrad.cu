// Grouped GEMMs whose tiles are just stored.
#include "kernels/grouped_gemm/hopper/rows_launch.cuh"
#include "kernels/grouped_gemm/portable/launch.h"
#include "kernels/grouped_gemm/small_m.h"

namespace scatterlm::kernels {

using namespace hopper;
namespace {

template <class Weight, class Epilogue>
void run(const char* op, const GroupedProduct& product, const WeightOperand& b, const typename Epilogue::Params& epilogue,
         cudaStream_t stream) {
  if (product.a_rows_R)
    launch_rows<Weight, GatheredRows, Epilogue>(op, product, b, kTileColumns, epilogue, stream);
  else
    launch_rows<Weight, ContiguousRows, Epilogue>(op, product, b, kTileColumns, epilogue, stream);
}

/// Args: GroupedGemmFwdArgs or GroupedGemmDgradArgs.
template <class Weight, class Args>
void run(const char* op, const Args& args, const WeightOperand& b, cudaStream_t stream) {
  const auto& product = args.product;
  const int64_t n = product.n;
  if (args.c_rows_R)
    run<Weight, ScatterEpilogue>(op, product, b, {args.c, args.c_rows_R, static_cast<int>(n)}, stream);
  else
    run<Weight, StoreEpilogue>(op, product, b, {shifted_rows_map(op, args.c, product.experts.num_rows, n)}, stream);
}

void check(const char* op, const GroupedProduct& product, const void* c) {
  check_operand(op, "a", product.a, product.k);
  check_operand(op, "b", product.b, product.n);
  check_operand(op, "c", c, product.n);
}

}  // namespace

void grouped_gemm_fwd(const GroupedGemmFwdArgs& args, cudaStream_t stream) {
  constexpr const char* kOp = "grouped_gemm_fwd";
  const auto& product = args.product;
  check(kOp, product, args.c);
  check_operand(kOp, "bias", args.bias, product.n);
  if (product.experts.num_rows == 0) return;
  if (args.small_m_kernel && small_m::takes(product.experts.num_rows)) return small_m::fwd(args, stream);
  if (!product.experts.offsets_E1)
    throw KernelError("[grouped_gemm_fwd] without offsets there may be " + std::to_string(kSmallM) + " rows, got " +
                      std::to_string(product.experts.num_rows));
  if (product.compute_capability != kHopper) return portable::fwd(args, stream);
  run<WeightAsStored<1>>(kOp, args, weight_as_stored(kOp, product, 1, args.bias), stream);
}

void grouped_gemm_dgrad(const GroupedGemmDgradArgs& args, cudaStream_t stream) {
  constexpr const char* kOp = "grouped_gemm_dgrad";
  const auto& product = args.product;
  check(kOp, product, args.c);
  if (product.experts.num_rows == 0) return;
  if (product.compute_capability != kHopper) return portable::dgrad(args, stream);
  run<WeightTransposed>(kOp, args, weight_transposed(kOp, product), stream);
}

}  // namespace scatterlm::kernels

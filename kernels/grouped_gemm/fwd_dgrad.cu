// Grouped GEMMs whose tiles are just stored.
#include "kernels/grouped_gemm/portable/launch.h"
#include "kernels/grouped_gemm/rows_launch.cuh"
#include "kernels/grouped_gemm/small_m.h"

namespace scatterlm::kernels {
namespace {

template <class Weight, class Epilogue>
void run(const char* op, const GroupedGemmArgs& args, const CUtensorMap& b, const typename Epilogue::Params& epilogue,
         cudaStream_t stream) {
  if (args.a_rows_R)
    launch_rows<Weight, GatheredRows, Epilogue>(op, args, b, kTileColumns, epilogue, stream);
  else
    launch_rows<Weight, ContiguousRows, Epilogue>(op, args, b, kTileColumns, epilogue, stream);
}

template <class Weight>
void run(const char* op, const GroupedGemmArgs& args, const CUtensorMap& b, void* c, cudaStream_t stream) {
  if (args.c_rows_R)
    run<Weight, ScatterEpilogue>(op, args, b, {c, args.c_rows_R, static_cast<int>(args.n)}, stream);
  else
    run<Weight, StoreEpilogue>(op, args, b, {shifted_rows_map(op, c, args.experts.num_rows, args.n)}, stream);
}

void check(const char* op, const GroupedGemmArgs& args, const void* c) {
  check_operand(op, "a", args.a, args.k);
  check_operand(op, "b", args.b, args.n);
  check_operand(op, "c", c, args.n);
  check_operand(op, "bias", args.bias, args.n);
}

}  // namespace

void grouped_gemm_fwd(const GroupedGemmArgs& args, void* c, cudaStream_t stream) {
  constexpr const char* kOp = "grouped_gemm_fwd";
  check(kOp, args, c);
  if (args.experts.num_rows == 0) return;
  if (small_m::take(args)) return small_m::fwd(args, c, stream);
  if (args.compute_capability != kHopper) return portable::fwd(args, c, stream);
  run<WeightAsStored<1>>(kOp, args, weight_as_stored(kOp, args, 1), c, stream);
}

void grouped_gemm_dgrad(const GroupedGemmArgs& args, void* c, cudaStream_t stream) {
  constexpr const char* kOp = "grouped_gemm_dgrad";
  check(kOp, args, c);
  refuse_bias(kOp, args);
  if (args.experts.num_rows == 0) return;
  if (args.compute_capability != kHopper) return portable::dgrad(args, c, stream);
  run<WeightTransposed>(kOp, args, weight_transposed(kOp, args), c, stream);
}

}  // namespace scatterlm::kernels

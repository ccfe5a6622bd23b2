#include "kernels/grouped_gemm/hopper/rows_launch.cuh"
#include "kernels/grouped_gemm/hopper/wgrad_kernel.cuh"
#include "kernels/grouped_gemm/portable/launch.h"

namespace scatterlm::kernels {

using namespace hopper;
namespace {

constexpr const char* kOp = "grouped_gemm_wgrad";

WgradOperand operand(const void* data, const int32_t* rows_R, int64_t width, int64_t num_rows) {
  WgradOperand operand{};
  if (!rows_R) operand.map = shifted_rows_map(kOp, data, num_rows, width);
  operand.data = data;
  operand.rows_R = rows_R;
  operand.row_bytes = static_cast<uint32_t>(width * 2);
  operand.width = static_cast<int>(width);
  return operand;
}

template <class LoadA, class LoadB>
void run(const WgradArgs& args, cudaStream_t stream) {
  const int element = size_of(args.dw_type);
  WgradParams params{};
  params.a = operand(args.a, args.a_rows_R, args.m, args.experts.num_rows);
  params.b = operand(args.b, args.b_rows_R, args.n, args.experts.num_rows);
  params.dw = tensor_map(kOp, args.dw_type, args.dw, {args.n, args.m, args.experts.num_experts},
                         {args.n * element, args.m * args.n * element}, {128 / element, 64, 1});
  params.offsets_E1 = args.experts.offsets_E1;
  params.tile_counters = args.experts.tile_counters();
  params.num_experts = static_cast<int>(args.experts.num_experts);
  params.m_tiles = static_cast<int>(ceil_div(args.m, 128));
  params.n_tiles = static_cast<int>(ceil_div(args.n, kTileColumns));
  params.dw_type = args.dw_type;
  params.update = args.update;
  const int64_t tiles = args.experts.num_experts * params.m_tiles * params.n_tiles;
  launch(kOp, wgrad_kernel<LoadA, LoadB>, std::min<int64_t>(args.num_sms, tiles), kThreads, WgradPipe::kBytes, params, stream);
}

template <class Width>
void run_gathered(const WgradArgs& args, cudaStream_t stream) {
  if (args.a_rows_R && args.b_rows_R) return run<GatheredColumns<2, Width>, GatheredColumns<4, Width>>(args, stream);
  if (args.a_rows_R) return run<GatheredColumns<2, Width>, BulkColumns<4>>(args, stream);
  run<BulkColumns<2>, GatheredColumns<4, Width>>(args, stream);
}

}  // namespace

void grouped_gemm_wgrad(const WgradArgs& args, cudaStream_t stream) {
  check_operand(kOp, "a", args.a, args.m);
  check_operand(kOp, "b", args.b, args.n);
  check_operand(kOp, "dw", args.dw, args.n);
  if (args.experts.num_rows == 0) {
    if (args.update == GradientUpdate::kStore) {
      const int64_t bytes = args.experts.num_experts * args.m * args.n * size_of(args.dw_type);
      check_cuda(kOp, "cudaMemsetAsync", cudaMemsetAsync(args.dw, 0, bytes, stream));
    }
    return;
  }
  if (args.compute_capability != kHopper) return portable::wgrad(args, stream);
  if (!args.a_rows_R && !args.b_rows_R) return run<BulkColumns<2>, BulkColumns<4>>(args, stream);
  if (args.m % 128 == 0 && args.n % kTileColumns == 0) return run_gathered<WholeWidth>(args, stream);
  run_gathered<ClippedWidth>(args, stream);
}

}  // namespace scatterlm::kernels

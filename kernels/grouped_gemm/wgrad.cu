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

int64_t tiles(const WgradArgs& args) { return ceil_div(args.m, kTileRows) * ceil_div(args.n, kTileColumns); }

int64_t most_slots(const WgradArgs& args) { return most_wgrad_slots(args.experts.num_rows, tiles(args), args.num_sms); }

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
  params.partials = static_cast<float4*>(args.workspace);
  params.dw_data = args.dw;
  params.num_experts = static_cast<int>(args.experts.num_experts);
  params.m = static_cast<int>(args.m);
  params.n = static_cast<int>(args.n);
  params.m_tiles = static_cast<int>(ceil_div(args.m, kTileRows));
  params.n_tiles = static_cast<int>(ceil_div(args.n, kTileColumns));
  params.dw_type = args.dw_type;
  params.update = args.update;
  const int64_t parts = args.experts.num_experts * tiles(args) + most_slots(args);
  launch(kOp, wgrad_kernel<LoadA, LoadB>, std::min<int64_t>(args.num_sms, parts), kThreads, kWgradSharedBytes, params, stream);
}

template <class Width>
void run_gathered(const WgradArgs& args, cudaStream_t stream) {
  if (args.a_rows_R && args.b_rows_R) return run<GatheredColumns<2, Width>, GatheredColumns<4, Width>>(args, stream);
  if (args.a_rows_R) return run<GatheredColumns<2, Width>, BulkColumns<4>>(args, stream);
  run<BulkColumns<2>, GatheredColumns<4, Width>>(args, stream);
}

}  // namespace

int64_t grouped_gemm_wgrad_workspace_bytes(const WgradArgs& args) {
  return args.compute_capability == kHopper ? most_slots(args) * kTileRows * kTileColumns * int64_t{sizeof(float)} : 0;
}

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

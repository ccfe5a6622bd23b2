#include "kernels/grouped_gemm/rows_launch.cuh"
#include "kernels/grouped_gemm/wgrad_kernel.cuh"

namespace scatterlm::kernels {
namespace {

constexpr const char* kOp = "grouped_gemm_wgrad";

template <GatheredOperand kGathered>
void run(const WgradArgs& args, const void* gathered, const int32_t* rows_R, int64_t gathered_width, cudaStream_t stream) {
  const int64_t rows = args.experts.num_rows, num_experts = args.experts.num_experts;
  const int element = args.output == WgradOutput::kBf16 ? 2 : 4;
  WgradParams params{};
  if (kGathered != GatheredOperand::kA) params.a = shifted_rows_map(kOp, args.a, rows, args.m);
  if (kGathered != GatheredOperand::kB) params.b = shifted_rows_map(kOp, args.b, rows, args.n);
  params.dw = tensor_map(kOp, args.output == WgradOutput::kBf16 ? MapType::kBf16 : MapType::kFp32, args.dw,
                         {args.n, args.m, num_experts}, {args.n * element, args.m * args.n * element}, {128 / element, 64, 1});
  params.gathered = gathered;
  params.rows_R = rows_R;
  params.gathered_row_bytes = gathered_width * 2;
  params.offsets_E1 = args.experts.offsets_E1;
  params.num_experts = static_cast<int>(num_experts);
  params.m = static_cast<int>(args.m);
  params.n = static_cast<int>(args.n);
  params.m_tiles = static_cast<int>(ceil_div(args.m, 128));
  params.n_tiles = static_cast<int>(ceil_div(args.n, kTileColumns));
  params.output = args.output;
  params.update = args.update;
  const int64_t tiles = num_experts * params.m_tiles * params.n_tiles;
  launch(kOp, wgrad_kernel<kGathered>, std::min<int64_t>(args.num_sms, tiles), kThreads, WgradPipe::kBytes, params, stream);
}

}  // namespace

void grouped_gemm_wgrad(const WgradArgs& args, cudaStream_t stream) {
  check_operand(kOp, "a", args.a, args.m);
  check_operand(kOp, "b", args.b, args.n);
  check_operand(kOp, "dw", args.dw, args.n);
  if (args.a_rows_R && args.b_rows_R) throw KernelError("[grouped_gemm_wgrad] at most one of a, b is gathered");
  if (args.experts.num_rows == 0) {
    if (args.update == WgradUpdate::kStore) {
      const int64_t bytes = args.experts.num_experts * args.m * args.n * (args.output == WgradOutput::kBf16 ? 2 : 4);
      check_cuda(kOp, "cudaMemsetAsync", cudaMemsetAsync(args.dw, 0, bytes, stream));
    }
    return;
  }
  if (args.a_rows_R)
    run<GatheredOperand::kA>(args, args.a, args.a_rows_R, args.m, stream);
  else if (args.b_rows_R)
    run<GatheredOperand::kB>(args, args.b, args.b_rows_R, args.n, stream);
  else
    run<GatheredOperand::kNone>(args, nullptr, nullptr, 0, stream);
}

}  // namespace scatterlm::kernels

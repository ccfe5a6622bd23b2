// Bound by memory: four rows of n per row m. A warp per row, 16 bytes a lane; the lanes' sums meet in a fixed order.
#include "kernels/gate_bwd.h"

#include "kernels/device/ceil_div.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/operand.h"
#include "kernels/device/ptx.cuh"

namespace scatterlm::kernels {
namespace {

constexpr const char* kOp = "gate_bwd";
constexpr int kWarps = 8, kColumns = 8;

__global__ void __launch_bounds__(kWarps * 32) gate_bwd_kernel(const __grid_constant__ GateBwdArgs p) {
  const int64_t m = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (m >= p.num_rows) return;
  const int lane = threadIdx.x % 32;
  const int32_t slot = p.sorted_R[m];
  const float gate = p.gates[slot];
  const auto row = [&](const void* data, const int32_t* rows_R) {
    return static_cast<const uint4*>(data) + (rows_R ? rows_R[m] : m) * (p.n / kColumns);
  };
  const uint4* __restrict__ da = row(p.da, nullptr), * __restrict__ x = row(p.x, p.x_rows_R);
  auto* __restrict__ dx = const_cast<uint4*>(row(p.dx, p.dx_rows_R));
  auto* __restrict__ x_gated = const_cast<uint4*>(row(p.x_gated, nullptr));
  float dot = 0;
  for (int64_t chunk = lane; chunk < p.n / kColumns; chunk += 32) {
    const uint4 da_4 = __ldcs(da + chunk), x_4 = x[chunk];
    const uint32_t da_2[4] = {da_4.x, da_4.y, da_4.z, da_4.w}, x_2[4] = {x_4.x, x_4.y, x_4.z, x_4.w};
    uint32_t dx_2[4], gated_2[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float d[2] = {low_bf16(da_2[i]), high_bf16(da_2[i])}, v[2] = {low_bf16(x_2[i]), high_bf16(x_2[i])};
      dot = fmaf(d[1], v[1], fmaf(d[0], v[0], dot));
      dx_2[i] = pack_bf16(gate * d[0], gate * d[1]);
      gated_2[i] = pack_bf16(gate * v[0], gate * v[1]);
    }
    dx[chunk] = uint4{dx_2[0], dx_2[1], dx_2[2], dx_2[3]};
    x_gated[chunk] = uint4{gated_2[0], gated_2[1], gated_2[2], gated_2[3]};
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) dot += __shfl_xor_sync(~0u, dot, step);
  if (lane == 0) p.dgates[slot] = dot;
}

}  // namespace

void gate_bwd(const GateBwdArgs& args, cudaStream_t stream) {
  check_operand(kOp, "da", args.da, args.n);
  check_operand(kOp, "x", args.x, args.n);
  check_operand(kOp, "dx", args.dx, args.n);
  check_operand(kOp, "x_gated", args.x_gated, args.n);
  if (args.num_rows == 0) return;
  launch(kOp, gate_bwd_kernel, ceil_div(args.num_rows, kWarps), kWarps * 32, 0, args, stream);
}

}  // namespace scatterlm::kernels

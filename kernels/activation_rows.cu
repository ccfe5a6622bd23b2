// Bound by memory: a thread has eight columns of a row, 16 bytes of each matrix.
#include "kernels/activation_rows.h"

#include "kernels/device/ceil_div.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/operand.h"
#include "kernels/grouped_gemm/activations.cuh"

namespace scatterlm::kernels {
namespace {

constexpr const char* kOp = "activation_rows";
constexpr int kThreads = 256, kColumns = 8;

struct FwdParams {
  ActivationRowsArgs args;
  uint4* a;
};
struct BwdParams {
  ActivationRowsArgs args;
  const uint4* da;
  uint4* dh;
};

/// Where eight columns of a row lie, in units of 16 bytes.
struct Place {
  __device__ Place(const ActivationRowsArgs& args, int halves)
      : in_a(int64_t{blockIdx.x} * kThreads + threadIdx.x), half(args.width / kColumns) {
    const int64_t row = in_a / half;
    in_h = in_a + row * half * (halves - 1);
    exists = row < args.num_rows;
  }
  int64_t in_a;  ///< index into a and da
  int64_t half;  ///< from a gate to its up
  int64_t in_h;
  bool exists;
};

struct Pairs {
  uint32_t of[4];
  __device__ explicit Pairs(const uint4& x) : of{x.x, x.y, x.z, x.w} {}
  __device__ uint4 packed() const { return uint4{of[0], of[1], of[2], of[3]}; }
};

template <class Policy>
__global__ void __launch_bounds__(kThreads) fwd_kernel(const __grid_constant__ FwdParams p) {
  const Place at(p.args, Policy::kHalves);
  if (!at.exists) return;
  const auto* h = static_cast<const uint4*>(p.args.h) + at.in_h;
  const Pairs gate(h[0]), up(h[(Policy::kHalves - 1) * at.half]);
  Pairs a(gate);
#pragma unroll
  for (int i = 0; i < 4; ++i) a.of[i] = activate_pair<Policy>(gate.of[i], up.of[i]);
  p.a[at.in_a] = a.packed();
}

template <class Policy>
__global__ void __launch_bounds__(kThreads) bwd_kernel(const __grid_constant__ BwdParams p) {
  const Place at(p.args, Policy::kHalves);
  if (!at.exists) return;
  const int64_t to_up = (Policy::kHalves - 1) * at.half;
  const auto* h = static_cast<const uint4*>(p.args.h) + at.in_h;
  const Pairs da(p.da[at.in_a]);
  Pairs gate(h[0]), up(h[to_up]);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float unused = 0;
    differentiate_pair<Policy>(da.of[i], 1.0f, gate.of[i], up.of[i], unused);
  }
  p.dh[at.in_h] = gate.packed();
  if constexpr (Policy::kHalves == 2) p.dh[at.in_h + to_up] = up.packed();
}

int64_t blocks_of(const ActivationRowsArgs& args) { return ceil_div(args.num_rows * (args.width / kColumns), kThreads); }

}  // namespace

void activation_rows_fwd(const ActivationRowsArgs& args, void* a, cudaStream_t stream) {
  check_operand(kOp, "h", args.h, args.width);
  check_operand(kOp, "a", a, args.width);
  const int64_t blocks = blocks_of(args);
  if (blocks == 0) return;
  const FwdParams params{args, static_cast<uint4*>(a)};
  with_activation(args.activation,
                  [&](auto policy) { launch(kOp, fwd_kernel<decltype(policy)>, blocks, kThreads, 0, params, stream); });
}

void activation_rows_bwd(const ActivationRowsArgs& args, const void* da, void* dh, cudaStream_t stream) {
  check_operand(kOp, "h", args.h, args.width);
  check_operand(kOp, "da", da, args.width);
  check_operand(kOp, "dh", dh, args.width);
  const int64_t blocks = blocks_of(args);
  if (blocks == 0) return;
  const BwdParams params{args, static_cast<const uint4*>(da), static_cast<uint4*>(dh)};
  with_activation(args.activation,
                  [&](auto policy) { launch(kOp, bwd_kernel<decltype(policy)>, blocks, kThreads, 0, params, stream); });
}

}  // namespace scatterlm::kernels

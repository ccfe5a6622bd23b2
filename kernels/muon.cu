// Bound by memory: a thread has eight elements of every array, in accesses of 16 bytes.
#include "kernels/muon.h"

#include "kernels/device/ceil_div.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/operand.h"
#include "kernels/device/vec8.cuh"

namespace scatterlm::kernels {
namespace {

constexpr int kThreads = 256;

template <class State, class Grad>
struct MomentumParams {
  const Grad* grads;
  State* momentum;
  Bf16* updates;
  int64_t count;
  float beta;
  const float* grad_scale;
  const float* skip;
};

template <class State>
struct ApplyParams {
  const Bf16* updates;
  State* weights;
  Bf16* params;
  int64_t count;
  float lr, lr_weight_decay;
  const float* skip;
};

/// Calls step(first, left...) for this thread's elements: `left` is nothing, or how many there are if fewer than eight.
template <class Step>
__device__ __forceinline__ void for_own_elements(int64_t count, const Step& step) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kVec8;
  const int64_t left = count - first;
  if (left >= kVec8)
    step(first);
  else if (left > 0)
    step(first, left);
}

template <class State, class Grad>
__global__ void __launch_bounds__(kThreads) momentum_kernel(const __grid_constant__ MomentumParams<State, Grad> p) {
  for_own_elements(p.count, [&](int64_t first, auto... left) {
    float g[kVec8], m[kVec8], u[kVec8];
    const auto grads = load_packed(p.grads + first, left...);
    const auto momentum = load_packed(p.momentum + first, left...);
    if (*p.skip == 1) return;
    const float inverse_scale = 1 / *p.grad_scale;
    unpack(grads, g);
    unpack(momentum, m);
#pragma unroll
    for (int i = 0; i < kVec8; ++i) {
      g[i] *= inverse_scale;
      m[i] = fmaf(p.beta, m[i], g[i]);
      u[i] = fmaf(p.beta, m[i], g[i]);
    }
    store_vec8(p.momentum + first, left..., m);
    store_vec8(p.updates + first, left..., u);
  });
}

template <class State>
__global__ void __launch_bounds__(kThreads) apply_kernel(const __grid_constant__ ApplyParams<State> p) {
  for_own_elements(p.count, [&](int64_t first, auto... left) {
    float o[kVec8], w[kVec8];
    const auto updates = load_packed(p.updates + first, left...);
    const auto weights = load_packed(p.weights + first, left...);
    if (*p.skip == 1) return;
    unpack(updates, o);
    unpack(weights, w);
#pragma unroll
    for (int i = 0; i < kVec8; ++i) w[i] = fmaf(-p.lr, o[i], fmaf(-p.lr_weight_decay, w[i], w[i]));
    store_vec8(p.weights + first, left..., w);
    if (p.params) store_vec8(p.params + first, left..., w);
  });
}

}  // namespace

void muon_momentum(const MuonMomentumArgs& args, cudaStream_t stream) {
  if (args.count == 0) return;
  check_aligned("muon_momentum", "grads", args.grads);
  check_aligned("muon_momentum", "momentum", args.momentum);
  check_aligned("muon_momentum", "updates", args.updates);
  with_type(args.state_type, [&]<class State>(State) {
    with_type(args.grads_type, [&]<class Grad>(Grad) {
      const MomentumParams<State, Grad> params{static_cast<const Grad*>(args.grads),
                                               static_cast<State*>(args.momentum),
                                               static_cast<Bf16*>(args.updates),
                                               args.count,
                                               static_cast<float>(args.beta),
                                               args.grad_scale,
                                               args.skip};
      launch("muon_momentum", momentum_kernel<State, Grad>, ceil_div(args.count, kThreads * kVec8), kThreads, 0, params,
             stream);
    });
  });
}

void muon_apply(const MuonApplyArgs& args, cudaStream_t stream) {
  if (args.count == 0) return;
  check_aligned("muon_apply", "updates", args.updates);
  check_aligned("muon_apply", "weights", args.weights);
  check_aligned("muon_apply", "params", args.params);
  with_type(args.state_type, [&]<class State>(State) {
    const ApplyParams<State> params{static_cast<const Bf16*>(args.updates),
                                    static_cast<State*>(args.weights),
                                    static_cast<Bf16*>(args.params),
                                    args.count,
                                    static_cast<float>(args.lr),
                                    static_cast<float>(args.lr * args.weight_decay),
                                    args.skip};
    launch("muon_apply", apply_kernel<State>, ceil_div(args.count, kThreads * kVec8), kThreads, 0, params, stream);
  });
}

}  // namespace scatterlm::kernels

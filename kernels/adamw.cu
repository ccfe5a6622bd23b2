// Bound by memory: a thread has eight elements of every array, in accesses of 16 bytes. All loads are issued before the first
// result is used; the only branch around them is one for the end of the arrays.
#include "kernels/adamw.h"

#include <cmath>

#include "kernels/device/ceil_div.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/operand.h"
#include "kernels/device/vec8.cuh"

namespace scatterlm::kernels {
namespace {

constexpr int kThreads = 256;
/// Blocks of a multiprocessor: as many as have enough registers without spills.
template <class State>
constexpr int kBlocks = sizeof(State) == 2 ? 5 : 4;

template <class State, class Grad>
struct Params {
  const Grad* grads;
  State* weights;
  State* exp_avg;
  State* exp_avg_sq;
  Bf16* params;
  int64_t count, num_decayed;
  float lr, beta1, one_minus_beta1, beta2, one_minus_beta2, log_beta1, log_beta2, eps, lr_weight_decay;
  const float* grad_scale;
  const float* skip;
  const float* updates;
};

/// What all elements have in common.
struct Factors {
  float inverse_scale, step, inverse_root2;

  template <class State, class Grad>
  __device__ explicit Factors(const Params<State, Grad>& p) : inverse_scale(1 / *p.grad_scale) {
    const float t = *p.updates;
    // 1 - beta^t, without the cancellation of a difference in fp32.
    const float correction1 = -expm1f(t * p.log_beta1), correction2 = -expm1f(t * p.log_beta2);
    step = p.lr / correction1;
    inverse_root2 = 1 / sqrtf(correction2);
  }
};

/// Eight elements of every array, as they are in memory.
template <class State, class Grad>
struct Elements {
  Vec8<Grad> grads;
  Vec8<State> weights, exp_avg, exp_avg_sq;

  /// `left`: nothing, or how many there are if fewer than eight.
  template <class... Left>
  __device__ void load(const Params<State, Grad>& p, int64_t first, Left... left) {
    grads = load_packed(p.grads + first, left...);
    weights = load_packed(p.weights + first, left...);
    exp_avg = load_packed(p.exp_avg + first, left...);
    exp_avg_sq = load_packed(p.exp_avg_sq + first, left...);
  }
};

template <class State, class Grad>
__global__ void __launch_bounds__(kThreads, kBlocks<State>) adamw_kernel(const __grid_constant__ Params<State, Grad> p) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kVec8;
  const int64_t left = p.count - first;
  Elements<State, Grad> elements;
  if (left >= kVec8)
    elements.load(p, first);
  else
    elements.load(p, first, left);
  auto* shared = dynamic_shared<Factors>();
  if (threadIdx.x == 0) *shared = Factors(p);
  const float skip = *p.skip;
  __syncthreads();
  if (left <= 0 || skip == 1) return;
  const Factors factors = *shared;

  const auto decayed = static_cast<int>(max(int64_t{0}, min(p.num_decayed - first, int64_t{kVec8})));
  float g[kVec8], w[kVec8], m[kVec8], v[kVec8];
  unpack(elements.grads, g);
  unpack(elements.weights, w);
  unpack(elements.exp_avg, m);
  unpack(elements.exp_avg_sq, v);
#pragma unroll
  for (int i = 0; i < kVec8; ++i) {
    g[i] *= factors.inverse_scale;
    m[i] = fmaf(p.beta1, m[i], p.one_minus_beta1 * g[i]);
    v[i] = fmaf(p.beta2, v[i], p.one_minus_beta2 * g[i] * g[i]);
    // Not a product with 1 - lr weight_decay, whose rounding would change the decay of every element alike.
    if (i < decayed) w[i] = fmaf(-p.lr_weight_decay, w[i], w[i]);
    w[i] -= factors.step * m[i] * reciprocal_approximate(fmaf(sqrt_approximate(v[i]), factors.inverse_root2, p.eps));
  }
  const auto store = [&](auto... count) {
    store_vec8(p.weights + first, count..., w);
    store_vec8(p.exp_avg + first, count..., m);
    store_vec8(p.exp_avg_sq + first, count..., v);
    if (p.params) store_vec8(p.params + first, count..., w);
  };
  if (left >= kVec8)
    store();
  else
    store(left);
}

}  // namespace

void adamw(const AdamwArgs& args, cudaStream_t stream) {
  if (args.count == 0) return;
  check_aligned("adamw", "grads", args.grads);
  check_aligned("adamw", "weights", args.weights);
  check_aligned("adamw", "exp_avg", args.exp_avg);
  check_aligned("adamw", "exp_avg_sq", args.exp_avg_sq);
  check_aligned("adamw", "params", args.params);
  const auto f = [](double x) { return static_cast<float>(x); };
  with_type(args.state_type, [&]<class State>(State) {
    with_type(args.grads_type, [&]<class Grad>(Grad) {
      const Params<State, Grad> params{static_cast<const Grad*>(args.grads),
                                       static_cast<State*>(args.weights),
                                       static_cast<State*>(args.exp_avg),
                                       static_cast<State*>(args.exp_avg_sq),
                                       static_cast<Bf16*>(args.params),
                                       args.count,
                                       args.num_decayed,
                                       f(args.lr),
                                       f(args.beta1),
                                       f(1 - args.beta1),
                                       f(args.beta2),
                                       f(1 - args.beta2),
                                       f(std::log(args.beta1)),
                                       f(std::log(args.beta2)),
                                       f(args.eps),
                                       f(args.lr * args.weight_decay),
                                       args.grad_scale,
                                       args.skip,
                                       args.updates};
      launch("adamw", adamw_kernel<State, Grad>, ceil_div(args.count, kThreads * kVec8), kThreads, sizeof(Factors), params,
             stream);
    });
  });
}

}  // namespace scatterlm::kernels

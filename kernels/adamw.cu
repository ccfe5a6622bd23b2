// Bound by memory: a thread has eight elements of every array, in accesses of 16 bytes.
#include "kernels/adamw.h"

#include <cmath>

#include "kernels/device/ceil_div.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/operand.h"
#include "kernels/device/vec8.cuh"

namespace scatterlm::kernels {
namespace {

constexpr int kThreads = 256;

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

template <class State, class Grad>
__global__ void __launch_bounds__(kThreads) adamw_kernel(const __grid_constant__ Params<State, Grad> p) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kVec8;
  const int64_t left = p.count - first;
  if (left <= 0 || *p.skip == 1) return;
  float g[kVec8], w[kVec8], m[kVec8], v[kVec8];
  load_vec8(p.grads + first, left, g);
  load_vec8(p.weights + first, left, w);
  load_vec8(p.exp_avg + first, left, m);
  load_vec8(p.exp_avg_sq + first, left, v);

  const float inverse_scale = 1 / *p.grad_scale, t = *p.updates;
  // 1 - beta^t, without the cancellation of a difference in fp32.
  const float correction1 = -expm1f(t * p.log_beta1), correction2 = -expm1f(t * p.log_beta2);
  const float step = p.lr / correction1, inverse_root2 = 1 / sqrtf(correction2);
#pragma unroll
  for (int i = 0; i < kVec8; ++i) {
    g[i] *= inverse_scale;
    m[i] = fmaf(p.beta1, m[i], p.one_minus_beta1 * g[i]);
    v[i] = fmaf(p.beta2, v[i], p.one_minus_beta2 * g[i] * g[i]);
    // Not a product with 1 - lr weight_decay, whose rounding would change the decay of every element alike.
    if (first + i < p.num_decayed) w[i] = fmaf(-p.lr_weight_decay, w[i], w[i]);
    w[i] -= step * m[i] / fmaf(sqrtf(v[i]), inverse_root2, p.eps);
  }
  store_vec8(p.weights + first, left, w);
  store_vec8(p.exp_avg + first, left, m);
  store_vec8(p.exp_avg_sq + first, left, v);
  if (p.params) store_vec8(p.params + first, left, w);
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
      launch("adamw", adamw_kernel<State, Grad>, ceil_div(args.count, kThreads * kVec8), kThreads, 0, params, stream);
    });
  });
}

}  // namespace scatterlm::kernels

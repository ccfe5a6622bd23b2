// Ops with experts and the kernels of an MoE MLP with SwiGLU in plain LibTorch: what they are checked against, in any
// precision, and compared with. Written here again, apart from lib/ops, so that neither changes when an op gets a kernel. No
// autograd.
#pragma once
#include <ATen/core/Tensor.h>

#include "lib/bench/inputs.h"
#include "lib/ops/parallel_linear.h"

namespace scatterlm::bench::plain {

/// a [R, k] times weight [E, k, n] of the row's expert: at::_grouped_mm of bfloat16 on a GPU, else expert by expert.
at::Tensor grouped_mm(const at::Tensor& a, const at::Tensor& weight, const at::Tensor& offsets_E1);
/// [E, m, n]: sums over the rows of each expert of a [R, m]^T b [R, n].
at::Tensor grouped_wgrad(const at::Tensor& a, const at::Tensor& b, const at::Tensor& offsets_E1);

/// Rows of the tokens in expert order.
at::Tensor gather(const at::Tensor& x_TD, const ops::Routing& routing);
/// Sum of the rows of each token times their gates, or not if gates are undefined.
at::Tensor gather_sum(const at::Tensor& y_RD, const at::Tensor& gates_TK, const ops::Routing& routing);

at::Tensor swiglu(const at::Tensor& h);

/// From da' = dout W2 (see lib/ops/moe_mlp.cpp).
struct SwigluBwd {
  at::Tensor dh, act_gated, dgates_R;
};
SwigluBwd swiglu_bwd(const at::Tensor& da, const at::Tensor& h, const at::Tensor& gates_TK, const ops::Routing& routing);

/// The whole MLP with the inputs' floating tensors in their precision.
struct Forward {
  at::Tensor h, out_TD;
};
Forward forward(const MoeInputs& in, const ops::Routing& routing);

struct Gradients {
  at::Tensor dx_TD, dw1, dw2, dgates_TK;
};
Gradients backward(const MoeInputs& in, const ops::Routing& routing, const at::Tensor& h);

/// lib/ops/parallel_linear.h: gates undefined or [T, K].
struct Linear {
  at::Tensor x, weight, gates_TK;
  ops::RowOrder in_order, out_order;
};
at::Tensor forward(const Linear& linear, const ops::Routing& routing);

struct LinearGradients {
  at::Tensor dx, dweight, dgates_TK;
};
LinearGradients backward(const Linear& linear, const ops::Routing& routing, const at::Tensor& dout);

}  // namespace scatterlm::bench::plain

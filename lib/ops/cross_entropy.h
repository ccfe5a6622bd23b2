#pragma once
#include <ATen/core/Tensor.h>

namespace scatterlm::ops {

/// Sum over tokens of -log softmax(h weight^T)[target], without the [T, V] logits in memory: chunks of tokens, gradients made
/// in forward. h_TD, weight_VD, target_T int64 in 0..V-1 -> fp32 scalar (fp64 of fp64), differentiable in h and weight. Logits
/// and softmax in fp32.
at::Tensor linear_cross_entropy(const at::Tensor& h_TD, const at::Tensor& weight_VD, const at::Tensor& target_T);

namespace ref {
at::Tensor linear_cross_entropy(const at::Tensor& h_TD, const at::Tensor& weight_VD, const at::Tensor& target_T);
}

}  // namespace scatterlm::ops

#pragma once
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <optional>

namespace scatterlm::ops {

/// Tokens of one chunk of linear_cross_entropy(): its logits stay in a cache of the CPU; a GPU wants large products, and few of
/// them, as each reads and writes the gradient of the weights. 2^28 are 1 GiB, and half as much for their gradient in bfloat16.
inline int64_t cross_entropy_chunk(int64_t vocab_size, bool on_cpu) {
  return std::max<int64_t>(256, (on_cpu ? 1 << 18 : 1 << 28) / vocab_size);
}

/// Cross-entropy of a linear layer in nats, summed over tokens: sum_t -log softmax(h_t weight^T)[target_t].
/// h_TD [T, D] and weight_VD [V, D] have one dtype, target_T [T] is int64 in 0..V-1. Returns a float32 scalar (float64 for
/// float64 inputs), differentiable in h and weight. Logits and softmax are computed in float32.
/// The [T, V] logits are never in memory at once: forward works through chunks of tokens and makes the gradients too, as in
/// Hsu et al., "Liger Kernel", arXiv 2410.10989. Throws "[cross_entropy] ..." for wrong shapes or dtypes and, on the CPU, for
/// a target out of range; the kernel makes the loss NaN for such a target.
at::Tensor linear_cross_entropy(const at::Tensor& h_TD, const at::Tensor& weight_VD, const at::Tensor& target_T);

/// One chunk: losses_T [T] receives the losses of logits_TV [T, V], both float32 (float64), with target_T as above. Returns the
/// gradient of their sum in `grad_dtype`, which may lie where the logits were, or an undefined tensor if none is wanted.
at::Tensor softmax_rows(at::Tensor logits_TV, const at::Tensor& target_T, const at::Tensor& losses_T,
                        std::optional<at::ScalarType> grad_dtype);

// Backends for one chunk, of which cross_entropy.cpp picks one. logits_TV [T, V] is float32 or float64, losses_T [T] has its
// dtype and receives the losses; returned is softmax - one hot, [T, V].
namespace ref {  // LibTorch's own operations, on any device
at::Tensor softmax_rows(at::Tensor logits_TV, const at::Tensor& target_T, const at::Tensor& losses_T);
}
namespace cpu {  // overwrites the logits with what it returns
at::Tensor softmax_rows(at::Tensor logits_TV, const at::Tensor& target_T, const at::Tensor& losses_T);
}
namespace cuda {  // nothing where no kernel takes these tensors
/// Returns the gradient in grad_dtype, over the logits if that is their dtype; an undefined tensor if none is wanted.
std::optional<at::Tensor> softmax_rows(const at::Tensor& logits_TV, const at::Tensor& target_T, const at::Tensor& losses_T,
                                       std::optional<at::ScalarType> grad_dtype);
}  // namespace cuda

}  // namespace scatterlm::ops

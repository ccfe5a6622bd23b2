// How much memory a model takes before its first step, without taking it.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "lib/config/config.h"
#include "lib/train/execution_setup.h"

namespace scatterlm {

/// Bytes that one rank holds throughout the training. The activations of a micro-batch come on top.
struct MemoryEstimate {
  int64_t weights = 0;    ///< in the dtype of the training; a master copy counts as optimiser state
  int64_t gradients = 0;  ///< with the buffers that they are exchanged in
  int64_t optimizer = 0;  ///< moments and, where weights and moments differ in dtype, master weights

  int64_t total() const { return weights + gradients + optimizer; }
};

/// Of one of `ranks` ranks. The code of the training itself declares model, gradients and optimiser, on LibTorch's meta device:
/// nothing is allocated, and any size takes milliseconds. Throws Error for more than 1e15 parameters.
MemoryEstimate estimate_memory(const Config& config, at::ScalarType dtype, int64_t ranks);

/// Bytes of the tensors in a checkpoint: master weights and moments. `estimate`: that of a single rank.
int64_t checkpoint_bytes(const MemoryEstimate& estimate, const OptimConfig& config, at::ScalarType dtype);

/// Bytes that the forward and backward pass of a micro-batch take on top.
struct ActivationEstimate {
  double layers = 0;  ///< what forward keeps for the backward pass, of all layers
  double head = 0;    ///< output head: its gradient in fp32, and the logits of a chunk of tokens; or the largest layer

  double total() const { return layers + head; }
};

/// Of `tokens` tokens in one forward pass on a GPU. With D hidden_size, V vocab_size and w bytes of an element:
///
///     layers = tokens * (sum over attentions and MLPs of (2 D w + 4 + saved_bytes of their kind) + 3 D w + 4)
///     head   = 4 V D + c V (4 + w)     c = min(tokens, tokens of a chunk of lib/ops/cross_entropy.h)
///
/// 2 D w + 4 are input, output and scale of the norm before each of them (its input is the residual stream), 3 D w + 4 those of
/// the last norm and the gradient of the hidden state (lib/ops/cross_entropy.h). Where the head is smaller than what the
/// largest attention or MLP saves, that stands for it: gradients of a layer take about as much while it is passed backwards.
/// With `train.recompute: norms` an attention or MLP keeps D w less, and what stands for the head has D w more. With `layer` a
/// layer keeps D w, its input; all that its attention and MLP keep otherwise joins what stands for the head.
/// Not included: the CUDA context, NCCL, fragmentation, document masks, token rounding, and builds without kernels.
ActivationEstimate estimate_activations(const Config& config, at::ScalarType dtype, int64_t tokens);

/// "weights 12.9 GiB, gradients 25.8 GiB, optimiser state 77.3 GiB: 116 GiB per rank (parallel.zero: 1, 1 rank), activations of
/// a micro-batch on top"
std::string describe(const MemoryEstimate& estimate, const ParallelConfig& config, int64_t ranks);

/// Keys that make a training smaller, for the end of a message.
std::string memory_advice();

/// What to say if `local_ranks` ranks of this machine cannot have so much memory at all, each on such a device; nothing if they
/// can. The memory is that of the whole device, in use or not.
std::optional<std::string> explain_too_large(const MemoryEstimate& estimate, at::Device device, int64_t local_ranks);

/// Throws Error saying so: before anything is allocated, since Linux ends a process that takes too much without a word.
void require_memory(const Config& config, const ExecutionSetup& setup, const LaunchEnv& world);

}  // namespace scatterlm

// Less memory for activations, against time: `train.recompute`. Both ways give the bits of the pass that keeps everything,
// because the backward pass runs the same operations again on the same values, and none of them draws random numbers or depends
// on the order of threads.
#pragma once
#include "lib/nn/decoder_layer.h"

namespace scatterlm::nn {

/// `norms`: frees the memory of `normed.y`, which ops between it and `branch` have saved, and fills it again from the saved sum
/// when the gradient of `branch` arrives, before any of those ops runs its backward pass: a router with losses, too, waits for
/// the gradient of its gates. `branch` is what a sub-layer made of y; nothing else may read y. Nothing happens if `branch`
/// needs no gradient. Source: Korthikanti et al., arXiv 2205.05198 (selective recomputation); Megatron-Core frees outputs of
/// norms in this way.
void free_until_backward(const ops::AddedAndNormed& normed, const at::Tensor& norm_weight, double eps,
                         const at::Tensor& branch);

/// `layer`: what `layer` makes of `stream`, of which only the sum is kept (activation checkpointing; Chen et al., arXiv
/// 1604.06174). The backward pass runs the layer again, then its backward pass, in which gradients of parameters arrive as
/// ever: once per pass, and with those of this layer complete before the layer below begins. Router choices are reported once,
/// by the first pass. `layer` must live until then.
ResidualStream forward_keeping_input(const DecoderLayer& layer, ResidualStream stream, Context& context);

}  // namespace scatterlm::nn

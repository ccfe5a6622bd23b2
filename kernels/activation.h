// The activations that GEMM epilogues know.
#pragma once

namespace scatterlm::kernels {

/// Gated: a = f(gate) * up with f = silu, gelu (tanh form), relu. Not gated: a = relu(h)^2, gelu(h).
/// Shazeer, "GLU variants improve transformer", arXiv 2002.05202; So et al., "Primer", 2109.08668 (relu^2).
enum class Activation { kSwiglu, kGeglu, kReglu, kRelu2, kGelu };

}  // namespace scatterlm::kernels

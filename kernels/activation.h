// The activations of MLPs, for kernels and for everything above them.
#pragma once

namespace scatterlm::kernels {

/// Gated: a = f(gate) * up with f = silu, gelu (tanh form), relu. Not gated: a = relu(h)^2, gelu(h).
/// Shazeer, "GLU variants improve transformer", arXiv 2002.05202; So et al., "Primer", 2109.08668 (relu^2).
enum class Activation { kSwiglu, kGeglu, kReglu, kRelu2, kGelu };

/// True for the activations whose up projection has two halves, gate first.
constexpr bool is_gated(Activation a) { return a == Activation::kSwiglu || a == Activation::kGeglu || a == Activation::kReglu; }

}  // namespace scatterlm::kernels

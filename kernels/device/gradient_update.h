#pragma once

namespace scatterlm::kernels {

/// What becomes of a gradient: it is stored, or added to what is there.
enum class GradientUpdate { kStore, kAdd };

}  // namespace scatterlm::kernels

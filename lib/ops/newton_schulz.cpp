#include "lib/ops/newton_schulz.h"

#include <ATen/ATen.h>

namespace scatterlm::ops {

void newton_schulz_(const at::Tensor& matrices, int64_t iterations, double scale) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315;
  constexpr double kTiny = 1e-7;  // a norm far below it is taken for zero
  auto out = matrices.size(1) > matrices.size(2) ? matrices.mT() : matrices;
  const auto norm = at::linalg_vector_norm(out, 2, {1, 2}, /*keepdim=*/true, at::kFloat);
  auto x = out * (norm + kTiny).reciprocal().to(out.scalar_type());
  for (int64_t i = 1; i <= iterations; ++i) {
    const auto gram = at::bmm(x, x.mT());
    const double factor = i < iterations ? 1 : scale;
    const auto polynomial = at::baddbmm(gram, gram, gram, /*beta=*/b * factor, /*alpha=*/c * factor);
    polynomial.diagonal(0, 1, 2).add_(a * factor);  // not a X added by the product below, which would copy X before
    if (i < iterations)
      x = at::bmm(polynomial, x);
    else
      at::bmm_out(out, polynomial, x);
  }
}

}  // namespace scatterlm::ops

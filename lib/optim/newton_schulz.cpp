#include "lib/optim/newton_schulz.h"

#include <ATen/ATen.h>

namespace scatterlm {

at::Tensor newton_schulz(const at::Tensor& matrices, int64_t iterations) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315;
  constexpr double kTiny = 1e-7;  // a norm far below it is taken for zero
  const bool tall = matrices.size(1) > matrices.size(2);
  const auto norm = at::linalg_vector_norm(matrices, 2, {1, 2}, /*keepdim=*/true, at::kFloat);
  auto x = (tall ? matrices.mT() : matrices) * (norm + kTiny).reciprocal().to(matrices.scalar_type());
  for (int64_t i = 0; i < iterations; ++i) {
    const auto gram = at::bmm(x, x.mT());
    x = at::baddbmm(x, at::baddbmm(gram, gram, gram, /*beta=*/b, /*alpha=*/c), x, /*beta=*/a, /*alpha=*/1);
  }
  return tall ? x.mT() : x;
}

}  // namespace scatterlm

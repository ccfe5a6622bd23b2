#include "lib/ops/sum_of_squares.h"

#include <ATen/ATen.h>

#include "lib/ops/accumulate_type.h"

at::Tensor scatterlm::ops::sum_of_squares(const std::vector<at::Tensor>& parts) {
  if (auto sum = cuda::sum_of_squares(parts)) return *sum;
  std::vector<at::Tensor> norms;
  for (const auto& part : parts) {
    // One after the other, as on a CPU, millions of squares in fp32 are off by 1e-4; the tree of a GPU is not.
    const auto sum_type = part.is_cpu() ? at::kDouble : accumulate_type(part);
    norms.push_back(at::linalg_vector_norm(part, 2, {}, false, sum_type));
  }
  return at::stack(norms).square().sum().to(at::kFloat).view({1});
}

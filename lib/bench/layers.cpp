#include "lib/bench/layers.h"

#include <ATen/ATen.h>

namespace scatterlm::bench {

at::Tensor leaf(const at::Tensor& x) { return x.detach().requires_grad_(); }

at::Tensor parameter(const at::Tensor& weight, const at::Tensor& buffer) {
  auto result = leaf(weight);
  result.set_grad_dtype(std::nullopt);  // a bf16 tensor accumulates into fp32
  result.mutable_grad() = buffer;
  return result;
}

at::Tensor gradient_buffer(const at::Tensor& weight) { return at::zeros_like(weight, at::kFloat); }

}  // namespace scatterlm::bench

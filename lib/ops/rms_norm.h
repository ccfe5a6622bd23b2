#pragma once
#include <ATen/core/Tensor.h>

namespace scatterlm::ops {

/// y = (x / sqrt(mean(x^2) + eps), in fp32, cast to x's dtype) * weight over the last dimension.
/// x [..., D], weight [D] -> [..., D]. Zhang and Sennrich, arXiv 1910.07467. Errors: "[rms_norm] ...".
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

namespace ref {
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);
}

}  // namespace scatterlm::ops

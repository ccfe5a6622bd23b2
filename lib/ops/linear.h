#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

namespace scatterlm::ops {

/// y = x weight^T + bias. x [..., N_in], weight [N_out, N_in], bias [N_out] -> [..., N_out]. at::linear with faster products on
/// the CPU.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias = {});

}  // namespace scatterlm::ops

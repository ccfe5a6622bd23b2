// What the ops that call the grouped GEMM kernels (kernels/grouped_gemm.h) share; only *_cuda.cpp files include it.
#pragma once
#include <ATen/core/Tensor.h>

#include "kernels/expert_bias.h"
#include "kernels/grouped_gemm.h"
#include "lib/ops/device.h"

namespace scatterlm::ops {

/// Whether the grouped GEMM kernels take this operand: bfloat16 that kernels can load.
inline bool kernels_take(const at::Tensor& x) { return kernels_can_load(x) && x.scalar_type() == at::kBFloat16; }

/// The routing as the kernels see it, and where they run.
struct ExpertGemms {
  ExpertGemms(const at::Tensor& x, const at::Tensor& offsets_E1, const at::Tensor& tiles_E3, int64_t num_rows)
      : experts{offsets_E1.const_data_ptr<int32_t>(), tiles_E3.mutable_data_ptr<int32_t>(), offsets_E1.size(0) - 1, num_rows},
        sms(num_sms(x)),
        capability(compute_capability(x)),
        stream(current_stream(x)) {}

  /// The product of the rows of `a` with b: rows_R [R] names the row of `a` for each row; nullptr: `a` is in expert order.
  kernels::GroupedProduct times(const at::Tensor& a, const int32_t* rows_R, const at::Tensor& b, int64_t n) const {
    return {experts, a.const_data_ptr(), rows_R, b.const_data_ptr(), n, a.size(1), sms, capability};
  }

  /// Computes the gradient of `weight` [E, m, n] from args.a and args.b; the other arguments are filled in here. Stores it in
  /// its GradientTarget, or adds it to what is there, and returns that target's result().
  at::Tensor weight_gradient(const at::Tensor& weight, kernels::WgradArgs args) const;

  /// The same for the gradient of `bias` [E, n], from args.dy, its rows and gates.
  at::Tensor bias_gradient(const at::Tensor& bias, kernels::ExpertBiasGradArgs args) const;

  kernels::ExpertRows experts;
  int sms, capability;
  CUstream_st* stream;
};

}  // namespace scatterlm::ops

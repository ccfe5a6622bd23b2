// What ops on the kernels of experts (kernels/grouped_gemm.h) share.
#pragma once
#include <ATen/core/Tensor.h>

#include "kernels/expert_bias.h"
#include "kernels/grouped_gemm.h"
#include "lib/ops/device.h"

namespace scatterlm::ops {

inline bool kernels_take(const at::Tensor& x) { return kernels_can_load(x) && x.scalar_type() == at::kBFloat16; }

/// The routing as the kernels see it, and where they run.
struct ExpertGemms {
  ExpertGemms(const at::Tensor& x, const at::Tensor& offsets_E1, const at::Tensor& tiles_E3, int64_t num_rows)
      : experts{offsets_E1.const_data_ptr<int32_t>(), tiles_E3.mutable_data_ptr<int32_t>(), offsets_E1.size(0) - 1, num_rows},
        sms(num_sms(x)),
        capability(compute_capability(x)),
        stream(current_stream(x)) {}

  /// Rows of a, in expert order or named by rows_R, times b.
  kernels::GroupedGemmArgs times(const at::Tensor& a, const int32_t* rows_R, const at::Tensor& b, int64_t n) const {
    return {experts, a.const_data_ptr(), rows_R, b.const_data_ptr(), n, a.size(1), sms, capability};
  }

  /// dW of `weight` [E, m, n] from args.a and args.b. Undefined if it was added straight into the gradient of the weight: that
  /// of a leaf whose gradient is there already, in fp32 or bf16; its post-accumulate hook runs as ever.
  at::Tensor weight_gradient(const at::Tensor& weight, kernels::WgradArgs args) const;

  /// The same for db of `bias` [E, n] from args.dy, rows and gates.
  at::Tensor bias_gradient(const at::Tensor& bias, kernels::ExpertBiasGradArgs args) const;

  kernels::ExpertRows experts;
  int sms, capability;
  CUstream_st* stream;
};

}  // namespace scatterlm::ops

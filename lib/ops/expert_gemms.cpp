#ifdef SCATTERLM_KERNELS
#include "lib/ops/expert_gemms.h"

#include <ATen/ATen.h>

namespace scatterlm::ops {

at::Tensor ExpertGemms::weight_gradient(const at::Tensor& weight, kernels::WgradArgs args) const {
  const bool in_place =
      weight.is_leaf() && weight.grad().defined() && weight.grad().scalar_type() == at::kFloat && weight.grad().is_contiguous();
  auto gradient = in_place ? weight.grad() : at::empty_like(weight);
  args.experts = experts;
  args.num_sms = sms;
  args.compute_capability = capability;
  args.m = weight.size(1);
  args.n = weight.size(2);
  args.dw = gradient.mutable_data_ptr();
  args.output = in_place ? kernels::WgradOutput::kFp32 : kernels::WgradOutput::kBf16;
  args.update = in_place ? kernels::WgradUpdate::kAdd : kernels::WgradUpdate::kStore;
  kernels::grouped_gemm_wgrad(args, stream);
  return in_place ? at::Tensor() : gradient;
}

}  // namespace scatterlm::ops
#endif

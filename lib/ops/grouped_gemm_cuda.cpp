#include "lib/ops/grouped_gemm_cuda.h"

#include <ATen/ATen.h>

#include "lib/ops/gradient_target.h"
#include "lib/ops/kernel_type.h"

namespace scatterlm::ops {

at::Tensor ExpertGemms::weight_gradient(const at::Tensor& weight, kernels::WgradArgs args) const {
  const GradientTarget target(weight);
  args.dw = target.tensor().mutable_data_ptr();
  args.dw_type = kernel_type(target.tensor());
  args.update = target.update();
  args.experts = experts;
  args.num_sms = sms;
  args.compute_capability = capability;
  args.m = weight.size(1);
  args.n = weight.size(2);
  const auto workspace = at::empty({kernels::grouped_gemm_wgrad_workspace_bytes(args)}, weight.options().dtype(at::kByte));
  args.workspace = workspace.mutable_data_ptr();
  kernels::grouped_gemm_wgrad(args, stream);
  return target.result();
}

at::Tensor ExpertGemms::bias_gradient(const at::Tensor& bias, kernels::ExpertBiasGradArgs args) const {
  const GradientTarget target(bias);
  args.db = target.tensor().mutable_data_ptr();
  args.db_type = kernel_type(target.tensor());
  args.update = target.update();
  args.experts = experts;
  args.n = bias.size(1);
  kernels::expert_bias_grad(args, stream);
  return target.result();
}

}  // namespace scatterlm::ops

#include "lib/ops/grouped_gemm_cuda.h"

#include <ATen/ATen.h>

namespace scatterlm::ops {
namespace {

/// Where the gradient of a parameter goes.
struct Destination {
  explicit Destination(const at::Tensor& parameter)
      : in_place(parameter.is_leaf() && parameter.grad().defined() && parameter.grad().is_contiguous() &&
                 (parameter.grad().scalar_type() == at::kFloat || parameter.grad().scalar_type() == at::kBFloat16)),
        gradient(in_place ? parameter.grad() : at::empty_like(parameter)) {}

  /// Tells args.output and args.update; returns the memory.
  template <class Args>
  void* describe(Args& args) const {
    args.output = gradient.scalar_type() == at::kFloat ? kernels::WgradOutput::kFp32 : kernels::WgradOutput::kBf16;
    args.update = in_place ? kernels::WgradUpdate::kAdd : kernels::WgradUpdate::kStore;
    return gradient.mutable_data_ptr();
  }
  at::Tensor result() const { return in_place ? at::Tensor() : gradient; }

  bool in_place;
  at::Tensor gradient;
};

}  // namespace

at::Tensor ExpertGemms::weight_gradient(const at::Tensor& weight, kernels::WgradArgs args) const {
  const Destination destination(weight);
  args.dw = destination.describe(args);
  args.experts = experts;
  args.num_sms = sms;
  args.compute_capability = capability;
  args.m = weight.size(1);
  args.n = weight.size(2);
  kernels::grouped_gemm_wgrad(args, stream);
  return destination.result();
}

at::Tensor ExpertGemms::bias_gradient(const at::Tensor& bias, kernels::ExpertBiasGradArgs args) const {
  const Destination destination(bias);
  args.db = destination.describe(args);
  args.experts = experts;
  args.n = bias.size(1);
  kernels::expert_bias_grad(args, stream);
  return destination.result();
}

}  // namespace scatterlm::ops

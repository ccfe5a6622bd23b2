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

  kernels::DataType type() const {
    return gradient.scalar_type() == at::kFloat ? kernels::DataType::kFloat32 : kernels::DataType::kBfloat16;
  }
  kernels::GradientUpdate update() const { return in_place ? kernels::GradientUpdate::kAdd : kernels::GradientUpdate::kStore; }
  at::Tensor result() const { return in_place ? at::Tensor() : gradient; }

  bool in_place;
  at::Tensor gradient;
};

}  // namespace

at::Tensor ExpertGemms::weight_gradient(const at::Tensor& weight, kernels::WgradArgs args) const {
  const Destination destination(weight);
  args.dw = destination.gradient.mutable_data_ptr();
  args.dw_type = destination.type();
  args.update = destination.update();
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
  args.db = destination.gradient.mutable_data_ptr();
  args.db_type = destination.type();
  args.update = destination.update();
  args.experts = experts;
  args.n = bias.size(1);
  kernels::expert_bias_grad(args, stream);
  return destination.result();
}

}  // namespace scatterlm::ops

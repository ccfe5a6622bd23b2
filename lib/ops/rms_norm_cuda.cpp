#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/rms_norm.h"
#include "lib/ops/device.h"
#include "lib/ops/rms_norm.h"

namespace scatterlm::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

kernels::RmsNormShape shape_of_rows(const at::Tensor& x) {
  return {.type = x.scalar_type() == at::kFloat ? kernels::DataType::kFloat32 : kernels::DataType::kBfloat16,
          .rows = x.numel() / x.size(-1),
          .width = x.size(-1)};
}

/// Contiguous, at a multiple of 16 bytes.
at::Tensor loadable(const at::Tensor& x) { return kernels_can_load(x) ? x : x.clone(at::MemoryFormat::Contiguous); }

const void* data_or_null(const at::Tensor& x) { return x.defined() ? x.const_data_ptr() : nullptr; }

bool kernel_takes_rows(const at::Tensor& x) {
  const auto type = x.scalar_type();
  return has_kernels(x) && (type == at::kBFloat16 || type == at::kFloat) && x.size(-1) > 0 && x.size(-1) % 8 == 0 &&
         x.size(-1) <= kernels::kRmsNormMaxWidth;
}

/// Returns sum and y. Without a branch the sum is x itself, which autograd returns as a view.
class RmsNormKernels : public torch::autograd::Function<RmsNormKernels> {
 public:
  static variable_list forward(AutogradContext* ctx, const at::Tensor& any_x, const std::optional<at::Tensor>& any_branch,
                               const at::Tensor& any_weight, double eps) {
    const c10::DeviceGuard guard(any_x.device());
    const auto x = loadable(any_x), weight = loadable(any_weight);
    const bool adds = any_branch.has_value();
    const auto branch = adds ? loadable(*any_branch) : at::Tensor(), sum = adds ? at::empty_like(x) : x;
    auto y = at::empty_like(x), rstd = at::empty({x.numel() / x.size(-1)}, x.options().dtype(at::kFloat));
    kernels::rms_norm_fwd({.shape = shape_of_rows(x),
                           .x = x.const_data_ptr(),
                           .branch = data_or_null(branch),
                           .weight = weight.const_data_ptr(),
                           .sum = adds ? sum.mutable_data_ptr() : nullptr,
                           .y = y.mutable_data_ptr(),
                           .rstd = rstd.mutable_data_ptr<float>(),
                           .eps = static_cast<float>(eps)},
                          current_stream(x));
    ctx->save_for_backward({sum, weight, rstd});
    ctx->saved_data["adds"] = adds;
    ctx->set_materialize_grads(false);
    return {sum, y};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &rstd = saved[2];
    const bool adds = ctx->saved_data["adds"].toBool();
    const auto& any_dy = grads[1];
    const auto dsum = grads[0].defined() ? loadable(grads[0]) : at::Tensor();
    if (!any_dy.defined()) return {dsum, adds ? dsum : at::Tensor(), {}, {}};
    const c10::DeviceGuard guard(x.device());
    const auto dy = loadable(any_dy);
    auto dx = at::empty_like(x), dweight = at::empty_like(weight);
    const auto shape = shape_of_rows(x);
    const auto bytes = kernels::rms_norm_bwd_workspace_bytes(shape, num_sms(x));
    auto workspace = at::empty({bytes}, x.options().dtype(at::kByte));
    kernels::rms_norm_bwd({.shape = shape,
                           .dy = dy.const_data_ptr(),
                           .dsum = data_or_null(dsum),
                           .x = x.const_data_ptr(),
                           .weight = weight.const_data_ptr(),
                           .rstd = rstd.const_data_ptr<float>(),
                           .dx = dx.mutable_data_ptr(),
                           .dweight = dweight.mutable_data_ptr(),
                           .workspace = static_cast<float*>(workspace.mutable_data_ptr()),
                           .num_sms = num_sms(x)},
                          current_stream(x));
    return {dx, adds ? dx : at::Tensor(), dweight, {}};
  }
};

}  // namespace

std::optional<AddedAndNormed> cuda::add_rms_norm(const at::Tensor& x, const std::optional<at::Tensor>& branch,
                                                 const at::Tensor& weight, double eps) {
  if (!kernel_takes_rows(x)) return {};
  const auto outputs = RmsNormKernels::apply(x, branch, weight, eps);
  return AddedAndNormed{outputs[0], outputs[1]};
}

}  // namespace scatterlm::ops

#include "lib/ops/cross_entropy.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lib/ops/accumulate_type.h"
#include "lib/ops/gemm.h"
#include "lib/ops/gradient_target.h"
#include "lib/ops/shape.h"
#include "lib/util/error.h"

namespace scatterlm::ops {
namespace {

class CrossEntropyFunction : public torch::autograd::Function<CrossEntropyFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& h_TD, const at::Tensor& weight_VD,
                            const at::Tensor& target_T, bool needs_grad) {
    const int64_t tokens = h_TD.size(0), chunk = cross_entropy_chunk(weight_VD.size(0), weight_VD.is_cpu());
    const auto dtype = h_TD.scalar_type();
    auto losses_T = at::empty({tokens}, h_TD.options().dtype(accumulate_type(h_TD)));
    at::Tensor dh_TD, dweight_VD;
    if (needs_grad) {
      dh_TD = at::empty_like(h_TD);
      dweight_VD = at::empty(weight_VD.sizes(), losses_T.options());
      if (tokens == 0) dweight_VD.zero_();
    }
    for (int64_t first = 0; first < tokens; first += chunk) {
      const int64_t last = std::min(tokens, first + chunk);
      const auto h = h_TD.slice(0, first, last);
      const auto dlogits = softmax_rows(wide_gemm(h, weight_VD.t()), target_T.slice(0, first, last),
                                        losses_T.slice(0, first, last), needs_grad ? std::optional(dtype) : std::nullopt);
      if (!needs_grad) continue;
      gemm(dh_TD.slice(0, first, last), dlogits, weight_VD);
      update_gemm(dweight_VD, dlogits.t(), h, first == 0 ? kernels::GradientUpdate::kStore : kernels::GradientUpdate::kAdd);
    }
    if (needs_grad) ctx->save_for_backward({dh_TD, dweight_VD, weight_VD});
    return losses_T.sum();
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &dh_TD = saved[0], &dweight_VD = saved[1], &weight_VD = saved[2], &scale = grads[0];
    return {(dh_TD * scale).to(dh_TD.scalar_type()), weight_gradient(weight_VD, dweight_VD, scale), {}, {}};
  }

 private:
  /// dweight times scale, on a GPU in bfloat16 without rounding, as of every dense product (linear.cpp).
  static at::Tensor weight_gradient(const at::Tensor& weight_VD, const at::Tensor& dweight_VD, const at::Tensor& scale) {
    const bool in_place = weight_VD.is_leaf() && weight_VD.grad().defined() && weight_VD.scalar_type() == at::kBFloat16;
    if (weight_VD.is_cpu() || !in_place) return (dweight_VD * scale).to(dweight_VD.scalar_type());
    const GradientTarget target(weight_VD);
    auto gradient = target.tensor();
    if (target.update() == kernels::GradientUpdate::kStore) {
      at::mul_out(gradient, dweight_VD, scale);
    } else {
      gradient.addcmul_(dweight_VD, scale);
    }
    return target.result();
  }
};

void check(const at::Tensor& h_TD, const at::Tensor& weight_VD, const at::Tensor& target_T) {
  if (h_TD.dim() != 2 || weight_VD.dim() != 2 || weight_VD.size(1) != h_TD.size(1))
    fail("[cross_entropy] h and weight must be [T, D] and [V, D], got {} and {}", shape_of(h_TD), shape_of(weight_VD));
  if (weight_VD.scalar_type() != h_TD.scalar_type())
    fail("[cross_entropy] weight must be {} as h, got {}", c10::toString(h_TD.scalar_type()),
         c10::toString(weight_VD.scalar_type()));
  if (target_T.dim() != 1 || target_T.size(0) != h_TD.size(0) || target_T.scalar_type() != at::kLong)
    fail("[cross_entropy] target must be int64 [T={}], got {} {}", h_TD.size(0), c10::toString(target_T.scalar_type()),
         shape_of(target_T));
  if (!target_T.is_cpu()) return;
  const auto target = target_T.contiguous();
  const auto* ids = target.const_data_ptr<int64_t>();
  for (int64_t t = 0; t < target.size(0); ++t)
    if (ids[t] < 0 || ids[t] >= weight_VD.size(0))
      fail("[cross_entropy] target must be in 0..V-1={}, got {} at token {}", weight_VD.size(0) - 1, ids[t], t);
}

}  // namespace

at::Tensor softmax_rows(at::Tensor logits_TV, const at::Tensor& target_T, const at::Tensor& losses_T,
                        std::optional<at::ScalarType> grad_dtype) {
  if (auto dlogits_TV = cuda::softmax_rows(logits_TV, target_T, losses_T, grad_dtype)) return *dlogits_TV;
  const auto rows = logits_TV.is_cpu() ? cpu::softmax_rows : ref::softmax_rows;
  const auto dlogits_TV = rows(std::move(logits_TV), target_T, losses_T);
  return grad_dtype ? dlogits_TV.to(*grad_dtype) : at::Tensor();
}

at::Tensor linear_cross_entropy(const at::Tensor& h_TD, const at::Tensor& weight_VD, const at::Tensor& target_T) {
  check(h_TD, weight_VD, target_T);
  const bool needs_grad = at::GradMode::is_enabled() && (h_TD.requires_grad() || weight_VD.requires_grad());
  return CrossEntropyFunction::apply(h_TD.contiguous(), weight_VD.contiguous(), target_T.contiguous(), needs_grad);
}

}  // namespace scatterlm::ops

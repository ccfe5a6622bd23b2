#include "lib/ops/cross_entropy.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lib/ops/accumulate_type.h"
#include "lib/ops/cpu_loops.h"
#include "lib/ops/device.h"
#include "lib/ops/gemm.h"
#include "lib/ops/shape.h"

#ifdef SCATTERLM_KERNELS
#include "kernels/cross_entropy.h"
#endif

namespace scatterlm::ops {
namespace {

/// Logits of one chunk: they stay in a cache of the CPU; a GPU wants large products.
int64_t chunk_tokens(const at::Tensor& weight_VD) {
  const int64_t elements = weight_VD.is_cpu() ? 1 << 18 : 1 << 26;
  return std::max<int64_t>(256, elements / weight_VD.size(0));
}

/// Loss of one row of logits; the logits become their gradient, softmax - one hot.
template <class A>
SCATTERLM_VECTOR_CLONES A softmax_row(A* row, int64_t vocab, int64_t target) {
  const A highest = lane_max<A>(vocab, [&](int64_t i) { return row[i]; }), of_target = row[target];
  for (int64_t i = 0; i < vocab; ++i) row[i] = exp_of(row[i] - highest);
  const A sum = lane_sum<A>(vocab, [&](int64_t i) { return row[i]; }), scale = A(1) / sum;
  for (int64_t i = 0; i < vocab; ++i) row[i] *= scale;
  row[target] -= A(1);
  return highest - of_target + std::log(sum);
}

template <class A>
void softmax_rows(at::Tensor& logits_TV, const at::Tensor& target_T, at::Tensor& losses_T) {
  const int64_t vocab = logits_TV.size(1);
  A *logits = logits_TV.mutable_data_ptr<A>(), *losses = losses_T.mutable_data_ptr<A>();
  const auto* target = target_T.const_data_ptr<int64_t>();
  for_rows(logits_TV.size(0), vocab, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) losses[t] = softmax_row(logits + t * vocab, vocab, target[t]);
  });
}

#ifdef SCATTERLM_KERNELS
bool kernel_takes(const at::Tensor& logits_TV, at::ScalarType grad_dtype) {
  return kernels_can_load(logits_TV) && logits_TV.scalar_type() == at::kFloat && logits_TV.size(1) % 8 == 0 &&
         (grad_dtype == at::kFloat || grad_dtype == at::kBFloat16);
}

/// An undefined gradient is not wanted.
void softmax_rows_on_gpu(const at::Tensor& logits_TV, const at::Tensor& target_T, at::Tensor& losses_T,
                         const at::Tensor& dlogits_TV) {
  const c10::DeviceGuard guard(logits_TV.device());
  const bool wanted = dlogits_TV.defined(), fp32 = wanted && dlogits_TV.scalar_type() == at::kFloat;
  kernels::cross_entropy({.logits = logits_TV.const_data_ptr<float>(),
                          .target = target_T.const_data_ptr<int64_t>(),
                          .loss = losses_T.mutable_data_ptr<float>(),
                          .dlogits = wanted ? dlogits_TV.mutable_data_ptr() : nullptr,
                          .dlogits_type = fp32 ? kernels::DataType::kFp32 : kernels::DataType::kBf16,
                          .num_tokens = logits_TV.size(0),
                          .vocab = logits_TV.size(1)},
                         current_stream(logits_TV));
}
#endif

/// Losses of rows of logits, on any device. Returns their gradient in this dtype; it may lie where the logits were.
at::Tensor softmax_rows(at::Tensor logits_TV, const at::Tensor& target_T, at::Tensor losses_T,
                        std::optional<at::ScalarType> grad_dtype) {
#ifdef SCATTERLM_KERNELS
  if (kernel_takes(logits_TV, grad_dtype.value_or(at::kFloat))) {
    const bool in_place = grad_dtype == logits_TV.scalar_type();
    const auto dlogits_TV = !grad_dtype ? at::Tensor()
                            : in_place  ? logits_TV
                                        : at::empty(logits_TV.sizes(), logits_TV.options().dtype(*grad_dtype));
    softmax_rows_on_gpu(logits_TV, target_T, losses_T, dlogits_TV);
    return dlogits_TV;
  }
#endif
  if (!logits_TV.is_cpu()) {
    const auto target_T1 = target_T.unsqueeze(1);
    logits_TV = at::log_softmax(logits_TV, 1);
    losses_T.copy_(-logits_TV.gather(1, target_T1).squeeze(1));
    logits_TV.exp_().scatter_add_(1, target_T1, at::full_like(target_T1, -1, logits_TV.options()));
  } else if (logits_TV.scalar_type() == at::kDouble) {
    softmax_rows<double>(logits_TV, target_T, losses_T);
  } else {
    softmax_rows<float>(logits_TV, target_T, losses_T);
  }
  return grad_dtype ? logits_TV.to(*grad_dtype) : at::Tensor();
}

class CrossEntropyFunction : public torch::autograd::Function<CrossEntropyFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& h_TD, const at::Tensor& weight_VD,
                            const at::Tensor& target_T, bool needs_grad) {
    const int64_t tokens = h_TD.size(0), chunk = chunk_tokens(weight_VD);
    const auto dtype = h_TD.scalar_type();
    auto losses_T = at::empty({tokens}, h_TD.options().dtype(accumulate_type(h_TD)));
    at::Tensor dh_TD, dweight_VD;
    if (needs_grad) {
      dh_TD = at::empty_like(h_TD);
      dweight_VD = at::zeros(weight_VD.sizes(), losses_T.options());
    }
    for (int64_t first = 0; first < tokens; first += chunk) {
      const int64_t last = std::min(tokens, first + chunk);
      const auto h = h_TD.slice(0, first, last);
      const auto dlogits = softmax_rows(wide_gemm(h, weight_VD.t()), target_T.slice(0, first, last),
                                        losses_T.slice(0, first, last), needs_grad ? std::optional(dtype) : std::nullopt);
      if (!needs_grad) continue;
      gemm(dh_TD.slice(0, first, last), dlogits, weight_VD);
      if (dtype == dweight_VD.scalar_type()) {
        gemm_add(dweight_VD, dlogits.t(), h);
      } else {
        dweight_VD += wide_gemm(dlogits.t(), h);
      }
    }
    if (needs_grad) ctx->save_for_backward({dh_TD, dweight_VD});
    return losses_T.sum();
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    return {(saved[0] * grads[0]).to(saved[0].scalar_type()), (saved[1] * grads[0]).to(saved[1].scalar_type()), {}, {}};
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

at::Tensor ref::linear_cross_entropy(const at::Tensor& h_TD, const at::Tensor& weight_VD, const at::Tensor& target_T) {
  const auto wide = accumulate_type(h_TD);
  const auto log_probs = at::log_softmax(at::mm(h_TD.to(wide), weight_VD.to(wide).t()), 1);
  return -log_probs.gather(1, target_T.unsqueeze(1)).sum();
}

at::Tensor linear_cross_entropy(const at::Tensor& h_TD, const at::Tensor& weight_VD, const at::Tensor& target_T) {
  check(h_TD, weight_VD, target_T);
  const bool needs_grad = at::GradMode::is_enabled() && (h_TD.requires_grad() || weight_VD.requires_grad());
  return CrossEntropyFunction::apply(h_TD.contiguous(), weight_VD.contiguous(), target_T.contiguous(), needs_grad);
}

}  // namespace scatterlm::ops

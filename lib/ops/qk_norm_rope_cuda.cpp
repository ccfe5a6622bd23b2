#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/qk_norm_rope.h"
#include "lib/ops/device.h"
#include "lib/ops/qk_norm_rope.h"

namespace scatterlm::ops {
namespace {

using kernels::QkNormRopeShape, kernels::QkNormRows;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

QkNormRopeShape kernel_shape(const at::Tensor& qkv, const QkNormRopeOptions& options, const at::Tensor& cos) {
  const int64_t width = 2 * cos.size(1);
  const auto norm_of = [&](const at::Tensor& weight) {
    return weight.size(0) == width ? QkNormRows::kHead : QkNormRows::kFull;
  };
  return {.type = qkv.scalar_type() == at::kFloat ? kernels::DataType::kFloat32 : kernels::DataType::kBfloat16,
          .norm = options.query_weight ? norm_of(*options.query_weight) : QkNormRows::kNone,
          .batch = qkv.size(0),
          .positions = qkv.size(1),
          .query_heads = options.query_heads,
          .key_heads = options.key_heads,
          .head_dim = width};
}

bool kernel_takes_heads(const at::Tensor& qkv, const QkNormRopeOptions& options, const at::Tensor& cos, const at::Tensor& sin) {
  const auto type = qkv.scalar_type();
  const auto is_table = [&](const at::Tensor& x) {
    return x.scalar_type() == at::kFloat && x.sizes() == at::IntArrayRef({qkv.size(1), cos.size(1)}) && kernels_can_load(x);
  };
  const auto is_weight = [&](const std::optional<at::Tensor>& x) {
    return !x || (x->scalar_type() == type && kernels_can_load(*x));
  };
  return kernels_can_load(qkv) && (type == at::kBFloat16 || type == at::kFloat) && options.clip <= 0 && is_table(cos) &&
         is_table(sin) && is_weight(options.query_weight) && is_weight(options.key_weight) &&
         kernels::qk_norm_rope_takes(kernel_shape(qkv, options, cos));
}

/// A view that autograd does not know as one: it gets the gradient that backward returns.
at::Tensor values_of(const at::Tensor& qkv, const QkNormRopeShape& shape) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const int64_t columns = shape.key_heads * shape.head_dim;
  return qkv.narrow(-1, qkv.size(-1) - columns, columns).unflatten(-1, {shape.key_heads, shape.head_dim});
}

/// Gradients that attention gives, copied only if their heads are not contiguous or not aligned to 16 bytes.
struct HeadGradients {
  explicit HeadGradients(const at::Tensor& any) : tensor(loadable_heads(any) ? any : any.clone(at::MemoryFormat::Contiguous)) {}
  kernels::HeadsMatrix matrix() const {
    return {tensor.const_data_ptr(), tensor.stride(0), tensor.stride(1), tensor.stride(2)};
  }
  static bool loadable_heads(const at::Tensor& x) {
    bool aligned = x.stride(3) == 1 && reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
    for (int i = 0; i < 3; ++i) aligned &= x.stride(i) * x.element_size() % 16 == 0;
    return aligned;
  }

  at::Tensor tensor;
};

class QkNormRopeKernels : public torch::autograd::Function<QkNormRopeKernels> {
 public:
  static variable_list forward(AutogradContext* ctx, const at::Tensor& qkv, const std::optional<at::Tensor>& query_weight,
                               const std::optional<at::Tensor>& key_weight, const at::Tensor& cos, const at::Tensor& sin,
                               const QkNormRopeOptions& options) {
    const c10::DeviceGuard guard(qkv.device());
    const auto shape = kernel_shape(qkv, options, cos);
    const auto heads = [&](int64_t count) {
      return at::empty({shape.batch, shape.positions, count, shape.head_dim}, qkv.options());
    };
    const auto rstds = [&](int64_t count) {
      if (shape.norm == QkNormRows::kNone) return at::Tensor();
      return at::empty({shape.tokens(), shape.norm == QkNormRows::kHead ? count : 1}, qkv.options().dtype(at::kFloat));
    };
    auto q = heads(shape.query_heads), k = heads(shape.key_heads);
    auto q_rstd = rstds(shape.query_heads), k_rstd = rstds(shape.key_heads);
    kernels::qk_norm_rope_fwd({.shape = shape,
                               .qkv = qkv.const_data_ptr(),
                               .cos = cos.const_data_ptr<float>(),
                               .sin = sin.const_data_ptr<float>(),
                               .q_weight = query_weight ? query_weight->const_data_ptr() : nullptr,
                               .k_weight = key_weight ? key_weight->const_data_ptr() : nullptr,
                               .q_rstd = query_weight ? q_rstd.mutable_data_ptr<float>() : nullptr,
                               .k_rstd = key_weight ? k_rstd.mutable_data_ptr<float>() : nullptr,
                               .q = q.mutable_data_ptr(),
                               .k = k.mutable_data_ptr(),
                               .eps = static_cast<float>(options.eps)},
                              current_stream(qkv));
    variable_list saved = {cos, sin};
    if (query_weight) saved.insert(saved.end(), {qkv, *query_weight, *key_weight, q_rstd, k_rstd});
    ctx->save_for_backward(saved);
    ctx->saved_data["query_heads"] = options.query_heads;
    ctx->saved_data["key_heads"] = options.key_heads;
    return {q, k, values_of(qkv, shape)};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &cos = saved[0], &sin = saved[1];
    const c10::DeviceGuard guard(cos.device());
    const HeadGradients dq(grads[0]), dk(grads[1]), dv(grads[2]);
    QkNormRopeOptions options{.query_heads = ctx->saved_data["query_heads"].toInt(),
                              .key_heads = ctx->saved_data["key_heads"].toInt()};
    const bool norm = saved.size() > 2;
    if (norm) options.query_weight = saved[3];
    auto dqkv =
        at::empty({grads[0].size(0), grads[0].size(1), (options.query_heads + 2 * options.key_heads) * grads[0].size(3)},
                  dq.tensor.options());
    const auto shape = kernel_shape(dqkv, options, cos);
    auto workspace =
        at::empty({kernels::qk_norm_rope_bwd_workspace_bytes(shape, num_sms(cos))}, cos.options().dtype(at::kByte));
    kernels::QkNormRopeBwdArgs args{.shape = shape,
                                    .dq = dq.matrix(),
                                    .dk = dk.matrix(),
                                    .dv = dv.matrix(),
                                    .cos = cos.const_data_ptr<float>(),
                                    .sin = sin.const_data_ptr<float>(),
                                    .dqkv = dqkv.mutable_data_ptr(),
                                    .workspace = static_cast<float*>(workspace.mutable_data_ptr()),
                                    .num_sms = num_sms(cos)};
    at::Tensor dq_weight, dk_weight;
    if (norm) {
      dq_weight = at::empty_like(saved[3]);
      dk_weight = at::empty_like(saved[4]);
      args.qkv = saved[2].const_data_ptr();
      args.q_weight = saved[3].const_data_ptr();
      args.k_weight = saved[4].const_data_ptr();
      args.q_rstd = saved[5].const_data_ptr<float>();
      args.k_rstd = saved[6].const_data_ptr<float>();
      args.dq_weight = dq_weight.mutable_data_ptr();
      args.dk_weight = dk_weight.mutable_data_ptr();
    }
    kernels::qk_norm_rope_bwd(args, current_stream(cos));
    return {dqkv, dq_weight, dk_weight, {}, {}, {}};
  }
};

}  // namespace

std::optional<QueriesKeysValues> cuda::qk_norm_rope(const at::Tensor& qkv, const QkNormRopeOptions& options,
                                                    const at::Tensor& cos, const at::Tensor& sin) {
  if (!kernel_takes_heads(qkv, options, cos, sin)) return {};
  const auto out = QkNormRopeKernels::apply(qkv, options.query_weight, options.key_weight, cos, sin, options);
  return QueriesKeysValues{out[0], out[1], out[2]};
}

}  // namespace scatterlm::ops

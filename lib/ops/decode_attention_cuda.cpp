#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "kernels/decode_attention.h"
#include "lib/ops/decode_attention.h"
#include "lib/ops/device.h"
#include "lib/ops/kernel_type.h"

namespace scatterlm::ops {
namespace {

/// Row of each sequence contiguous, at a multiple of 16 bytes.
at::Tensor loadable_sequences(const at::Tensor& x_B1HP) {
  const int64_t sequence = x_B1HP.stride(0) * x_B1HP.element_size();
  const bool loads = x_B1HP.select(0, 0).is_contiguous() && sequence % 16 == 0 &&
                     reinterpret_cast<uintptr_t>(x_B1HP.const_data_ptr()) % 16 == 0;
  return loads ? x_B1HP : x_B1HP.clone(at::MemoryFormat::Contiguous);
}

}  // namespace

std::optional<at::Tensor> cuda::decode_attention(const at::Tensor& q_B1HP, const at::Tensor& any_k, const at::Tensor& any_v,
                                                 KvCacheLayer& cache, const at::Tensor& position, int64_t window) {
  const auto type = q_B1HP.scalar_type();
  const int64_t batch = q_B1HP.size(0), heads = q_B1HP.size(2), width = q_B1HP.size(3);
  if (!has_kernels(q_B1HP) || (type != at::kBFloat16 && type != at::kFloat) || batch == 0 || width % 8 != 0 ||
      width > kernels::kDecodeMaxHeadDim || !kernels_can_load(cache.k) || !kernels_can_load(cache.v))
    return {};
  const c10::DeviceGuard guard(q_B1HP.device());
  const auto q = loadable_sequences(q_B1HP.contiguous()), k = loadable_sequences(any_k), v = loadable_sequences(any_v);
  if (!cache.arrivals.defined() || cache.arrivals.numel() != batch * heads)
    cache.arrivals = at::zeros({batch, heads}, q.options().dtype(at::kInt));
  auto out = at::empty(q.sizes(), q.options());
  kernels::DecodeAttentionArgs args{.type = kernel_type(q),
                                    .q = q.const_data_ptr(),
                                    .k = k.const_data_ptr(),
                                    .v = v.const_data_ptr(),
                                    .k_cache = cache.k.mutable_data_ptr(),
                                    .v_cache = cache.v.mutable_data_ptr(),
                                    .position = position.const_data_ptr<int64_t>(),
                                    .out = out.mutable_data_ptr(),
                                    .arrivals = cache.arrivals.mutable_data_ptr<int32_t>(),
                                    .batch = batch,
                                    .capacity = cache.k.size(1),
                                    .query_heads = heads,
                                    .key_heads = k.size(2),
                                    .head_dim = width,
                                    .k_stride = k.stride(0),
                                    .v_stride = v.stride(0),
                                    .window = window};
  auto workspace = at::empty({kernels::decode_attention_workspace_bytes(args)}, q.options().dtype(at::kByte));
  args.workspace = workspace.mutable_data_ptr();
  kernels::decode_attention(args, current_stream(q));
  return out;
}

}  // namespace scatterlm::ops

// Bound by memory: queries and keys are read and written once.
#include "kernels/device/launch.cuh"
#include "kernels/qk_norm_rope.cuh"

namespace scatterlm::kernels {
namespace {

struct FwdParams {
  QkNormRopeFwdArgs args;
  Section q, k;
  int lanes;
};
/// x = (x rstd) weight, the bracket and the product rounded to T.
template <class T>
__device__ void normalise(float (&x)[kVec8], float rstd, const T* weights) {
  float weight[kVec8];
  load_vec8(weights, weight);
#pragma unroll
  for (float& value : x) value *= rstd;
  round_vec8<T>(x);
#pragma unroll
  for (int i = 0; i < kVec8; ++i) x[i] *= weight[i];
  round_vec8<T>(x);
}

template <class T, QkNormRows kNorm>
__global__ void __launch_bounds__(RowGroup::kMaxThreads) fwd_kernel(const __grid_constant__ FwdParams p) {
  const QkNormRopeFwdArgs& args = p.args;
  const bool keys = blockIdx.x >= p.q.blocks;
  const Section section = keys ? p.k : p.q;
  const RowGroup group(section.group);
  const Slots<T> slots(group, section, p.lanes, args.shape.head_dim);
  const int64_t block = blockIdx.x - (keys ? p.q.blocks : 0), token = block * group.per_block() + group.index;
  const bool exists = token < args.shape.tokens();
  const auto* from = static_cast<const T*>(args.qkv) + token * args.shape.row_width() + section.column;
  Pairs<T> x[Slots<T>::kCount] = {};
#pragma unroll
  for (int j = 0; j < Slots<T>::kCount; ++j)
    if (exists && slots.has(j)) x[j].load(from + slots.column(j), slots.half);

  float low[kVec8], high[kVec8], rstd[Slots<T>::kCount];
  if constexpr (kNorm != QkNormRows::kNone) {
    float* rstds = keys ? args.k_rstd : args.q_rstd;
#pragma unroll
    for (int j = 0; j < Slots<T>::kCount; ++j) {
      x[j].unpack_to(low, high);
      rstd[j] = 0;
#pragma unroll
      for (int i = 0; i < kVec8; ++i) rstd[j] = fmaf(low[i], low[i], fmaf(high[i], high[i], rstd[j]));
    }
    sum_rows<kNorm>(group, p.lanes, rstd, dynamic_shared<float>(), 0);
#pragma unroll
    for (int j = 0; j < Slots<T>::kCount; ++j) {
      rstd[j] = 1.0f / sqrtf(rstd[j] / row_width<kNorm>(section, args.shape.head_dim) + args.eps);
      const bool first = kNorm == QkNormRows::kHead ? slots.lane == 0 : group.thread == 0 && j == 0;
      if (exists && slots.has(j) && first) rstds[rstd_index<kNorm>(slots, section, token, j)] = rstd[j];
    }
  }
  if (!exists || !slots.has(0)) return;
  Angles angles;
  const auto position = static_cast<uint32_t>(token) % static_cast<uint32_t>(args.shape.positions);
  angles.load(args.cos, args.sin, int64_t{position} * slots.half + slots.in_head());
  const auto* weight = static_cast<const T*>(keys ? args.k_weight : args.q_weight);
  auto* to = static_cast<T*>(keys ? args.k : args.q) + token * section.heads * args.shape.head_dim;
#pragma unroll
  for (int j = 0; j < Slots<T>::kCount; ++j) {
    if (!slots.has(j)) continue;
    x[j].unpack_to(low, high);
    if constexpr (kNorm != QkNormRows::kNone) {
      const T* of_slot = weight + weight_column<kNorm>(slots, j);
      normalise(low, rstd[j], of_slot);
      normalise(high, rstd[j], of_slot + slots.half);
    }
    angles.rotate(low, high, 1);
    store_pairs(to + slots.column(j), slots.half, low, high);
  }
}

}  // namespace

void check_shape(const QkNormRopeShape& shape) {
  if (shape.head_dim < 2 * kVec8 || shape.head_dim % (2 * kVec8) != 0)
    throw KernelError("[qk_norm_rope] P must be a multiple of 16, got " + std::to_string(shape.head_dim));
  if (!qk_norm_rope_takes(shape))
    throw KernelError("[qk_norm_rope] " + std::to_string(shape.query_heads) + " heads of " + std::to_string(shape.head_dim) +
                      " are more than a block takes");
}

bool qk_norm_rope_takes(const QkNormRopeShape& shape) {
  return shape.head_dim >= 2 * kVec8 && shape.head_dim % (2 * kVec8) == 0 && lanes_of(shape) <= 32 && shape.key_heads > 0 &&
         shape.key_heads <= shape.query_heads && group_of(shape, shape.query_heads) <= RowGroup::kMaxThreads &&
         shape.tokens() <= INT32_MAX;
}

void qk_norm_rope_fwd(const QkNormRopeFwdArgs& args, cudaStream_t stream) {
  check_shape(args.shape);
  for (const auto& [name, data] : {std::pair{"qkv", args.qkv},
                                   {"q_weight", args.q_weight},
                                   {"k_weight", args.k_weight},
                                   {"q", static_cast<const void*>(args.q)},
                                   {"k", static_cast<const void*>(args.k)}})
    check_pointer(name, data);
  const Layout layout(args.shape, /*resident=*/false, 0);
  const FwdParams params{args, layout.sections[0], layout.sections[1], layout.lanes};
  if (args.shape.tokens() == 0) return;
  with_kernel(args.shape, [&]<class T, QkNormRows kNorm>(T, std::integral_constant<QkNormRows, kNorm>) {
    launch("qk_norm_rope", fwd_kernel<T, kNorm>, params.q.blocks + params.k.blocks, static_cast<int>(layout.threads),
           RowGroup::kSharedFloats * sizeof(float), params, stream);
  });
}

}  // namespace scatterlm::kernels

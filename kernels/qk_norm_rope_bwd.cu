// Bound by memory: everything is read or written once. As many blocks run as the GPU holds at once; each of them adds up its
// positions' part of the weights' gradients.
#include "kernels/device/sum_partials.cuh"
#include "kernels/qk_norm_rope.cuh"

namespace scatterlm::kernels {
namespace {

struct BwdParams {
  QkNormRopeBwdArgs args;
  Section q, k, v;
  int lanes;
};

/// Where a position's heads are in a matrix of gradients.
template <class T>
__device__ const T* heads_at(const HeadsMatrix& matrix, const QkNormRopeShape& shape, int64_t token) {
  const auto positions = static_cast<uint32_t>(shape.positions), n = static_cast<uint32_t>(token);
  return static_cast<const T*>(matrix.data) + n / positions * matrix.stride_b + n % positions * matrix.stride_s;
}

/// The first and the last position of a block, and from one to the next.
struct Tokens {
  int64_t first, end, step;
  __device__ Tokens(const RowGroup& group, const Section& section, int64_t block, const QkNormRopeShape& shape)
      : first(block * group.per_block()), end(shape.tokens()), step(section.blocks * group.per_block()) {}
};

template <class T>
__device__ void copy_values(const BwdParams& p, int64_t block) {
  const QkNormRopeShape& shape = p.args.shape;
  const RowGroup group(p.v.group);
  const Slots<T> slots(group, p.v, p.lanes, shape.head_dim);
  const Tokens tokens(group, p.v, block, shape);
  for (int64_t token = tokens.first + group.index; token < tokens.end; token += tokens.step) {
    const T* from = heads_at<T>(p.args.dv, shape, token) + slots.in_head();
    auto* to = static_cast<T*>(p.args.dqkv) + token * shape.row_width() + p.v.column;
    Pairs<T> x[Slots<T>::kCount];
#pragma unroll
    for (int j = 0; j < Slots<T>::kCount; ++j)
      if (slots.has(j)) x[j].load(from + slots.head(j) * p.args.dv.stride_h, slots.half);
#pragma unroll
    for (int j = 0; j < Slots<T>::kCount; ++j) {
      if (!slots.has(j)) continue;
      store_packed(to + slots.column(j), x[j].low);
      store_packed(to + slots.column(j) + slots.half, x[j].high);
    }
  }
}

/// What the rows of a block add to the gradient of a weight. Slots of one column each in kFull; in kHead all have the same.
template <QkNormRows kNorm, class T>
struct WeightGradient {
  static constexpr int kCount = kNorm == QkNormRows::kFull ? Slots<T>::kCount : 1;
  float low[kCount][kVec8] = {}, high[kCount][kVec8] = {};

  __device__ static void add_to(float* to, const float (&x)[kVec8], bool first) {
    float sum[kVec8] = {};
    if (!first) load_vec8(to, sum);
#pragma unroll
    for (int i = 0; i < kVec8; ++i) sum[i] += x[i];
    store_vec8(to, sum);
  }

  /// Warp after warp, or group after group, adds its part in shared memory.
  __device__ void write(const RowGroup& group, const Slots<T>& slots, int lanes, float* shared, float* partial, int64_t width) {
    const auto warp = static_cast<int>(threadIdx.x) / 32;
    if constexpr (kNorm == QkNormRows::kHead) {
      for (int step = 16; step >= lanes; step /= 2) {
#pragma unroll
        for (int i = 0; i < kVec8; ++i) {
          low[0][i] += __shfl_xor_sync(~0u, low[0][i], step);
          high[0][i] += __shfl_xor_sync(~0u, high[0][i], step);
        }
      }
    }
    const bool head = kNorm == QkNormRows::kHead;
    const int turns = head ? static_cast<int>(blockDim.x) / 32 : group.per_block(), own = head ? warp : group.index;
    for (int turn = 0; turn < turns; ++turn) {
      if (turn == own) {
#pragma unroll
        for (int j = 0; j < kCount; ++j) {
          const bool has = head ? slots.heads > 0 && static_cast<int>(threadIdx.x) % 32 < lanes : slots.has(j);
          if (!has) continue;
          float* to = shared + weight_column<kNorm>(slots, j);
          add_to(to, low[j], turn == 0);
          add_to(to + slots.half, high[j], turn == 0);
        }
      }
      __syncthreads();
    }
    for (int64_t column = threadIdx.x; column < width; column += blockDim.x) partial[column] = shared[column];
  }
};

template <QkNormRows kNorm>
__host__ __device__ int64_t weight_width(const Section& section, int64_t head_dim) {
  return kNorm == QkNormRows::kHead ? head_dim : section.heads * head_dim;
}

template <class T, QkNormRows kNorm>
__global__ void __launch_bounds__(RowGroup::kMaxThreads) bwd_kernel(const __grid_constant__ BwdParams p) {
  const QkNormRopeBwdArgs& args = p.args;
  const QkNormRopeShape& shape = args.shape;
  const int64_t in_qk = blockIdx.x - p.q.blocks - p.k.blocks;
  if (in_qk >= 0) return copy_values<T>(p, in_qk);
  const bool keys = blockIdx.x >= p.q.blocks;
  const Section section = keys ? p.k : p.q;
  const int64_t block = blockIdx.x - (keys ? p.q.blocks : 0);
  const HeadsMatrix& dy = keys ? args.dk : args.dq;
  const RowGroup group(section.group);
  const Slots<T> slots(group, section, p.lanes, shape.head_dim);
  const auto* weight = static_cast<const T*>(keys ? args.k_weight : args.q_weight);
  const float* rstds = keys ? args.k_rstd : args.q_rstd;
  auto* shared = dynamic_shared<float>();
  WeightGradient<kNorm, T> dweight;
  const Tokens tokens(group, section, block, shape);
  int turn = 0;
  for (int64_t first = tokens.first; first < tokens.end; first += tokens.step, ++turn) {
    const int64_t token = first + group.index, offset = token * shape.row_width() + section.column;
    const bool exists = token < tokens.end;
    const T* from = heads_at<T>(dy, shape, token) + slots.in_head();
    Pairs<T> grads[Slots<T>::kCount] = {}, x[Slots<T>::kCount] = {};
    float rstd[Slots<T>::kCount] = {}, mean[Slots<T>::kCount] = {};
#pragma unroll
    for (int j = 0; j < Slots<T>::kCount; ++j) {
      if (!exists || !slots.has(j)) continue;
      grads[j].load(from + slots.head(j) * dy.stride_h, slots.half);
      if constexpr (kNorm != QkNormRows::kNone) {
        x[j].load(static_cast<const T*>(args.qkv) + offset + slots.column(j), slots.half);
        rstd[j] = rstds[rstd_index<kNorm>(slots, section, token, j)];
      }
    }
    Angles angles = {};
    const auto position = static_cast<uint32_t>(token) % static_cast<uint32_t>(shape.positions);
    if (exists && slots.has(0)) angles.load(args.cos, args.sin, int64_t{position} * slots.half + slots.in_head());
    float low[Slots<T>::kCount][kVec8], high[Slots<T>::kCount][kVec8];  // of dy
#pragma unroll
    for (int j = 0; j < Slots<T>::kCount; ++j) {
      grads[j].unpack_to(low[j], high[j]);
      angles.rotate(low[j], high[j], -1);
    }
    if constexpr (kNorm != QkNormRows::kNone) {
      float n_low[kVec8], n_high[kVec8], weight_low[kVec8], weight_high[kVec8];
#pragma unroll
      for (int j = 0; j < Slots<T>::kCount; ++j) {
        if (!exists || !slots.has(j)) continue;
        constexpr int kRow = WeightGradient<kNorm, T>::kCount - 1;
        x[j].unpack_to(n_low, n_high);
        const T* of_slot = weight + weight_column<kNorm>(slots, j);
        load_vec8(of_slot, weight_low);
        load_vec8(of_slot + slots.half, weight_high);
#pragma unroll
        for (int i = 0; i < kVec8; ++i) {
          n_low[i] *= rstd[j];
          n_high[i] *= rstd[j];
          float &dweight_low = dweight.low[min(j, kRow)][i], &dweight_high = dweight.high[min(j, kRow)][i];
          dweight_low = fmaf(low[j][i], n_low[i], dweight_low);
          dweight_high = fmaf(high[j][i], n_high[i], dweight_high);
          low[j][i] *= weight_low[i];
          high[j][i] *= weight_high[i];
          mean[j] = fmaf(low[j][i], n_low[i], fmaf(high[j][i], n_high[i], mean[j]));
        }
      }
      sum_rows<kNorm>(group, p.lanes, mean, shared, turn);
#pragma unroll
      for (int j = 0; j < Slots<T>::kCount; ++j) {
        mean[j] /= row_width<kNorm>(section, shape.head_dim);
        x[j].unpack_to(n_low, n_high);
#pragma unroll
        for (int i = 0; i < kVec8; ++i) {
          low[j][i] = rstd[j] * (low[j][i] - n_low[i] * rstd[j] * mean[j]);
          high[j][i] = rstd[j] * (high[j][i] - n_high[i] * rstd[j] * mean[j]);
        }
      }
    }
#pragma unroll
    for (int j = 0; j < Slots<T>::kCount; ++j)
      if (exists && slots.has(j))
        store_pairs(static_cast<T*>(args.dqkv) + offset + slots.column(j), slots.half, low[j], high[j]);
  }
  if constexpr (kNorm != QkNormRows::kNone) {
    const int64_t width = weight_width<kNorm>(section, shape.head_dim);
    float* partials = args.workspace + (keys ? p.q.blocks * weight_width<kNorm>(p.q, shape.head_dim) : 0);
    dweight.write(group, slots, p.lanes, shared + RowGroup::kSharedFloats, partials + block * width, width);
  }
}

int64_t weight_width_of(const QkNormRopeShape& shape, int64_t heads) {
  return shape.norm == QkNormRows::kNone ? 0 : shape.norm == QkNormRows::kHead ? shape.head_dim : heads * shape.head_dim;
}

}  // namespace

int64_t qk_norm_rope_bwd_workspace_bytes(const QkNormRopeShape& shape, int64_t num_sms) {
  const Layout layout(shape, /*resident=*/true, num_sms);
  int64_t floats = 0;
  for (const auto& section : {layout.sections[0], layout.sections[1]})
    floats += section.blocks * weight_width_of(shape, section.heads);
  return floats * static_cast<int64_t>(sizeof(float));
}

void qk_norm_rope_bwd(const QkNormRopeBwdArgs& args, cudaStream_t stream) {
  check_shape(args.shape);
  for (const auto& [name, data] : {std::pair{"dq", args.dq.data},
                                   {"dk", args.dk.data},
                                   {"dv", args.dv.data},
                                   {"qkv", args.qkv},
                                   {"q_weight", args.q_weight},
                                   {"k_weight", args.k_weight},
                                   {"dqkv", static_cast<const void*>(args.dqkv)}})
    check_pointer(name, data);
  const Layout layout(args.shape, /*resident=*/true, args.num_sms);
  const auto& [q, k, v] = layout.sections;
  const BwdParams params{args, q, k, v, layout.lanes};
  const int64_t q_width = weight_width_of(args.shape, q.heads), k_width = weight_width_of(args.shape, k.heads);
  const auto shared = static_cast<uint32_t>((RowGroup::kSharedFloats + q_width) * sizeof(float));
  with_kernel(args.shape, [&]<class T, QkNormRows kNorm>(T, std::integral_constant<QkNormRows, kNorm>) {
    if (args.shape.tokens() > 0)
      launch("qk_norm_rope_bwd", bwd_kernel<T, kNorm>, params.q.blocks + params.k.blocks + params.v.blocks,
             static_cast<int>(layout.threads), shared, params, stream);
    if constexpr (kNorm == QkNormRows::kNone) return;
    const float* k_partials = args.workspace + params.q.blocks * q_width;
    sum_partials<T>("qk_norm_dweight", {args.workspace, static_cast<T*>(args.dq_weight), params.q.blocks, q_width}, stream);
    sum_partials<T>("qk_norm_dweight", {k_partials, static_cast<T*>(args.dk_weight), params.k.blocks, k_width}, stream);
  });
}

}  // namespace scatterlm::kernels

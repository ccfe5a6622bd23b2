// Bound by memory, and by latency where few positions are seen: a step of decoding has one such kernel in each layer.
//
// The positions that a query sees are cut into splits of at least 64, at most 64 of them, so that a long cache keeps all
// multiprocessors busy (Dao et al., "Flash-Decoding for long-context inference", 2023). A block has one split of one query
// head; the host knows the capacity alone, so it launches blocks for all splits there can be, and those without positions end
// at once. Row groups of P / 8 lanes, rounded up to a power of two, take positions in turn, four at a time; each keeps a
// softmax of its own. These meet first in the warp, then in shared memory, then, by the block of a head that comes last, in the
// workspace: always in the order of the positions, so no order of arrival enters the result.
#include "kernels/decode_attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/device/ceil_div.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/operand.h"
#include "kernels/device/row_group.cuh"
#include "kernels/device/vec8.cuh"

namespace scatterlm::kernels {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32, kAtOnce = 4;
constexpr int kMaxSplits = 64, kMinPositions = 64;
constexpr float kLowest = -3e38f;  // below every score; differences of it are finite, unlike those of infinity
static_assert(kThreads >= kDecodeMaxHeadDim);

struct DecodeParams {
  DecodeAttentionArgs args;
  int splits;     ///< that have blocks
  int lanes;      ///< of a row group
  float scale;    ///< 1 / sqrt(P)
  float* values;  ///< [B H, splits, P]: sums of the splits
  float* stats;   ///< [B H, splits, 2]: highest score and sum of weights of the splits
};

/// The positions of a block.
struct Split {
  int64_t begin, end;
  int count;  ///< of splits that have positions

  __device__ Split(const DecodeAttentionArgs& args, int index) {
    const int64_t seen_end = *args.position + 1;
    const int64_t first = args.window > 0 ? max(seen_end - args.window, int64_t{0}) : int64_t{0};
    const int64_t seen = seen_end - first;
    const int64_t size = max(int64_t{kMinPositions}, (seen + kMaxSplits - 1) / kMaxSplits);
    count = static_cast<int>((seen + size - 1) / size);
    begin = first + index * size;
    end = min(begin + size, seen_end);
  }
};

/// Weighted sum of values with weights exp(score - highest), of which a lane has eight columns.
struct WeightedSum {
  float highest = kLowest, weights = 0, values[kVec8] = {};

  __device__ void raise(float higher) {
    const float factor = expf(highest - higher);
    highest = higher;
    weights *= factor;
#pragma unroll
    for (float& value : values) value *= factor;
  }
  __device__ void add(float weight, const float (&x)[kVec8]) {
    weights += weight;
#pragma unroll
    for (int i = 0; i < kVec8; ++i) values[i] = fmaf(weight, x[i], values[i]);
  }
  /// Both lanes whose numbers differ in the bits of `step` get the sum of both.
  __device__ void add_lane(int step) {
    raise(fmaxf(highest, __shfl_xor_sync(~0u, highest, step)));
    weights += __shfl_xor_sync(~0u, weights, step);
#pragma unroll
    for (float& value : values) value += __shfl_xor_sync(~0u, value, step);
  }
};

/// One split of one head.
template <class T>
__device__ WeightedSum attend(const DecodeParams& p, const Split& split, int64_t b, int64_t h) {
  const DecodeAttentionArgs& args = p.args;
  const RowGroup group(p.lanes);
  const int64_t column = group.thread * kVec8, row = args.key_heads * args.head_dim;
  const bool has_column = column < args.head_dim;
  const int64_t key_head = h / (args.query_heads / args.key_heads), from = key_head * args.head_dim + column;
  const T* new_k = static_cast<const T*>(args.k) + b * args.k_stride + from;
  const T* new_v = static_cast<const T*>(args.v) + b * args.v_stride + from;
  const T* keys = static_cast<const T*>(args.k_cache) + b * args.capacity * row + from;
  const T* values = static_cast<const T*>(args.v_cache) + b * args.capacity * row + from;
  const int64_t newest = *args.position;
  float q[kVec8] = {};
  if (has_column) load_vec8(static_cast<const T*>(args.q) + (b * args.query_heads + h) * args.head_dim + column, q);
#pragma unroll
  for (float& x : q) x *= p.scale;

  WeightedSum sum;
  const int groups = group.per_block();
  for (int64_t first = split.begin; first < split.end; first += groups * kAtOnce) {
    Vec8<T> k[kAtOnce] = {}, v[kAtOnce] = {};
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int64_t position = first + n * groups + group.index;
      if (position >= split.end || !has_column) continue;
      k[n] = load_packed(position == newest ? new_k : keys + position * row);
      v[n] = load_packed(position == newest ? new_v : values + position * row);
    }
    float score[kAtOnce], highest = sum.highest;
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      float key[kVec8], dot = 0;
      unpack(k[n], key);
#pragma unroll
      for (int i = 0; i < kVec8; ++i) dot = fmaf(q[i], key[i], dot);
      score[n] = RowGroup::sum_of_lanes(dot, p.lanes);
      if (first + n * groups + group.index < split.end) highest = fmaxf(highest, score[n]);
    }
    sum.raise(highest);
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      float value[kVec8];
      unpack(v[n], value);
      if (first + n * groups + group.index < split.end) sum.add(expf(score[n] - highest), value);
    }
  }
  for (int step = p.lanes; step < 32; step *= 2) sum.add_lane(step);
  return sum;
}

/// The new key and value of one key-value head to their places.
template <class T>
__device__ void store_new(const DecodeAttentionArgs& args, int64_t b, int64_t key_head) {
  const int chunks = static_cast<int>(args.head_dim / kVec8), chunk = static_cast<int>(threadIdx.x) % chunks;
  if (static_cast<int>(threadIdx.x) >= 2 * chunks) return;
  const bool is_key = static_cast<int>(threadIdx.x) < chunks;
  const int64_t from = key_head * args.head_dim + chunk * kVec8;
  const int64_t to = (b * args.capacity + *args.position) * args.key_heads * args.head_dim + from;
  if (is_key)
    store_packed(static_cast<T*>(args.k_cache) + to, load_packed(static_cast<const T*>(args.k) + b * args.k_stride + from));
  else
    store_packed(static_cast<T*>(args.v_cache) + to, load_packed(static_cast<const T*>(args.v) + b * args.v_stride + from));
}

/// Sums that met: highest score and sum of weights, and of this thread's column the value.
struct Total {
  float highest = kLowest, weights = 0, value = 0;

  /// stats: highest score and sum of weights of each of `count` sums; value_of(i): of sum i in this thread's column.
  template <class ValueOf>
  __device__ Total(const float* stats, int count, ValueOf&& value_of) {
    for (int i = 0; i < count; ++i) highest = fmaxf(highest, stats[2 * i]);
#pragma unroll 4
    for (int i = 0; i < count; ++i) {
      const float factor = expf(stats[2 * i] - highest);
      weights = fmaf(factor, stats[2 * i + 1], weights);
      value = fmaf(factor, value_of(i), value);
    }
  }
};

/// Shared memory: stats of the warps, then of the splits, [kMaxSplits, 2]; whether this block comes last; sums of the warps,
/// [kWarps, P].
constexpr int kLastFlag = 2 * kMaxSplits, kWarpSums = kLastFlag + 4;

template <class T>
__global__ void __launch_bounds__(kThreads) decode_attention_kernel(const __grid_constant__ DecodeParams p) {
  const DecodeAttentionArgs& args = p.args;
  const int index = static_cast<int>(blockIdx.x % static_cast<unsigned>(p.splits));
  const Split split(args, index);
  if (index >= split.count) return;
  const int64_t head = blockIdx.x / static_cast<unsigned>(p.splits), b = head / args.query_heads, h = head % args.query_heads;
  const WeightedSum sum = attend<T>(p, split, b, h);
  const int64_t group = args.query_heads / args.key_heads;
  if (index == split.count - 1 && h % group == 0) store_new<T>(args, b, h / group);

  auto* stats = dynamic_shared<float>();
  float* sums = stats + kWarpSums;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int width = static_cast<int>(args.head_dim);
  if (lane * kVec8 < width) store_vec8(sums + warp * width + lane * kVec8, sum.values);
  if (lane == 0) {
    stats[2 * warp] = sum.highest;
    stats[2 * warp + 1] = sum.weights;
  }
  __syncthreads();
  const bool has_column = thread < width;
  const Total of_split(stats, kWarps, [&](int i) { return has_column ? sums[i * width + thread] : 0.0f; });
  T* out = static_cast<T*>(args.out) + head * width + thread;
  if (split.count == 1) {
    if (has_column) store(out, of_split.value / of_split.weights);
    return;
  }

  float *values = p.values + head * p.splits * width, *split_stats = p.stats + head * p.splits * 2;
  if (has_column) values[index * width + thread] = of_split.value;
  if (thread == 0) {
    split_stats[2 * index] = of_split.highest;
    split_stats[2 * index + 1] = of_split.weights;
  }
  __threadfence();
  __syncthreads();
  if (thread == 0) stats[kLastFlag] = atomicAdd(args.arrivals + head, 1) == split.count - 1 ? 1.0f : 0.0f;
  __syncthreads();
  if (stats[kLastFlag] == 0.0f) return;
  __threadfence();
  for (int i = thread; i < 2 * split.count; i += kThreads) stats[i] = __ldcg(split_stats + i);
  __syncthreads();
  const Total total(stats, split.count, [&](int i) { return has_column ? __ldcg(values + i * width + thread) : 0.0f; });
  if (has_column) store(out, total.value / total.weights);
  if (thread == 0) args.arrivals[head] = 0;
}

/// Of the capacity, or of the window.
int64_t splits_of(const DecodeAttentionArgs& args) {
  const int64_t most = args.window > 0 ? std::min(args.window, args.capacity) : args.capacity;
  return std::clamp<int64_t>(ceil_div(most, int64_t{kMinPositions}), 1, kMaxSplits);
}

void check(const DecodeAttentionArgs& args) {
  const auto wrong = [](const std::string& what) { throw KernelError("[decode_attention] " + what); };
  if (args.head_dim < kVec8 || args.head_dim % kVec8 != 0 || args.head_dim > kDecodeMaxHeadDim)
    wrong("P must be a multiple of 8 up to " + std::to_string(kDecodeMaxHeadDim) + ", got " + std::to_string(args.head_dim));
  if (args.key_heads < 1 || args.query_heads % args.key_heads != 0)
    wrong("H must be a multiple of Hkv, got " + std::to_string(args.query_heads) + " and " + std::to_string(args.key_heads));
  if (args.k_stride % kVec8 != 0 || args.v_stride % kVec8 != 0)
    wrong("sequences of k and v must be multiples of 8 elements apart, got " + std::to_string(args.k_stride) + " and " +
          std::to_string(args.v_stride));
  for (const auto& [name, data] : {std::pair{"q", args.q},
                                   {"k", args.k},
                                   {"v", args.v},
                                   {"k_cache", static_cast<const void*>(args.k_cache)},
                                   {"v_cache", static_cast<const void*>(args.v_cache)}})
    check_aligned("decode_attention", name, data);
}

}  // namespace

int64_t decode_attention_workspace_bytes(const DecodeAttentionArgs& args) {
  return args.batch * args.query_heads * splits_of(args) * (args.head_dim + 2) * static_cast<int64_t>(sizeof(float));
}

void decode_attention(const DecodeAttentionArgs& args, cudaStream_t stream) {
  check(args);
  const int64_t heads = args.batch * args.query_heads, splits = splits_of(args);
  if (heads == 0 || args.capacity == 0) return;
  auto* values = static_cast<float*>(args.workspace);
  const DecodeParams params{.args = args,
                            .splits = static_cast<int>(splits),
                            .lanes = static_cast<int>(group_threads(args.head_dim / kVec8, 1)),
                            .scale = 1 / std::sqrt(static_cast<float>(args.head_dim)),
                            .values = values,
                            .stats = values + heads * splits * args.head_dim};
  const auto shared_bytes = static_cast<uint32_t>((kWarpSums + kWarps * args.head_dim) * sizeof(float));
  with_type(args.type, [&]<class T>(T) {
    launch("decode_attention", decode_attention_kernel<T>, heads * splits, kThreads, shared_bytes, params, stream);
  });
}

}  // namespace scatterlm::kernels

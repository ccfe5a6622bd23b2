// How the kernels of kernels/qk_norm_rope.h share out their work. A block has queries, or keys, or in backward values, of some
// positions; a group of its threads has a position. A thread has one or two slots: eight neighbouring pairs of a head, so that
// the lanes of a head are a power of two in one warp, and the same in every slot.
#pragma once
#include <algorithm>
#include <string>
#include <type_traits>

#include "kernels/device/ceil_div.h"
#include "kernels/device/operand.h"
#include "kernels/device/row_group.cuh"
#include "kernels/device/vec8.cuh"
#include "kernels/qk_norm_rope.h"

namespace scatterlm::kernels {
/// Slots of a thread: two of bf16, one of fp32, because of their registers.
constexpr int slots_of(int element_bytes) { return 4 / element_bytes; }

/// Lanes of a head; some have nothing to do where P / 16 is no power of two.
inline int64_t lanes_of(const QkNormRopeShape& shape) { return group_threads(shape.head_dim / (2 * kVec8), 1); }

inline int64_t group_of(const QkNormRopeShape& shape, int64_t heads) {
  const int64_t lanes = lanes_of(shape);
  return group_threads(heads * lanes, slots_of(size_of(shape.type)), lanes);
}

/// Queries, keys or values of every row of qkv.
struct Section {
  int heads, group;
  int64_t column;  ///< in the row
  int64_t blocks;  ///< that have it
};

struct Layout {
  /// `resident`: with as many blocks as the GPU holds, a multiprocessor 512 threads of 128 registers. Otherwise with one for
  /// every row that it has.
  Layout(const QkNormRopeShape& shape, bool resident, int64_t num_sms)
      : lanes(static_cast<int>(lanes_of(shape))), threads(std::max<int64_t>(kRowThreads, group_of(shape, shape.query_heads))) {
    const int64_t heads[] = {shape.query_heads, shape.key_heads, shape.key_heads};
    // A third matrix is read where there is a norm, but not for values.
    const int64_t cost = shape.norm == QkNormRows::kNone ? 2 : 3;
    const int64_t costs[] = {cost * heads[0], cost * heads[1], 2 * heads[2]}, all = costs[0] + costs[1] + costs[2];
    const int64_t all_blocks = num_sms * (RowGroup::kMaxThreads / threads);
    int64_t column = 0;
    for (int i = 0; i < 3; ++i) {
      const int64_t group = group_of(shape, heads[i]), row_blocks = ceil_div(shape.tokens(), threads / group);
      const int64_t share = std::max<int64_t>(1, all_blocks * costs[i] / all);
      sections[i] = {static_cast<int>(heads[i]), static_cast<int>(group), column,
                     resident ? std::min(row_blocks, share) : row_blocks};
      column += heads[i] * shape.head_dim;
    }
  }

  Section sections[3];
  int lanes;
  int64_t threads;
};

/// What the slots of a thread are of a position.
template <class T>
struct Slots {
  static constexpr int kCount = slots_of(sizeof(T));

  __device__ Slots(const RowGroup& group, const Section& section, int lanes, int64_t head_dim)
      : lane(static_cast<int>(threadIdx.x) % lanes),
        first_head(group.thread / lanes),
        step(group.size / lanes),
        heads(lane * 2 * kVec8 < head_dim ? section.heads : 0),
        head_dim(static_cast<int>(head_dim)),
        half(static_cast<int>(head_dim) / 2) {}
  __device__ int head(int j) const { return first_head + j * step; }
  __device__ bool has(int j) const { return head(j) < heads; }
  /// Of the first of eight low elements; the high ones are `half` after.
  __device__ int in_head() const { return lane * kVec8; }
  __device__ int column(int j) const { return head(j) * head_dim + in_head(); }

  int lane, first_head, step;
  int heads;  ///< 0 for a lane without columns
  int head_dim, half;
};

/// Eight pairs.
template <class T>
struct Pairs {
  Vec8<T> low, high;

  __device__ void load(const T* from, int half) {
    low = load_packed(from);
    high = load_packed(from + half);
  }
  __device__ void unpack_to(float (&l)[kVec8], float (&h)[kVec8]) const {
    unpack(low, l);
    unpack(high, h);
  }
};

template <class T>
__device__ void store_pairs(T* to, int half, const float (&low)[kVec8], const float (&high)[kVec8]) {
  store_vec8(to, low);
  store_vec8(to + half, high);
}

/// Cosines and sines of a thread's pairs at one position.
struct Angles {
  float cos[kVec8], sin[kVec8];

  __device__ void load(const float* cosines, const float* sines, int64_t offset) {
    load_vec8(cosines + offset, cos);
    load_vec8(sines + offset, sin);
  }
  /// sign 1, or -1 to rotate back.
  __device__ void rotate(float (&low)[kVec8], float (&high)[kVec8], float sign) const {
#pragma unroll
    for (int i = 0; i < kVec8; ++i) {
      const float l = low[i], h = high[i], turn = sign * sin[i];
      low[i] = l * cos[i] - h * turn;
      high[i] = h * cos[i] + l * turn;
    }
  }
};

/// What RMSNorm takes together: the sums of slots over their row.
template <QkNormRows kNorm, int kCount>
__device__ void sum_rows(const RowGroup& group, int lanes, float (&x)[kCount], float* shared, int turn) {
  if constexpr (kNorm == QkNormRows::kHead) {
#pragma unroll
    for (float& of_slot : x) of_slot = RowGroup::sum_of_lanes(of_slot, lanes);
  } else {
    float all = 0;
#pragma unroll
    for (const float of_slot : x) all += of_slot;
    all = group.sum(all, shared, turn);
#pragma unroll
    for (float& of_slot : x) of_slot = all;
  }
}

template <QkNormRows kNorm, class T>
__device__ int weight_column(const Slots<T>& slots, int j) {
  return kNorm == QkNormRows::kHead ? slots.in_head() : slots.column(j);
}
template <QkNormRows kNorm>
__device__ float row_width(const Section& section, int64_t head_dim) {
  return static_cast<float>(kNorm == QkNormRows::kHead ? head_dim : section.heads * head_dim);
}
/// Of the row of slot j.
template <QkNormRows kNorm, class T>
__device__ int64_t rstd_index(const Slots<T>& slots, const Section& section, int64_t token, int j) {
  return kNorm == QkNormRows::kHead ? token * section.heads + slots.head(j) : token;
}

/// visit(an element of the type, what is normalised as a constant).
template <class Visit>
void with_kernel(const QkNormRopeShape& shape, Visit&& visit) {
  with_type(shape.type, [&](auto element) {
    switch (shape.norm) {
      case QkNormRows::kNone: return visit(element, std::integral_constant<QkNormRows, QkNormRows::kNone>());
      case QkNormRows::kHead: return visit(element, std::integral_constant<QkNormRows, QkNormRows::kHead>());
      case QkNormRows::kFull: return visit(element, std::integral_constant<QkNormRows, QkNormRows::kFull>());
    }
  });
}

inline void check_pointer(const char* name, const void* data) { check_operand("qk_norm_rope", name, data, kVec8); }

/// Throws KernelError for what the kernels do not take.
void check_shape(const QkNormRopeShape& shape);

}  // namespace scatterlm::kernels

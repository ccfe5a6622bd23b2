// Bound by memory: every matrix is read or written once. A group of threads has a row, which stays in its registers; a thread
// has up to four times eight columns of it. Backward runs as many blocks as the GPU holds at once, each of which adds up its
// rows' part of dweight.
#include "kernels/rms_norm.h"

#include <algorithm>

#include "kernels/device/operand.h"
#include "kernels/device/row_group.cuh"
#include "kernels/device/sum_partials.cuh"

namespace scatterlm::kernels {
namespace {

constexpr const char* kOp = "rms_norm";
constexpr int kMaxChunks = 4;

/// How rows are shared out.
struct Layout {
  explicit Layout(const RmsNormShape& shape)
      : group(group_threads(shape.width / kVec8, kMaxChunks)),
        threads(std::max<int64_t>(kRowThreads, group)),
        chunks(static_cast<int>(ceil_div(shape.width / kVec8, group))),
        row_blocks(ceil_div(shape.rows, threads / group)) {}
  /// Of backward; a multiprocessor holds 512 threads of 128 registers.
  int64_t resident_blocks(int64_t num_sms) const { return std::min(row_blocks, num_sms * (RowGroup::kMaxThreads / threads)); }

  int64_t group, threads;
  int chunks;          ///< of eight columns a thread
  int64_t row_blocks;  ///< blocks that have all rows once
};

struct FwdParams {
  RmsNormFwdArgs args;
  int group;
};
struct BwdParams {
  RmsNormBwdArgs args;
  int group;
};

/// The columns of a thread in one row of each of several matrices.
template <int kChunks>
struct Columns {
  int64_t row;
  int64_t first, step, width;
  bool exists;

  __device__ Columns(const RowGroup& group, const RmsNormShape& shape, int64_t row)
      : row(row), first(group.thread * kVec8), step(group.size * kVec8), width(shape.width), exists(row < shape.rows) {}
  __device__ bool has(int chunk) const { return exists && first + chunk * step < width; }
  __device__ int64_t column(int chunk) const { return first + chunk * step; }
  __device__ int64_t offset(int chunk) const { return row * width + column(chunk); }

  /// Zeros where there is nothing.
  template <class T>
  __device__ void load(const void* matrix, Vec8<T> (&x)[kChunks]) const {
#pragma unroll
    for (int j = 0; j < kChunks; ++j)
      x[j] = matrix && has(j) ? load_packed(static_cast<const T*>(matrix) + offset(j)) : Vec8<T>{};
  }
};

template <class T, int kChunks>
__global__ void __launch_bounds__(RowGroup::kMaxThreads) fwd_kernel(const __grid_constant__ FwdParams p) {
  const RmsNormFwdArgs& args = p.args;
  const RowGroup group(p.group);
  const Columns<kChunks> at(group, args.shape, int64_t{blockIdx.x} * group.per_block() + group.index);
  Vec8<T> x[kChunks], branch[kChunks];
  at.load(args.x, x);
  at.load(args.branch, branch);
  float square = 0;
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
    float a[kVec8], b[kVec8];
    unpack(x[j], a);
    if (args.branch) {
      unpack(branch[j], b);
#pragma unroll
      for (int i = 0; i < kVec8; ++i) a[i] += b[i];
      pack(a, x[j]);
      if (at.has(j)) store_packed(static_cast<T*>(args.sum) + at.offset(j), x[j]);
      unpack(x[j], a);
    }
#pragma unroll
    for (int i = 0; i < kVec8; ++i) square = fmaf(a[i], a[i], square);
  }
  square = group.sum(square, dynamic_shared<float>(), 0);
  const float rstd = 1.0f / sqrtf(square / static_cast<float>(args.shape.width) + args.eps);
  if (at.exists && group.thread == 0) args.rstd[at.row] = rstd;
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
    if (!at.has(j)) continue;
    float y[kVec8], weight[kVec8];
    unpack(x[j], y);
    load_vec8(static_cast<const T*>(args.weight) + at.column(j), weight);
#pragma unroll
    for (int i = 0; i < kVec8; ++i) y[i] *= rstd;
    round_vec8<T>(y);
#pragma unroll
    for (int i = 0; i < kVec8; ++i) y[i] *= weight[i];
    store_vec8(static_cast<T*>(args.y) + at.offset(j), y);
  }
}

/// The block's sum of dweight: group after group adds its part in shared memory.
template <int kChunks>
__device__ void write_partial(const RowGroup& group, const RmsNormBwdArgs& args, const float (&part)[kChunks][kVec8],
                              float* shared) {
  for (int turn = 0; turn < group.per_block(); ++turn) {
    if (group.index == turn) {
#pragma unroll
      for (int j = 0; j < kChunks; ++j) {
        const int64_t column = (j * group.size + group.thread) * kVec8;
        if (column >= args.shape.width) continue;
        float sum[kVec8] = {};
        if (turn > 0) load_vec8(shared + column, sum);
#pragma unroll
        for (int i = 0; i < kVec8; ++i) sum[i] += part[j][i];
        store_vec8(shared + column, sum);
      }
    }
    __syncthreads();
  }
  float* partial = args.workspace + blockIdx.x * args.shape.width;
  for (int64_t column = threadIdx.x; column < args.shape.width; column += blockDim.x) partial[column] = shared[column];
}

template <class T, int kChunks>
__global__ void __launch_bounds__(RowGroup::kMaxThreads) bwd_kernel(const __grid_constant__ BwdParams p) {
  const RmsNormBwdArgs& args = p.args;
  const RowGroup group(p.group);
  auto* shared = dynamic_shared<float>();
  float dweight[kChunks][kVec8] = {};
  int turn = 0;
  for (int64_t first = int64_t{blockIdx.x} * group.per_block(); first < args.shape.rows;
       first += int64_t{gridDim.x} * group.per_block(), ++turn) {
    const Columns<kChunks> at(group, args.shape, first + group.index);
    Vec8<T> dy[kChunks], x[kChunks], dsum[kChunks];
    at.load(args.dy, dy);
    at.load(args.x, x);
    at.load(args.dsum, dsum);
    const float rstd = at.exists ? args.rstd[at.row] : 0;
    float dot = 0, g[kVec8], n[kVec8], weight[kVec8];
#pragma unroll
    for (int j = 0; j < kChunks; ++j) {
      if (!at.has(j)) continue;
      unpack(dy[j], g);
      unpack(x[j], n);
      load_vec8(static_cast<const T*>(args.weight) + at.column(j), weight);
#pragma unroll
      for (int i = 0; i < kVec8; ++i) dot = fmaf(g[i] * weight[i], n[i] * rstd, dot);
    }
    const float mean = group.sum(dot, shared, turn) / static_cast<float>(args.shape.width);
#pragma unroll
    for (int j = 0; j < kChunks; ++j) {
      if (!at.has(j)) continue;
      float dx[kVec8];
      unpack(dy[j], g);
      unpack(x[j], n);
      unpack(dsum[j], dx);
      load_vec8(static_cast<const T*>(args.weight) + at.column(j), weight);
#pragma unroll
      for (int i = 0; i < kVec8; ++i) {
        n[i] *= rstd;
        dx[i] += rstd * (g[i] * weight[i] - n[i] * mean);
        dweight[j][i] = fmaf(g[i], n[i], dweight[j][i]);
      }
      store_vec8(static_cast<T*>(args.dx) + at.offset(j), dx);
    }
  }
  write_partial(group, args, dweight, shared + RowGroup::kSharedFloats);
}

void check(const RmsNormShape& shape) {
  if (shape.width > kRmsNormMaxWidth)
    throw KernelError("[rms_norm] D must be at most " + std::to_string(kRmsNormMaxWidth) + ", got " +
                      std::to_string(shape.width));
}

/// visit(an element of the type, chunks of a thread as a constant).
template <class Visit>
void with_kernel(DataType type, int chunks, Visit&& visit) {
  with_type(type, [&](auto element) {
    if (chunks == 1) return visit(element, std::integral_constant<int, 1>());
    if (chunks == 2) return visit(element, std::integral_constant<int, 2>());
    if (chunks == 3) return visit(element, std::integral_constant<int, 3>());
    visit(element, std::integral_constant<int, 4>());
  });
}

}  // namespace

void rms_norm_fwd(const RmsNormFwdArgs& args, cudaStream_t stream) {
  check(args.shape);
  for (const auto& [name, data] : {std::pair{"x", args.x}, {"branch", args.branch}, {"weight", args.weight}, {"y", args.y}})
    check_operand(kOp, name, data, args.shape.width);
  if (args.branch) check_operand(kOp, "sum", args.sum, args.shape.width);
  if (args.shape.rows == 0) return;
  const Layout layout(args.shape);
  const FwdParams params{args, static_cast<int>(layout.group)};
  with_kernel(args.shape.type, layout.chunks, [&]<class T, int kChunks>(T, std::integral_constant<int, kChunks>) {
    launch(kOp, fwd_kernel<T, kChunks>, layout.row_blocks, static_cast<int>(layout.threads),
           RowGroup::kSharedFloats * sizeof(float), params, stream);
  });
}

int64_t rms_norm_bwd_workspace_bytes(const RmsNormShape& shape, int64_t num_sms) {
  return Layout(shape).resident_blocks(num_sms) * shape.width * static_cast<int64_t>(sizeof(float));
}

void rms_norm_bwd(const RmsNormBwdArgs& args, cudaStream_t stream) {
  check(args.shape);
  for (const auto& [name, data] : {std::pair{"dy", args.dy},
                                   {"dsum", args.dsum},
                                   {"x", args.x},
                                   {"weight", args.weight},
                                   {"dx", static_cast<const void*>(args.dx)}})
    check_operand(kOp, name, data, args.shape.width);
  const Layout layout(args.shape);
  const int64_t blocks = layout.resident_blocks(args.num_sms);
  const BwdParams params{args, static_cast<int>(layout.group)};
  const auto shared = static_cast<uint32_t>((RowGroup::kSharedFloats + args.shape.width) * sizeof(float));
  with_kernel(args.shape.type, layout.chunks, [&]<class T, int kChunks>(T, std::integral_constant<int, kChunks>) {
    if (blocks > 0)
      launch("rms_norm_bwd", bwd_kernel<T, kChunks>, blocks, static_cast<int>(layout.threads), shared, params, stream);
    sum_partials<T>("rms_norm_dweight", {args.workspace, static_cast<T*>(args.dweight), blocks, args.shape.width}, stream);
  });
}

}  // namespace scatterlm::kernels

// Operands of a tile: how 128 rows (m or n) of 32 k come to shared memory, and from there to the registers of mma.sync. One
// class for each dimension that may be contiguous; both give fragments in the same form, so either can be A or B.
//
// Threads copy 16 bytes each (cp.async), what lies outside as zeros. Chunks of 16 bytes are swizzled so that eight rows of a
// matrix load lie in different banks.
#pragma once
#include "kernels/device/mma.cuh"
#include "kernels/device/ptx.cuh"

namespace scatterlm::kernels::portable {

constexpr int kThreads = 256;
constexpr int kBlockK = 32;
constexpr uint32_t kOperandBytes = 128 * kBlockK * 2;

/// Byte offset of 16-byte chunk `chunk` in rows of 256 bytes.
__device__ __forceinline__ uint32_t swizzled_256(int row, int chunk) {
  return static_cast<uint32_t>(row * 256 + ((chunk ^ (row & 7)) << 4));
}
/// The same in rows of 64 bytes, two of which share the banks.
__device__ __forceinline__ uint32_t swizzled_64(int row, int chunk) {
  return static_cast<uint32_t>(row * 64 + ((chunk ^ (row >> 1 & 3)) << 4));
}

/// Rows that k runs along, [128][32 k] in shared memory. Thread t copies chunk t % 4 of rows t / 4 and t / 4 + 64.
class RowsAlongK {
 public:
  /// data [rows, k]; row_of(i) is the row of `data` that is row i of the tile, negative for zeros.
  template <class RowOf>
  __device__ RowsAlongK(const void* data, int k, RowOf&& row_of) : k_(k) {
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      const int64_t row = row_of(row_in_tile(j));
      inside_[j] = row >= 0;
      from_[j] = static_cast<const char*>(data) + (inside_[j] ? row : 0) * k * 2 + chunk() * 16;
    }
  }

  __device__ void load(uint32_t to, int block) const {
    const bool in_k = block * kBlockK + chunk() * 8 < k_;
#pragma unroll
    for (int j = 0; j < kRows; ++j)
      copy_16_bytes_async(to + swizzled_64(row_in_tile(j), chunk()), from_[j] + block * (kBlockK * 2),
                          in_k && inside_[j] ? 16 : 0);
  }

  /// Rows mn .. mn + 15 of k .. k + 15: register i has rows 8 (i % 2) + lane / 4, k 8 (i / 2) + 2 (lane % 4) + {0, 1}.
  __device__ static void fragment(uint32_t (&value)[4], uint32_t from, int mn, int k) {
    const int lane = threadIdx.x % 32;
    load_matrices(from + swizzled_64(mn + lane % 16, k / 8 + lane / 16), value);
  }

 private:
  static constexpr int kRows = 2;
  __device__ static int row_in_tile(int j) { return threadIdx.x / 4 + j * 64; }
  __device__ static int chunk() { return threadIdx.x % 4; }

  const char* from_[kRows];
  bool inside_[kRows];
  int k_;
};

/// Rows that are the k, [32 k][128] in shared memory, transposed on the way to registers. Thread t copies chunk t % 16 of rows
/// t / 16 and t / 16 + 16.
class RowsAsK {
 public:
  /// Rows row .. row_end - 1 of data [rows, width], or rows_R of these, from column `column` on. Blocks are loaded in order.
  __device__ RowsAsK(const void* data, int width, const int32_t* rows_R, int row, int row_end, int column)
      : from_(static_cast<const char*>(data) + (column + chunk() * 8) * 2),
        rows_R_(rows_R),
        row_bytes_(int64_t{width} * 2),
        row_(row + threadIdx.x / 16),
        row_end_(column + chunk() * 8 < width ? row_end : row) {
#pragma unroll
    for (int j = 0; j < kRows; ++j) index_[j] = index_of(row_ + j * 16);
  }

  __device__ void load(uint32_t to, int block) {
    const int next = row_ + (block + 1) * kBlockK;
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      const int index = index_[j];
      index_[j] = index_of(next + j * 16);  // one block ahead: the copy must not wait for it
      copy_16_bytes_async(to + swizzled_256(threadIdx.x / 16 + j * 16, chunk()), from_ + max(index, 0) * row_bytes_,
                          index < 0 ? 0 : 16);
    }
  }

  /// As RowsAlongK's.
  __device__ static void fragment(uint32_t (&value)[4], uint32_t from, int mn, int k) {
    const int lane = threadIdx.x % 32;
    load_matrices_transposed(from + swizzled_256(k + lane / 16 * 8 + lane % 8, mn / 8 + lane / 8 % 2), value);
  }

 private:
  static constexpr int kRows = 2;
  __device__ static int chunk() { return threadIdx.x % 16; }
  __device__ int index_of(int row) const { return row >= row_end_ ? -1 : (rows_R_ ? __ldg(rows_R_ + row) : row); }

  const char* from_;
  const int32_t* rows_R_;
  int64_t row_bytes_;
  int row_, row_end_;
  int index_[kRows];
};

}  // namespace scatterlm::kernels::portable

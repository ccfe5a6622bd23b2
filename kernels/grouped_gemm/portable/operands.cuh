// Operands of a tile: how rows (m or n) of one block of k come to shared memory, and from there to the registers of mma.sync.
// One class for each dimension that may be contiguous; either can be A or B.
//
// Threads copy 16 bytes each (cp.async). What lies outside of k comes as zeros; rows m or n that are outside may hold anything,
// since nothing of them is stored. Chunks of 16 bytes are swizzled so that eight rows of a matrix load lie in different banks.
#pragma once
#include "kernels/device/mma.cuh"
#include "kernels/device/ptx.cuh"
#include "kernels/grouped_gemm/portable/tile.h"

namespace scatterlm::kernels::portable {

/// Byte offset of 16-byte chunk `chunk` in rows of kRowBytes. Rows of 64 bytes share the banks in pairs.
template <int kRowBytes>
__device__ __forceinline__ uint32_t swizzled(int row, int chunk) {
  static_assert(kRowBytes == 64 || kRowBytes % 128 == 0);
  const int mask = kRowBytes == 64 ? row >> 1 & 3 : row & 7;
  return static_cast<uint32_t>(row * kRowBytes + ((chunk ^ mask) << 4));
}

/// The operand's part in mma.sync. Of the four 8 x 8 matrices of 16 rows and 16 k, registers 0 and 1 of A are the first k of
/// all rows, those of B (a pair must be neighbours) all k of the first rows. mn, k: where in the 16 x 16 the matrix is whose
/// address this lane gives.
struct AsA {
  __device__ static int mn() { return threadIdx.x / 8 % 2 * 8; }
  __device__ static int k() { return threadIdx.x / 16 % 2 * 8; }
};
struct AsB {
  __device__ static int mn() { return threadIdx.x / 16 % 2 * 8; }
  __device__ static int k() { return threadIdx.x / 8 % 2 * 8; }
};

/// Rows that k runs along, [kCount][kBlockK] in shared memory. The threads copy kThreads / kChunks rows at a time.
template <class Part, int kCount>
class RowsAlongK {
 public:
  static constexpr uint32_t kBytes = kCount * kBlockK * 2;

  /// data [rows, k]; row_of(i) is the row of `data` that is row i of the tile.
  template <class RowOf>
  __device__ RowsAlongK(const void* data, int k, RowOf&& row_of) : k_(k) {
#pragma unroll
    for (int j = 0; j < kCopies; ++j)
      from_[j] = static_cast<const char*>(data) + (int64_t{row_of(row_in_tile(j))} * k + chunk() * 8) * 2;
  }

  __device__ void load(uint32_t to, int block) const {
    const uint32_t bytes = block * kBlockK + chunk() * 8 < k_ ? 16 : 0;
#pragma unroll
    for (int j = 0; j < kCopies; ++j)
      copy_16_bytes_async(to + swizzled<kBlockK * 2>(row_in_tile(j), chunk()), from_[j] + block * (kBlockK * 2), bytes);
  }

  /// What this lane adds to a stage's address to load fragments of rows from `mn` on, a multiple of 16.
  __device__ static uint32_t fragments_at(int mn) {
    return swizzled<kBlockK * 2>(mn + Part::mn() + threadIdx.x % 8, Part::k() / 8);
  }
  /// Rows 16 i .. 16 i + 15 from there, k .. k + 15.
  __device__ static void fragment(uint32_t (&value)[4], uint32_t at, int i, int k) {
    load_matrices((at ^ k * 2) + i * 16 * (kBlockK * 2), value);
  }

 private:
  static constexpr int kChunks = kBlockK / 8, kCopies = kCount * kChunks / kThreads;
  __device__ static int row_in_tile(int j) { return threadIdx.x / kChunks + j * (kThreads / kChunks); }
  __device__ static int chunk() { return threadIdx.x % kChunks; }

  const char* from_[kCopies];
  int k_;
};

/// Rows that are the k, [kBlockK][kCount] in shared memory, transposed on the way to registers. The threads copy
/// kThreads / kChunks rows at a time.
template <class Part, int kCount>
class RowsAsK {
 public:
  static constexpr uint32_t kBytes = kCount * kBlockK * 2;

  /// Rows row .. row_end - 1 of data [rows, width], or rows_R of these, from column `column` on. Blocks are loaded in order.
  __device__ RowsAsK(const void* data, int width, const int32_t* rows_R, int row, int row_end, int column)
      : from_(static_cast<const char*>(data) + (column + chunk() * 8 < width ? column + chunk() * 8 : 0) * 2),
        rows_R_(rows_R),
        row_bytes_(width * 2),
        row_(row + row_in_block(0)),
        row_end_(row_end) {
#pragma unroll
    for (int j = 0; j < kCopies; ++j) index_[j] = index_of(0, j);
  }

  __device__ void load(uint32_t to, int block) {
#pragma unroll
    for (int j = 0; j < kCopies; ++j) {
      const int index = index_[j];
      index_[j] = index_of(block + 1, j);  // one block ahead: the copy must not wait for it
      copy_16_bytes_async(to + swizzled<kCount * 2>(row_in_block(j), chunk()),
                          from_ + uint64_t{static_cast<uint32_t>(max(index, 0))} * row_bytes_, index < 0 ? 0 : 16);
    }
  }

  /// As RowsAlongK's; mn is a multiple of 64.
  __device__ static uint32_t fragments_at(int mn) {
    return swizzled<kCount * 2>(Part::k() + threadIdx.x % 8, (mn + Part::mn()) / 8);
  }
  __device__ static void fragment(uint32_t (&value)[4], uint32_t at, int i, int k) {
    load_matrices_transposed((at ^ i * 32) + k * (kCount * 2), value);
  }

 private:
  static constexpr int kChunks = kCount / 8, kCopies = kBlockK * kChunks / kThreads;
  __device__ static int row_in_block(int j) { return threadIdx.x / kChunks + j * (kThreads / kChunks); }
  __device__ static int chunk() { return threadIdx.x % kChunks; }
  /// Row of `data` that copy j of a block reads, or -1.
  __device__ int index_of(int block, int j) const {
    const int row = row_ + block * kBlockK + j * (kThreads / kChunks);
    return row >= row_end_ ? -1 : (rows_R_ ? __ldg(rows_R_ + row) : row);
  }

  const char* from_;
  const int32_t* rows_R_;
  uint32_t row_bytes_;
  int row_, row_end_;
  int index_[kCopies];
};

}  // namespace scatterlm::kernels::portable

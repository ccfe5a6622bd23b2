// Which block computes which tile: the next one goes to the block whose loaders first ask for it. A multiprocessor that another
// kernel holds for a while, as NCCL's do during a backward pass, then delays one tile and not its share of all tiles.
#pragma once
#include "kernels/device/ptx.cuh"

namespace scatterlm::kernels::hopper {

/// By each of `arrivals` threads of the grid when its part of the grid needs the counters no more; the last one clears them.
/// The upper half of counters[1] is the kernel's own.
__device__ inline void finish_tiles(int32_t* counters, unsigned arrivals) {
  if ((static_cast<unsigned>(atomicAdd(counters + 1, 1)) & 0xFFFF) == arrivals - 1) counters[0] = counters[1] = 0;
}

/// Of one block, for the kThreads threads that load; all of them call take().
template <int kThreads>
class TileCounter {
 public:
  /// counters: both 0 when the kernel starts and again when it ends. shared: 32 bytes, aligned to as many.
  __device__ TileCounter(int32_t* counters, uint32_t shared) : counters_(counters), shared_(shared) {}

  /// Asks for the next number. It comes from L2, so it is asked for one tile ahead.
  __device__ void ask() {
    if (threadIdx.x == 0) number_ = atomicAdd(counters_, 1);
  }
  /// The number asked for.
  __device__ int take() {
    if constexpr (kThreads > 1) {
      shared_ ^= 16;  // by turns: a thread may still read the number before
      if (threadIdx.x == 0) store_shared(shared_, static_cast<uint32_t>(number_));
      named_barrier_sync(3, kThreads);
      number_ = static_cast<int>(load_shared(shared_).x);
    }
    return number_;
  }
  /// When the number taken was behind the last tile, if nobody else needs the counters.
  __device__ void finish() {
    if (threadIdx.x == 0) finish_tiles(counters_, gridDim.x);
  }

 private:
  int32_t* counters_;
  uint32_t shared_;
  int number_ = 0;
};

}  // namespace scatterlm::kernels::hopper

// Which block computes which tile: the next one goes to the block whose loaders first ask for it. A multiprocessor that another
// kernel holds for a while, as NCCL's do during a backward pass, then delays one tile and not its share of all tiles.
#pragma once
#include "kernels/device/ptx.cuh"

namespace scatterlm::kernels::hopper {

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
  /// When the number taken was behind the last tile. The last block to come here clears the counters.
  __device__ void finish() {
    if (threadIdx.x == 0 && atomicAdd(counters_ + 1, 1) == static_cast<int>(gridDim.x) - 1) counters_[0] = counters_[1] = 0;
  }

 private:
  int32_t* counters_;
  uint32_t shared_;
  int number_ = 0;
};

}  // namespace scatterlm::kernels::hopper

// The ring of stages between the warpgroup that loads and the two that compute, and where everything stands in shared memory.
#pragma once
#include "kernels/device/ptx.cuh"
#include "kernels/device/shared_matrix.cuh"
#include "kernels/grouped_gemm/tile_scheduler.h"

namespace scatterlm::kernels::hopper {

constexpr int kTileColumns = 256;  ///< of a tile of kTileRows rows
constexpr int kThreads = 384;      ///< warpgroup 0 loads, 1 and 2 compute 64 rows of the tile each
constexpr int kComputeWarps = 8;
/// A block starts with 168 registers a thread; who asks for more than the others gave back waits for ever.
template <int kOfLoaders, int kOfOthers>
constexpr bool kRegistersSuffice = 128 * kOfLoaders + 256 * kOfOthers <= 168 * kThreads;
constexpr uint32_t kStageA = 128 * 128;           ///< bytes: 128 rows of 64 k
constexpr uint32_t kStageB = kTileColumns * 128;  ///< 256 columns of 64 k

/// Shared memory of a kernel: stages, staging of the epilogue for each computing warpgroup, barriers.
template <int kNumStages, int kStagingBytes>
struct Pipeline {
  static constexpr int kStages = kNumStages;
  static constexpr uint32_t kStaging = kStages * (kStageA + kStageB);
  static constexpr uint32_t kBarriers = kStaging + 2 * kStagingBytes;
  /// full and empty of each stage, two of each computing warpgroup's epilogue
  static constexpr uint32_t kTiles = kBarriers + kStages * 16 + 32;
  static constexpr uint32_t kCounter = kTiles + kStages * 16;  ///< see tile_counter.cuh
  static constexpr uint32_t kBytes = kCounter + 32;
  static_assert(kCounter % 32 == 0);
  static_assert(kBytes <= 232448, "more shared memory than a block can have on sm_90");

  uint32_t base;

  __device__ uint32_t a(int stage) const { return base + stage * kStageA; }
  __device__ uint32_t b(int stage) const { return base + kStages * kStageA + stage * kStageB; }
  __device__ uint32_t staging(int warpgroup) const { return base + kStaging + warpgroup * kStagingBytes; }
  __device__ uint32_t full(int stage) const { return base + kBarriers + stage * 8; }
  __device__ uint32_t empty(int stage) const { return base + kBarriers + (kStages + stage) * 8; }
  __device__ uint32_t counter() const { return base + kCounter; }
  __device__ uint32_t epilogue_barriers(int warpgroup) const { return base + kBarriers + kStages * 16 + warpgroup * 16; }

  /// The tile that a stage begins, sixteen bytes, written before the stage is full.
  template <class Tile>
  __device__ void set_tile(int stage, const Tile& tile) const {
    store_shared(base + kTiles + stage * 16, __builtin_bit_cast(uint4, tile));
  }
  __device__ uint4 tile(int stage) const { return load_shared(base + kTiles + stage * 16); }

  /// By one thread. A stage is full when thread 0 of the loaders has announced its bytes and they and the copies of
  /// `copying_threads` others are in; it is empty when every computing warp has let go of it.
  __device__ void init_barriers(int copying_threads, int epilogue_arrivals) const {
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_init(full(stage), 1 + copying_threads);
      barrier_init(empty(stage), kComputeWarps);
    }
    for (int i = 0; i < 4; ++i) barrier_init(epilogue_barriers(0) + i * 8, epilogue_arrivals);
    barrier_init_fence();
  }
};

/// A position in the ring.
template <int kStages>
struct RingPosition {
  int stage = 0;
  uint32_t phase = 0;

  __device__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

/// A stage without data that only says what comes: a tile without products, or the end. By every thread that loads.
template <class Pipe, class Tile>
__device__ void announce(const Pipe& pipe, const RingPosition<Pipe::kStages>& at, const Tile& tile) {
  barrier_wait(pipe.empty(at.stage), at.phase ^ 1);
  if (threadIdx.x != 0) return;
  pipe.set_tile(at.stage, tile);
  barrier_arrive(pipe.full(at.stage));
}

/// This warpgroup's 64 rows of the tile, block after block of 64 k, in `acc`.
template <class Pipe, Major kA, Major kB, int kCopyingThreads>
class Accumulator {
 public:
  __device__ Accumulator(const Pipe& pipe, int warpgroup) : pipe_(pipe), a_offset_(warpgroup * kBytesPer64) {}

  /// What the loaders say of the stage to come.
  template <class Tile>
  __device__ Tile next_tile() {
    barrier_wait(pipe_.full(at_.stage), at_.phase);
    uint4 words{};
    if (threadIdx.x % 32 == 0) words = pipe_.tile(at_.stage);  // read by the lane that lets go of the stage
    words = {__shfl_sync(~0u, words.x, 0), __shfl_sync(~0u, words.y, 0), __shfl_sync(~0u, words.z, 0),
             __shfl_sync(~0u, words.w, 0)};
    return __builtin_bit_cast(Tile, words);
  }

  /// Of a tile without products: lets go of the stage that announced it.
  __device__ void skip() {
    release(at_.stage);
    at_.advance();
  }

  /// Starts block `block` of a tile and lets go of the stage before, whose products are done by then.
  __device__ void step(float (&acc)[128], int block) {
    barrier_wait(pipe_.full(at_.stage), at_.phase);
    if constexpr (kCopyingThreads > 0) fence_proxy_async();  // cp.async of so many threads wrote parts of the stage
    wgmma_fence();
    const uint64_t a = matrix_descriptor<kA>(pipe_.a(at_.stage) + a_offset_), b = matrix_descriptor<kB>(pipe_.b(at_.stage));
#pragma unroll
    for (int i = 0; i < 4; ++i) wgmma_m64n256k16<kA, kB>(acc, a + i * kNext16<kA>, b + i * kNext16<kB>, block | i);
    wgmma_commit();
    if (block) {
      wgmma_wait<1>();
      release(previous_);
    }
    previous_ = at_.stage;
    at_.advance();
  }

  /// After the last block of a tile: acc is complete.
  __device__ void finish(float (&acc)[128]) {
    wgmma_wait<0>();
    wgmma_pin(acc);
    release(previous_);
  }

 private:
  __device__ void release(int stage) {
    if (threadIdx.x % 32 == 0) barrier_arrive(pipe_.empty(stage));
  }

  const Pipe& pipe_;
  uint32_t a_offset_;
  RingPosition<Pipe::kStages> at_;
  int previous_ = 0;
};

}  // namespace scatterlm::kernels::hopper

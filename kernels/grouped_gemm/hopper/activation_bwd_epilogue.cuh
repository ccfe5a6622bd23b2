// The epilogue of dA' = dO W2: reads H, writes dH over it, A' = s A, and the partial sums of dS = <dA', A> (grouped_gemm.h).
//
// H comes by the copy engine into the buffers that dH leaves from, panel after panel of 64 columns and two panels ahead. A
// panel is more work than fits beside one block of k, so each takes four steps of 16 columns. All four panels of a tile add to
// the row sums of dS, which four lanes share. Issuing a bulk copy takes long enough to hold up the next products, so each
// matrix has a warp that issues its copies: the halves of H and dH warps 0 and 1, A' warp 2.
#pragma once
#include "kernels/grouped_gemm/hopper/epilogue.cuh"

namespace scatterlm::kernels::hopper {

template <class Policy>
class ActivationBwdEpilogue {
 public:
  struct Params {
    CUtensorMap h;    ///< {F, halves, 64, R + 64}, box {64, 1, 64, 1}
    CUtensorMap act;  ///< {F, 64, R + 64}, box {64, 64, 1}
    const float* gates;
    const int32_t* sorted_R;
    float* dgates_partial;  ///< [R, n_tiles]
    int n_tiles;
    int width;  ///< F
  };
  static constexpr int kHalves = Policy::kHalves;
  static constexpr int kStages = 3, kStoreSteps = 16, kMaxStepsPerBlock = 2, kBarrierArrivals = kHalves;
  static constexpr int kStagingBytes = (2 * kHalves + 1) * Panels::kBytes;

  __device__ ActivationBwdEpilogue(const Params& params, uint32_t staging, uint32_t barriers, int warpgroup)
      : params_(params), panels_(staging, warpgroup), barriers_(barriers) {}

  __device__ void begin(const RowTile& tile) {
    rows_.set(tile, panels_.warpgroup());
    if (rows_.count <= 0) return;
    if (moves_h()) {
      tma_store_wait_read<0>();
      load_h(0);
      load_h(1);
    }
    for (int i = 0; i < 2; ++i) slot_[i] = row(i) < rows_.count ? __ldg(params_.sorted_R + rows_.row + row(i)) : -1;
  }

  /// The slots have come since begin().
  __device__ void end_of_tile() {
    for (int i = 0; i < 2; ++i) {
      gate_[i] = rows_.count > 0 && slot_[i] >= 0 ? __ldg(params_.gates + slot_[i]) : 0.0f;
      dgate_[i] = 0.0f;
    }
  }

  __device__ void store(int step, const uint32_t (&packed)[64]) {
    if (rows_.count <= 0) return;
    const int panel = step / 4, group = step % 4;
    if (group == 0) {
      if (moves_act()) tma_store_wait_read<0>();
      panels_.sync();  // the act buffer is free
      barrier_wait(barriers_ + (panel & 1) * 8, panel >> 1);
    }
    if (group == 1 && panel > 0 && panel < 3 && moves_h()) {
      tma_store_wait_read<0>();
      load_h(panel + 1);
    }
    differentiate(panel, group, packed);
    if (group < 3) return;
    panels_.publish();
    const int column = rows_.n_tile * kTileColumns + panel * 64;
    if (moves_h()) {
      tma_store(params_.h, h_buffer(panel, warp()), column, warp(), rows_.y(), rows_.z());
      tma_store_commit();
    } else if (moves_act()) {
      tma_store(params_.act, act_buffer(), column, rows_.y(), rows_.z());
      tma_store_commit();
    }
    if (panel == 3) store_dgates();
  }

 private:
  __device__ uint32_t h_buffer(int i, int half) const { return panels_.buffer((i & 1) * kHalves + half); }
  __device__ uint32_t act_buffer() const { return panels_.buffer(2 * kHalves); }
  __device__ static int warp() { return threadIdx.x / 32 % 4; }
  __device__ static bool moves_h() { return threadIdx.x % 32 == 0 && warp() < kHalves; }
  __device__ static bool moves_act() { return threadIdx.x % 128 == 64; }
  /// In the warpgroup, of this lane's accumulators.
  __device__ static int row(int i) { return warp() * 16 + threadIdx.x % 32 / 4 + i * 8; }

  /// This warp's half of panel i. A panel beyond F reads other columns: dA' is zero there, and a box wholly outside of a
  /// shifted map may fault.
  __device__ void load_h(int i) {
    const uint32_t barrier = barriers_ + (i & 1) * 8;
    const int column = rows_.n_tile * kTileColumns + i * 64;
    barrier_arrive_expect(barrier, Panels::kBytes);
    tma_load(h_buffer(i, warp()), params_.h, barrier, column < params_.width ? column : 0, warp(), rows_.y(), rows_.z());
  }

  /// 16 columns of a panel: dH in place of H, and A'.
  __device__ void differentiate(int i, int group, const uint32_t (&packed)[64]) {
    const uint32_t offset = panels_.offset(group);
    uint32_t h[kHalves][4], act[4];
#pragma unroll
    for (int half = 0; half < kHalves; ++half) load_matrices(h_buffer(i, half) + offset, h[half]);
#pragma unroll
    for (int j = 0; j < 4; ++j)
      act[j] =
          differentiate_pair<Policy>(packed[i * 16 + group * 4 + j], gate_[j & 1], h[0][j], h[kHalves - 1][j], dgate_[j & 1]);
#pragma unroll
    for (int half = 0; half < kHalves; ++half) store_matrices(h_buffer(i, half) + offset, h[half]);
    store_matrices(act_buffer() + offset, act);
  }

  /// The four lanes of a row add their columns in a fixed order.
  __device__ void store_dgates() {
    for (int i = 0; i < 2; ++i) {
      float sum = dgate_[i];
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      if (threadIdx.x % 4 == 0 && row(i) < rows_.count)
        params_.dgates_partial[static_cast<int64_t>(rows_.row + row(i)) * params_.n_tiles + rows_.n_tile] = sum;
    }
  }

  const Params& params_;
  Panels panels_;
  WarpgroupRows rows_;
  uint32_t barriers_;
  int slot_[2];
  float gate_[2], dgate_[2];
};

}  // namespace scatterlm::kernels::hopper

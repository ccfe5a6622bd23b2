// The epilogue of dA' = dO W2: it reads the pre-activation H and writes its gradient dH over it, A' = s A, and the partial sums
// of the gates' gradients, dS = <dA', A> (formulas in grouped_gemm.h).
//
// A warpgroup's 64 rows of a tile are kPanels panels of 64 columns. Of each panel
//   1. the copy engine loads H, gate and up half apart, to one of two buffers, two panels ahead;
//   2. the four warps put dH in place of H and write A' to a third buffer, 16 columns in each step of the epilogue: a whole
//   panel
//      would be more work than one block of k hides;
//   3. the copy engine stores dH and A' from there.
// So a tile takes 4 panels x 4 steps. A thread adds to the row sums of dS in all of them; the four threads that share a row
// meet at the end of the tile.
//
// Issuing a copy takes long enough to hold up the next products, so each matrix has a warp of the four that issues its copies:
// warp 0 for the gate half of H and dH, warp 1 for the up half, warp 2 for A'.
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
  static constexpr int kPanels = kTileColumns / 64, kStepsPerPanel = 4;
  static constexpr int kStages = 3, kStoreSteps = kPanels * kStepsPerPanel, kMaxStepsPerBlock = 2;
  static constexpr int kBarrierArrivals = kHalves;                          ///< a load of H is in when its halves are
  static constexpr int kStagingBytes = (2 * kHalves + 1) * Panels::kBytes;  ///< two buffers of H and dH, one of A'

  /// barriers: two of 8 bytes, for the two buffers of H.
  __device__ ActivationBwdEpilogue(const Params& params, uint32_t staging, uint32_t barriers, int warpgroup)
      : params_(params), panels_(staging, warpgroup), barriers_(barriers) {}

  /// Starts to fetch what this tile needs: the first two panels of H, and the slots of this thread's rows.
  __device__ void begin(const RowTile& tile) {
    rows_.set(tile, panels_.warpgroup());
    if (rows_.count <= 0) return;
    if (copies_h()) {
      tma_store_wait_read<0>();  // dH of the tile before has left the buffers
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

  /// packed: the tile's dA', as rows_kernel.cuh has it.
  __device__ void store(int step, const uint32_t (&packed)[64]) {
    if (rows_.count <= 0) return;
    const int panel = step / kStepsPerPanel, quarter = step % kStepsPerPanel;
    if (quarter == 0) {
      if (copies_act()) tma_store_wait_read<0>();
      panels_.sync();  // A' of the panel before has left its buffer
      barrier_wait(h_barrier(panel), panel >> 1);
    }
    if (quarter == 1 && panel > 0 && panel < kPanels - 1 && copies_h()) {
      tma_store_wait_read<0>();  // dH of the panel before has left the buffer that the next one takes
      load_h(panel + 1);
    }
    differentiate(panel, quarter, packed);
    if (quarter < kStepsPerPanel - 1) return;
    panels_.publish();
    const int column = first_column(panel);
    if (copies_h()) {
      tma_store(params_.h, h_buffer(panel, warp()), column, warp(), rows_.y(), rows_.z());
      tma_store_commit();
    } else if (copies_act()) {
      tma_store(params_.act, act_buffer(), column, rows_.y(), rows_.z());
      tma_store_commit();
    }
    if (panel == kPanels - 1) store_dgates();
  }

 private:
  __device__ uint32_t h_buffer(int panel, int half) const { return panels_.buffer((panel & 1) * kHalves + half); }
  __device__ uint32_t h_barrier(int panel) const { return barriers_ + (panel & 1) * 8; }
  __device__ uint32_t act_buffer() const { return panels_.buffer(2 * kHalves); }
  __device__ int first_column(int panel) const { return rows_.n_tile * kTileColumns + panel * 64; }
  /// Of the warpgroup's four.
  __device__ static int warp() { return threadIdx.x / 32 % 4; }
  /// Whether this thread issues the copies of a half of H and dH: half warp().
  __device__ static bool copies_h() { return threadIdx.x % 32 == 0 && warp() < kHalves; }
  /// Whether it issues those of A'.
  __device__ static bool copies_act() { return threadIdx.x % 128 == 64; }
  /// The rows, 0 or 1, that this thread has accumulators of, counted in the warpgroup.
  __device__ static int row(int i) { return warp() * 16 + threadIdx.x % 32 / 4 + i * 8; }

  /// Half warp() of the panel. A panel beyond F reads other columns: dA' is zero there, and a box wholly outside of a shifted
  /// map may fault.
  __device__ void load_h(int panel) {
    const uint32_t barrier = h_barrier(panel);
    const int column = first_column(panel);
    barrier_arrive_expect(barrier, Panels::kBytes);
    tma_load(h_buffer(panel, warp()), params_.h, barrier, column < params_.width ? column : 0, warp(), rows_.y(), rows_.z());
  }

  /// 16 columns of a panel, four pairs of a thread in its two rows by turns: dH in place of H, and A'.
  __device__ void differentiate(int panel, int quarter, const uint32_t (&packed)[64]) {
    const uint32_t offset = panels_.offset(quarter);
    uint32_t h[kHalves][4], act[4];
#pragma unroll
    for (int half = 0; half < kHalves; ++half) load_matrices(h_buffer(panel, half) + offset, h[half]);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t da = packed[panel * 16 + quarter * 4 + j];
      act[j] = differentiate_pair<Policy>(da, gate_[j & 1], h[0][j], h[kHalves - 1][j], dgate_[j & 1]);
    }
#pragma unroll
    for (int half = 0; half < kHalves; ++half) store_matrices(h_buffer(panel, half) + offset, h[half]);
    store_matrices(act_buffer() + offset, act);
  }

  /// The four threads of a row add their columns in a fixed order.
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
  int slot_[2];               ///< of this thread's two rows; -1: past the expert's last
  float gate_[2], dgate_[2];  ///< s and the sum of <dA', A> of these rows
};

}  // namespace scatterlm::kernels::hopper

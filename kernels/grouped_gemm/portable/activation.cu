// Grouped GEMMs with activations in their epilogues.
#include "kernels/grouped_gemm/activations.cuh"
#include "kernels/grouped_gemm/portable/rows_kernel.cuh"

namespace scatterlm::kernels::portable {
namespace {

/// Eight neighbouring columns as four pairs.
union Chunk {
  uint4 all;
  uint32_t pair[4];
};

__device__ uint4* chunk_at(void* data, int64_t row, int width, int column) {
  return reinterpret_cast<uint4*>(static_cast<char*>(data) + (row * width + column) * 2);
}

/// H = the product and A = activation(H).
template <class Policy>
struct ActivationEpilogue {
  static constexpr int kHalves = Policy::kHalves, kTileWidth = kTileColumns / kHalves;
  void* h;    ///< [R, kHalves F]
  void* act;  ///< [R, F]
  int width;  ///< F

  /// kTileWidth / 8 threads on the columns of a row; the up half of a gated tile stands kTileWidth behind the gate half.
  __device__ void store(const RowTile& tile, uint32_t shared) const {
    constexpr int kChunks = kTileWidth / 8;
    const int chunk = threadIdx.x % kChunks, column = tile.n_tile * kTileWidth + chunk * 8;
    if (column >= width) return;
    for (int i = threadIdx.x / kChunks; i < min(tile.row_end - tile.row, kTileRows); i += kThreads / kChunks) {
      const int row = tile.row + i;
      Chunk in[kHalves], out;
      for (int half = 0; half < kHalves; ++half) {
        in[half].all = load_shared(shared + swizzled<kTileColumns * 2>(i, chunk + half * kChunks));
        *chunk_at(h, row, kHalves * width, half * width + column) = in[half].all;
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) out.pair[j] = activate_pair<Policy>(in[0].pair[j], in[kHalves - 1].pair[j]);
      *chunk_at(act, row, width, column) = out.all;
    }
  }
};

/// From dA' = the product: dH over H, A' = s A, and sums of <dA', A>.
template <class Policy>
struct ActivationBwdEpilogue {
  static constexpr int kHalves = Policy::kHalves;
  void* h;          ///< [R, kHalves F]
  void* act_gated;  ///< [R, F]
  const float* gates;
  const int32_t* sorted_R;
  float* dgates_partial;  ///< [R, n_tiles]
  int width;              ///< F
  int n_tiles;

  /// kChunks threads on a row. All of them stay to the end: they add their sums of <dA', A> in a fixed order.
  __device__ void store(const RowTile& tile, uint32_t shared) const {
    constexpr int kChunks = kTileColumns / 8, kRowsAtOnce = kThreads / kChunks;
    constexpr int kInFlight = 4;  // rows whose H a thread has under way: nothing else hides the memory's latency here
    const int chunk = threadIdx.x % kChunks, column = tile.n_tile * kTileColumns + chunk * 8;
    for (int first = threadIdx.x / kChunks; first < kTileRows; first += kInFlight * kRowsAtOnce) {
      Inputs inputs[kInFlight];
#pragma unroll
      for (int j = 0; j < kInFlight; ++j) {
        const int row = tile.row + first + j * kRowsAtOnce;
        if (row < tile.row_end && column < width) inputs[j] = fetch(row, column);
      }
#pragma unroll
      for (int j = 0; j < kInFlight; ++j) {
        const int i = first + j * kRowsAtOnce, row = tile.row + i;
        const bool stored = row < tile.row_end;
        float dgate = 0;
        if (stored && column < width)
          dgate = differentiate_chunk(row, column, load_shared(shared + swizzled<kTileColumns * 2>(i, chunk)), inputs[j]);
#pragma unroll
        for (int step = kChunks / 2; step > 0; step /= 2) dgate += __shfl_xor_sync(~0u, dgate, step);
        if (stored && chunk == 0) dgates_partial[int64_t{row} * n_tiles + tile.n_tile] = dgate;
      }
    }
  }

 private:
  struct Inputs {
    float gate;
    Chunk h[kHalves];
  };

  __device__ Inputs fetch(int64_t row, int column) const {
    Inputs inputs;
    inputs.gate = __ldg(gates + __ldg(sorted_R + row));
    for (int half = 0; half < kHalves; ++half) inputs.h[half].all = *chunk_at(h, row, kHalves * width, half * width + column);
    return inputs;
  }

  /// Returns the chunk's part of <dA', A>.
  __device__ float differentiate_chunk(int64_t row, int column, const uint4& product, Inputs& in) const {
    const Chunk da{product};
    Chunk act;
    float dgate = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j)
      act.pair[j] = differentiate_pair<Policy>(da.pair[j], in.gate, in.h[0].pair[j], in.h[kHalves - 1].pair[j], dgate);
    for (int half = 0; half < kHalves; ++half) *chunk_at(h, row, kHalves * width, half * width + column) = in.h[half].all;
    *chunk_at(act_gated, row, width, column) = act.all;
    return dgate;
  }
};

}  // namespace

void activation_fwd(const ActivationFwdArgs& args, cudaStream_t stream) {
  with_activation(args.activation, [&](auto policy) {
    using Policy = decltype(policy);
    const ActivationEpilogue<Policy> epilogue{args.h, args.act, static_cast<int>(args.product.n)};
    launch_rows<WeightAsStored<Policy::kHalves>>("grouped_gemm_activation_fwd", args.product, args.bias,
                                                 kTileColumns / Policy::kHalves, epilogue, stream);
  });
}

void activation_bwd(const ActivationBwdArgs& args, cudaStream_t stream) {
  with_activation(args.activation, [&](auto policy) {
    const ActivationBwdEpilogue<decltype(policy)> epilogue{.h = args.h,
                                                           .act_gated = args.act_gated,
                                                           .gates = args.gates,
                                                           .sorted_R = args.sorted_R,
                                                           .dgates_partial = args.dgates_partial,
                                                           .width = static_cast<int>(args.product.n),
                                                           .n_tiles = static_cast<int>(ceil_div(args.product.n, kTileColumns))};
    launch_rows<WeightTransposed>("grouped_gemm_activation_bwd", args.product, /*bias=*/nullptr, kTileColumns, epilogue,
                                  stream);
  });
}

}  // namespace scatterlm::kernels::portable

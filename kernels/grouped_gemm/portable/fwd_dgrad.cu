// Grouped GEMMs whose tiles are just stored.
#include "kernels/grouped_gemm/portable/rows_kernel.cuh"

namespace scatterlm::kernels::portable {
namespace {

/// C = the product, row m in row c_rows[m], or in row m.
struct StoreEpilogue {
  void* c;
  const int32_t* c_rows_R;
  int n;

  /// kChunks threads on a row.
  __device__ void store(const RowTile& tile, uint32_t shared) const {
    constexpr int kChunks = kTileColumns / 8;
    const int chunk = threadIdx.x % kChunks, column = tile.n_tile * kTileColumns + chunk * 8;
    if (column >= n) return;
    for (int i = threadIdx.x / kChunks; i < min(tile.row_end - tile.row, kTileRows); i += kThreads / kChunks) {
      const int64_t row = c_rows_R ? __ldg(c_rows_R + tile.row + i) : tile.row + i;
      *reinterpret_cast<uint4*>(static_cast<char*>(c) + (row * n + column) * 2) =
          load_shared(shared + swizzled<kTileColumns * 2>(i, chunk));
    }
  }
};

}  // namespace

void fwd(const GroupedGemmFwdArgs& args, cudaStream_t stream) {
  const StoreEpilogue epilogue{args.c, args.c_rows_R, static_cast<int>(args.product.n)};
  launch_rows<WeightAsStored<1>>("grouped_gemm_fwd", args.product, args.bias, kTileColumns, epilogue, stream);
}

void dgrad(const GroupedGemmDgradArgs& args, cudaStream_t stream) {
  const StoreEpilogue epilogue{args.c, args.c_rows_R, static_cast<int>(args.product.n)};
  launch_rows<WeightTransposed>("grouped_gemm_dgrad", args.product, /*bias=*/nullptr, kTileColumns, epilogue, stream);
}

}  // namespace scatterlm::kernels::portable

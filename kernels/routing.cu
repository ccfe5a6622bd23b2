// Counting sort in two kernels. The slots are cut into pieces, one block each. count_kernel counts the experts of its piece. In
// place_kernel a block knows from all counts where its slots of each expert begin; its warps count their parts of the piece,
// and then each slot's place is that of its warp plus its rank among the warp's slots of the same expert. A single piece is
// counted in place_kernel: with few slots the time is that of launches.
#include "kernels/routing.h"

#include <algorithm>

#include "kernels/device/ceil_div.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/ptx.cuh"
#include "kernels/device/warp.cuh"
#include "kernels/expert_rows.cuh"

namespace scatterlm::kernels {
namespace {

constexpr const char* kOp = "routing";
constexpr int kMaxPieces = 128, kWarps = 8;
static_assert(kRoutingCounters == 1 + kWarps);

struct RoutingParams {
  RoutingArgs args;
  int pieces;
  int piece_rows;   ///< a multiple of 32 kWarps
  int32_t* counts;  ///< [pieces, E]; of a single piece unused
};

int pieces_of(int64_t num_rows) { return static_cast<int>(std::clamp<int64_t>(ceil_div(num_rows, 1024), 1, kMaxPieces)); }

/// count[e] = slots of this piece that chose e.
__device__ void count_piece(const RoutingParams& p, int32_t* count) {
  const int num_experts = static_cast<int>(p.args.num_experts);
  for (int e = threadIdx.x; e < num_experts; e += blockDim.x) count[e] = 0;
  __syncthreads();
  const int64_t begin = int64_t{blockIdx.x} * p.piece_rows, end = min(begin + p.piece_rows, p.args.num_rows);
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) atomicAdd(count + p.args.ids_R[i], 1);
  __syncthreads();
}

__global__ void __launch_bounds__(kWarps * 32) count_kernel(const __grid_constant__ RoutingParams p) {
  auto* count = dynamic_shared<int32_t>();
  count_piece(p, count);
  const int num_experts = static_cast<int>(p.args.num_experts);
  for (int e = threadIdx.x; e < num_experts; e += blockDim.x) p.counts[int64_t{blockIdx.x} * num_experts + e] = count[e];
}

/// Slots of each expert in all pieces, and in `first` those in the pieces before this one.
__device__ void add_pieces(const RoutingParams& p, int32_t* first, int32_t* totals) {
  const int num_experts = static_cast<int>(p.args.num_experts);
  for (int e = threadIdx.x; e < num_experts; e += blockDim.x) {
    int before = 0, total = 0;
    for (int piece = 0; piece < p.pieces; ++piece) {
      const int count = p.counts[int64_t{piece} * num_experts + e];
      before += piece < static_cast<int>(blockIdx.x) ? count : 0;
      total += count;
    }
    first[e] = before;
    totals[e] = total;
  }
}

/// visit(e, first row of e) for every expert; totals[e] is its number of rows. One warp of each block calls; that of block 0
/// also writes the offsets (grouped_gemm.h).
template <class Visit>
__device__ __forceinline__ void place_experts(const RoutingArgs& args, const int32_t* totals, Visit&& visit) {
  const int lane = threadIdx.x % 32, num_experts = static_cast<int>(args.num_experts);
  int rows = 0, tiles = 0;  // of the experts before this group of 32
  for (int group = 0; group < num_experts; group += 32) {
    const int e = group + lane, total = e < num_experts ? totals[e] : 0;
    const int row_sum = warp_inclusive_sum(total), tile_sum = warp_inclusive_sum(ceil_div(total, kTileRows));
    if (e < num_experts) {
      visit(e, rows + row_sum - total);
      if (blockIdx.x == 0) {
        args.offsets_E1[e + 1] = rows + row_sum;
        args.tiles_E3[e + 1] = tiles + tile_sum;
      }
    }
    rows += __shfl_sync(~0u, row_sum, 31);
    tiles += __shfl_sync(~0u, tile_sum, 31);
  }
  if (blockIdx.x == 0 && lane == 0) begin_expert_rows(num_experts, args.offsets_E1, args.tiles_E3);
}

/// first[e] = first row of this piece's slots of expert e. Block 0 also writes the offsets.
__device__ void find_first_rows(const RoutingParams& p, int32_t* first, int32_t* totals) {
  const int num_experts = static_cast<int>(p.args.num_experts);
  if (p.pieces == 1) {
    for (int e = threadIdx.x; e < num_experts; e += blockDim.x) first[e] = 0;
    count_piece(p, totals);
  } else {
    add_pieces(p, first, totals);
  }
  __syncthreads();
  if (threadIdx.x >= 32) return;
  place_experts(p.args, totals, [&](int e, int row) { first[e] += row; });
}

/// Shared memory: first [E], then one count [E] for each warp.
__global__ void __launch_bounds__(kWarps * 32) place_kernel(const __grid_constant__ RoutingParams p) {
  auto* first = dynamic_shared<int32_t>();
  const int num_experts = static_cast<int>(p.args.num_experts), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int32_t* warp_count = first + num_experts;
  find_first_rows(p, first, warp_count);
  __syncthreads();
  for (int i = threadIdx.x; i < kWarps * num_experts; i += blockDim.x) warp_count[i] = 0;
  __syncthreads();

  const int warp_rows = p.piece_rows / kWarps;
  const int64_t begin = int64_t{blockIdx.x} * p.piece_rows + int64_t{warp} * warp_rows;
  const int64_t end = min(begin + warp_rows, p.args.num_rows);
  int32_t* own = warp_count + warp * num_experts;
  for (int64_t i = begin + lane; i < end; i += 32) atomicAdd(own + p.args.ids_R[i], 1);
  __syncthreads();
  for (int e = threadIdx.x; e < num_experts; e += blockDim.x) {
    int row = first[e];
    for (int w = 0; w < kWarps; ++w) {
      const int count = warp_count[w * num_experts + e];
      warp_count[w * num_experts + e] = row;
      row += count;
    }
  }
  __syncthreads();

  for (int64_t group = begin; group < end; group += 32) {
    const int64_t slot = group + lane;
    const int expert = slot < end ? p.args.ids_R[slot] : -1;
    const unsigned same = __match_any_sync(~0u, expert);
    if (expert >= 0) {
      const int row = own[expert] + __popc(same & ((1u << lane) - 1));
      p.args.sorted_R[row] = static_cast<int32_t>(slot);
      p.args.tokens_R[row] = static_cast<int32_t>(slot / p.args.top_k);
      p.args.inverse_R[slot] = row;
    }
    __syncwarp();
    if (expert >= 0 && lane == __ffs(same) - 1) own[expert] += __popc(same);
    __syncwarp();
  }
}

}  // namespace

int64_t routing_workspace_bytes(int64_t num_rows, int64_t num_experts) {
  const int pieces = pieces_of(num_rows);
  return pieces == 1 ? 0 : pieces * num_experts * 4;
}

void make_routing(const RoutingArgs& args, cudaStream_t stream) {
  const auto bytes = static_cast<uint32_t>(args.num_experts * 4);
  const int64_t most =
      bytes * kRoutingCounters > kSharedBytesAnywhere ? max_routing_experts(max_shared_bytes(kOp)) : kMaxRoutingExperts;
  if (args.num_experts < 1 || args.num_experts > most)
    throw KernelError("[routing] num_experts must be 1.." + std::to_string(most) +
                      " on this GPU (shared memory of a block), got " + std::to_string(args.num_experts));
  if (args.num_rows >= int64_t{1} << 31)
    throw KernelError("[routing] T*K must be below 2^31, got " + std::to_string(args.num_rows));
  RoutingParams params{.args = args, .pieces = pieces_of(args.num_rows), .counts = static_cast<int32_t*>(args.workspace)};
  params.piece_rows = static_cast<int>(ceil_div(ceil_div(args.num_rows, params.pieces), kWarps * 32) * kWarps * 32);
  if (params.pieces > 1) launch(kOp, count_kernel, params.pieces, kWarps * 32, bytes, params, stream);
  launch(kOp, place_kernel, params.pieces, kWarps * 32, bytes * kRoutingCounters, params, stream);
}

}  // namespace scatterlm::kernels

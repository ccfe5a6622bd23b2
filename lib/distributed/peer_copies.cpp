#ifdef SCATTERLM_NCCL
#include "lib/distributed/peer_copies.h"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <cudaTypedefs.h>
#include <nccl_device.h>

#include <utility>

#include "lib/distributed/nccl_stream.h"
#include "lib/distributed/window_addresses.h"
#include "lib/util/error.h"
#include "lib/util/memory.h"

namespace scatterlm {
namespace {

/// From here on the ranks meet after each copy. Otherwise one falls behind, two write to the same GPU, and all take longer.
constexpr int64_t kLong = 4 << 20;

/// The driver's function, found at run time: a program that never sees a GPU needs no libcuda.
PFN_cuStreamBatchMemOp_v11070 memory_operations() {
  static const auto function = [] {
    void* symbol = nullptr;
    cudaDriverEntryPointQueryResult found{};
    check(cudaGetDriverEntryPointByVersion("cuStreamBatchMemOp", &symbol, 12000, cudaEnableDefault, &found),
          "cudaGetDriverEntryPoint");
    if (found != cudaDriverEntryPointSuccess) fail("the driver has no cuStreamBatchMemOp: CUDA 12 or later is needed");
    return reinterpret_cast<PFN_cuStreamBatchMemOp_v11070>(symbol);
  }();
  return function;
}

/// Where NCCL cannot share memory it answers with a window that only this process has, in the memory of the host; and it may
/// take ranks for several machines, by names of their own, that are one for us.
bool is_shared(ncclWindow_t window, ncclComm_t comm, int64_t world) {
  if (!window) return false;
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, window), "cudaPointerGetAttributes");
  return attributes.type == cudaMemoryTypeDevice && ncclTeamLsa(comm).nRanks == world;
}

}  // namespace

PeerCopies::PeerCopies(int64_t rank, int64_t world, ncclComm_t comm, cudaStream_t stream)
    : rank_(rank), world_(world), comm_(comm), stream_(stream), board_(allocate(world * static_cast<int64_t>(sizeof(met_)))) {}

void* PeerCopies::allocate(int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  void* own = nullptr;
  if (ncclMemAlloc(&own, size) != ncclSuccess) {
    cudaGetLastError();  // or a later call reports it
    at::getDeviceAllocator(at::kCUDA)->emptyCache();
    check(ncclMemAlloc(&own, size), "ncclMemAlloc");
  }
  add_device_memory(bytes);
  check(cudaMemset(own, 0, size), "cudaMemset");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  // Inside a step memory of cudaMalloc, opened through CUDA's IPC, is written more slowly: CONTRIBUTING.md, "Copy engines".
  Buffer buffer{.bytes = bytes};
  check(ncclCommWindowRegister(comm_, own, size, &buffer.window, NCCL_WIN_DEFAULT), "ncclCommWindowRegister");
  if (is_shared(buffer.window, comm_, world_)) {
    const auto on_gpu = at::empty({world_}, at::TensorOptions().dtype(at::kLong).device(at::kCUDA));
    check(window_addresses(buffer.window, static_cast<int>(world_), on_gpu.mutable_data_ptr<int64_t>(), stream_),
          "window_addresses");
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    const auto addresses = on_gpu.cpu();
    for (int64_t r = 0; r < world_; ++r) buffer.of_ranks.push_back(reinterpret_cast<char*>(addresses[r].item<int64_t>()));
  }
  buffers_[own] = std::move(buffer);
  return own;
}

void PeerCopies::free(const void* memory) {
  const auto node = buffers_.extract(memory);
  ncclCommWindowDeregister(comm_, node.mapped().window);
  ncclMemFree(const_cast<void*>(memory));
  add_device_memory(-node.mapped().bytes);
}

void PeerCopies::free_all() {
  while (!buffers_.empty()) free(buffers_.begin()->first);
}

/// At each step no two ranks have the same one.
template <class F>
void PeerCopies::for_others(F visit) const {
  for (int64_t step = 1; step < world_; ++step) visit((rank_ + step) % world_);
}

void PeerCopies::meet() {
  ++met_;
  std::vector<CUstreamBatchMemOpParams> operations;
  const auto add = [&](CUstreamBatchMemOpType type, int64_t on, int64_t of) {
    auto& operation = operations.emplace_back();
    operation.operation = type;
    auto& fields = operation.waitValue;  // the same as of writeValue
    fields.address = reinterpret_cast<CUdeviceptr>(buffers_.at(board_).of_ranks[static_cast<size_t>(on)]) +
                     static_cast<CUdeviceptr>(of) * sizeof(met_);
    fields.value = met_;
  };
  // What the stream did before is visible to all before the number is; a wait ends at this number or a later one.
  for_others([&](int64_t r) { add(CU_STREAM_MEM_OP_WRITE_VALUE_32, r, rank_); });
  for_others([&](int64_t r) { add(CU_STREAM_MEM_OP_WAIT_VALUE_32, rank_, r); });
  const auto result = memory_operations()(stream_, static_cast<unsigned>(operations.size()), operations.data(), 0);
  if (result != CUDA_SUCCESS) fail("[cuStreamBatchMemOp] error {} of the driver", static_cast<int>(result));
}

/// To each of the others; places(r) says where to and where from.
template <class F>
void PeerCopies::send(int64_t bytes, F places) {
  for_others([&](int64_t r) {
    const std::pair<char*, const char*> place = places(r);
    check(cudaMemcpyAsync(place.first, place.second, static_cast<size_t>(bytes), cudaMemcpyDefault, stream_),
          "cudaMemcpyAsync");
    if (bytes >= kLong) meet();
  });
  if (bytes < kLong) meet();
}

void PeerCopies::gather(const void* full, int64_t bytes) {
  const auto found = buffers_.find(full);
  if (found == buffers_.end()) fail("[all_gather] needs memory of gather_buffer()");
  const auto& of_ranks = found->second.of_ranks;
  const int64_t own = rank_ * bytes;
  send(bytes, [&](int64_t r) {
    return std::pair{of_ranks[static_cast<size_t>(r)] + own, static_cast<const char*>(full) + own};
  });
}

void PeerCopies::exchange(const void* full, const void* received, int64_t bytes) {
  const auto& of_ranks = buffers_.at(received).of_ranks;
  send(bytes, [&](int64_t r) {
    const int64_t place = rank_ < r ? rank_ : rank_ - 1;  // r has no part of its own there
    return std::pair{of_ranks[static_cast<size_t>(r)] + place * bytes, static_cast<const char*>(full) + r * bytes};
  });
}

}  // namespace scatterlm
#endif

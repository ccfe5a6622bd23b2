#ifdef SCATTERLM_NCCL
#include "lib/distributed/peer_copies.h"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <cudaTypedefs.h>
#include <nccl_device.h>

#include <thread>
#include <utility>

#include "lib/distributed/nccl_stream.h"
#include "lib/distributed/trial_exchange.h"
#include "lib/distributed/window_addresses.h"
#include "lib/util/error.h"
#include "lib/util/memory.h"

namespace scatterlm {
namespace {

/// From this size on there is a barrier after each copy. Otherwise one rank falls behind, two write to the same GPU, and all
/// take longer.
constexpr int64_t kLong = 4 << 20;

using Flag = uint32_t;

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

/// A wait for a flag that also waits for the data that peers wrote before it, where the device has such a wait.
unsigned wait_flags() {
  int device = 0, can_flush = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&can_flush, cudaDevAttrCanFlushRemoteWrites, device), "cudaDeviceGetAttribute");
  return static_cast<unsigned>(CU_STREAM_WAIT_VALUE_GEQ) |
         (can_flush != 0 ? static_cast<unsigned>(CU_STREAM_WAIT_VALUE_FLUSH) : 0U);
}

/// Where NCCL cannot share memory it returns a window in host memory that only this process has. It may also count as several
/// machines what is one for topology.h.
bool is_shared_window(ncclWindow_t window, ncclComm_t comm, int64_t world) {
  if (!window) return false;
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, window), "cudaPointerGetAttributes");
  return attributes.type == cudaMemoryTypeDevice && ncclTeamLsa(comm).nRanks == world;
}

}  // namespace

PeerCopies::PeerCopies(int64_t rank, int64_t world, ncclComm_t comm, cudaStream_t stream)
    : rank_(rank),
      world_(world),
      comm_(comm),
      stream_(stream),
      wait_flags_(wait_flags()),
      flags_(allocate((1 + TrialExchange::kRounds) * world * static_cast<int64_t>(sizeof(Flag)))) {}

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
  // Inside a step memory of cudaMalloc, opened through CUDA's IPC, is written more slowly: docs/distributed.md, "Copy engines".
  Buffer buffer{.bytes = bytes};
  check(ncclCommWindowRegister(comm_, own, size, &buffer.window, NCCL_WIN_DEFAULT), "ncclCommWindowRegister");
  if (is_shared_window(buffer.window, comm_, world_)) {
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

/// Calls visit with each other rank, in an order in which no two ranks visit the same one at the same step.
template <class F>
void PeerCopies::for_others(F visit) const {
  for (int64_t step = 1; step < world_; ++step) visit((rank_ + step) % world_);
}

void PeerCopies::stream_barrier() {
  ++barriers_;
  std::vector<CUstreamBatchMemOpParams> operations;
  const auto add = [&](CUstreamBatchMemOpType type, unsigned flags, int64_t on, int64_t of) {
    auto& operation = operations.emplace_back();
    operation.operation = type;
    auto& fields = operation.waitValue;  // has the same layout as writeValue
    fields.address = reinterpret_cast<CUdeviceptr>(buffers_.at(flags_).of_ranks[static_cast<size_t>(on)]) +
                     static_cast<CUdeviceptr>(of) * sizeof(Flag);
    fields.value = barriers_;
    fields.flags = flags;
  };
  // What the stream did before is visible to all before the flag is; a wait ends at this number or a later one.
  for_others([&](int64_t r) { add(CU_STREAM_MEM_OP_WRITE_VALUE_32, CU_STREAM_WRITE_VALUE_DEFAULT, r, rank_); });
  for_others([&](int64_t r) { add(CU_STREAM_MEM_OP_WAIT_VALUE_32, wait_flags_, rank_, r); });
  const auto result = memory_operations()(stream_, static_cast<unsigned>(operations.size()), operations.data(), 0);
  if (result != CUDA_SUCCESS) fail("[cuStreamBatchMemOp] error {} of the driver", static_cast<int>(result));
}

/// Copies a value to each other rank, and lets the flags of a stream_barrier() announce it. Each round has values of its own
/// behind the flags: a rank may read those of one round while others already write the next.
class PeerCopies::Trial final : public TrialExchange {
 public:
  explicit Trial(PeerCopies& copies) : copies_(copies) {
    const auto options = at::TensorOptions().dtype(at::kInt);
    received_ = at::zeros({kRounds, copies.world_}, options.pinned_memory(true));
    auto values = at::zeros({kRounds, copies.world_}, options);
    for (int round = 0; round < kRounds; ++round) {
      for (int64_t to = 0; to < copies.world_; ++to)
        values[round][to] = static_cast<int32_t>(trial_value(round, copies.rank_, to));
    }
    values_ = values.to(at::kCUDA);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  void start(int round) override {
    const auto copy = [&](void* to, const void* from, int64_t count) {
      check(cudaMemcpyAsync(to, from, static_cast<size_t>(count) * sizeof(Flag), cudaMemcpyDefault, copies_.stream_),
            "cudaMemcpyAsync");
    };
    copies_.for_others([&](int64_t r) { copy(place(r, round) + copies_.rank_, values_[round][r].const_data_ptr(), 1); });
    copies_.stream_barrier();
    copy(received_[round].mutable_data_ptr(), place(copies_.rank_, round), copies_.world_);
  }

  bool is_done() override {
    const auto state = cudaStreamQuery(copies_.stream_);
    if (state == cudaErrorNotReady) return false;
    check(state, "cudaStreamQuery");
    return true;
  }

  std::vector<uint32_t> received(int round) override {
    const auto* values = received_[round].const_data_ptr<int32_t>();
    return {values, values + copies_.world_};
  }

  /// Writes the awaited flags itself, from another stream.
  void cancel() override {
    constexpr int kLaterThanAny = 0x7f;  // in each byte
    cudaStream_t other = nullptr;
    check(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaMemsetAsync(const_cast<void*>(copies_.flags_), kLaterThanAny, static_cast<size_t>(copies_.world_) * sizeof(Flag),
                          other),
          "cudaMemsetAsync");
    check(cudaStreamSynchronize(other), "cudaStreamSynchronize");
    check(cudaStreamDestroy(other), "cudaStreamDestroy");
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (!is_done()) {
      if (std::chrono::steady_clock::now() > deadline)
        fail("[cuStreamBatchMemOp] a wait does not end though its flag is there");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  Flag* place(int64_t rank, int round) const {
    auto* flags = reinterpret_cast<Flag*>(copies_.buffers_.at(copies_.flags_).of_ranks[static_cast<size_t>(rank)]);
    return flags + (1 + round) * copies_.world_;
  }

  PeerCopies& copies_;
  at::Tensor values_, received_;  ///< int32 [kRounds, ranks]: for each rank, on the GPU; from each rank, in pinned memory
};

std::string PeerCopies::try_exchange(std::chrono::duration<double> timeout) {
  Trial trial(*this);
  return scatterlm::try_exchange(trial, rank_, world_, timeout);
}

/// Copies to each other rank r; places(r) gives destination and source.
template <class F>
void PeerCopies::send(int64_t bytes, F places) {
  for_others([&](int64_t r) {
    const std::pair<char*, const char*> place = places(r);
    check(cudaMemcpyAsync(place.first, place.second, static_cast<size_t>(bytes), cudaMemcpyDefault, stream_),
          "cudaMemcpyAsync");
    if (bytes >= kLong) stream_barrier();
  });
  if (bytes < kLong) stream_barrier();
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

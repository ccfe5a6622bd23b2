#include "lib/dist/nccl_comm.h"

#include "lib/util/error.h"

#ifdef SCATTERLM_NCCL
#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <thread>

#include "lib/dist/shared_board.h"

namespace scatterlm {
namespace {

void check(ncclResult_t result, const char* what) {
  if (result != ncclSuccess) fail("[{}] {}", what, ncclGetErrorString(result));
}
void check(cudaError_t result, const char* what) {
  if (result != cudaSuccess) fail("[{}] {}", what, cudaGetErrorString(result));
}

// An abort drains what is queued, 4 ms a collective, so that much must not be under way.
constexpr uint32_t kMostInFlight = 64;
constexpr size_t kEvents = 2 * kMostInFlight;

ncclDataType_t type_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat: return ncclFloat32;
    case at::kBFloat16: return ncclBfloat16;
    case at::kDouble: return ncclFloat64;
    case at::kLong: return ncclInt64;
    default: fail("[nccl] takes float32, bfloat16, float64 and int64, got {}", c10::toString(tensor.scalar_type()));
  }
}

class NcclComm final : public Comm {
 public:
  explicit NcclComm(const CommOptions& options)
      : rank_(options.world.rank), world_(options.world.size), device_(options.device) {
    Rendezvous rendezvous(options);
    rendezvous.compare_identities();
    board_.emplace(options, rendezvous, 0);                // its watchdog runs before the first call that can hang
    setenv("NCCL_RUNTIME_CONNECT", "0", /*overwrite=*/0);  // connect now, not inside the first collective
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaEventCreateWithFlags(&ready_, cudaEventDisableTiming), "cudaEventCreate");
    for (auto& event : done_) check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
    check(cudaHostAlloc(reinterpret_cast<void**>(&answer_), sizeof(int64_t), cudaHostAllocDefault), "cudaHostAlloc");
    const uint32_t number = board_->watchdog().enter({});
    connect(rendezvous);
    board_->watchdog().leave(number);
    poller_ = std::thread([this] { poll(); });
    warm_up();
  }

  ~NcclComm() override {
    const bool failing = std::uncaught_exceptions() > 0;
    if (!failing) drain();
    stop_ = true;
    poller_.join();
    if (failing) return;  // NCCL's own end would wait for the others; the process is about to end
    ncclCommFinalize(comm_);
    ncclCommDestroy(comm_);
  }

  int64_t rank() const override { return rank_; }
  int64_t world() const override { return world_; }
  void set_step(int64_t step) override { board_->watchdog().set_step(step); }

  void all_reduce(at::Tensor tensor) override {
    wait(enqueue({Operation::kAllReduce, tensor.scalar_type(), tensor.numel()}, tensor, [&] {
      return ncclAllReduce(tensor.const_data_ptr(), tensor.mutable_data_ptr(), count(tensor), type_of(tensor), ncclSum, comm_,
                           stream_);
    }));
  }

  void broadcast(at::Tensor tensor) override {
    wait(enqueue({Operation::kBroadcast, tensor.scalar_type(), tensor.numel()}, tensor, [&] {
      return ncclBroadcast(tensor.const_data_ptr(), tensor.mutable_data_ptr(), count(tensor), type_of(tensor), 0, comm_,
                           stream_);
    }));
  }

  Ticket reduce_scatter(const at::Tensor& full, at::Tensor shard) override {
    return enqueue({Operation::kReduceScatter, full.scalar_type(), full.numel()}, full, [&] {
      return ncclReduceScatter(full.const_data_ptr(), shard.mutable_data_ptr(), count(shard), type_of(full), ncclSum, comm_,
                               stream_);
    });
  }

  Ticket all_gather(const at::Tensor& shard, at::Tensor full) override {
    return enqueue({Operation::kAllGather, shard.scalar_type(), full.numel()}, full, [&] {
      return ncclAllGather(shard.const_data_ptr(), full.mutable_data_ptr(), count(shard), type_of(full), comm_, stream_);
    });
  }

  void wait(Ticket ticket) override {
    check(cudaStreamWaitEvent(compute_stream(), done_[ticket % kEvents], 0), "cudaStreamWaitEvent");
  }

  void barrier() override {
    drain();
    const uint32_t number = board_->watchdog().enter({});
    board_->meet();
    check(cudaEventRecord(done_[number % kEvents], stream_), "cudaEventRecord");
    posted_ = number;  // the poller does the rest, as for any other
  }

  /// Answers with what the ranks said one call ago: only that step must be over, and the GPU keeps its queue.
  bool any(bool yes) override {
    bool answer = false;
    if (asked_ > 0) {
      check(cudaEventSynchronize(done_[asked_ % kEvents]), "cudaEventSynchronize");
      answer = *answer_ > 0;
    }
    votes_ = at::full({1}, static_cast<int64_t>(yes), at::TensorOptions().dtype(at::kLong).device(device_));
    asked_ = enqueue({Operation::kAllReduce, at::kLong, 1}, votes_, [&] {
      const auto result =
          ncclAllReduce(votes_.const_data_ptr(), votes_.mutable_data_ptr(), 1, ncclInt64, ncclSum, comm_, stream_);
      check(cudaMemcpyAsync(answer_, votes_.const_data_ptr(), sizeof(int64_t), cudaMemcpyDeviceToHost, stream_), "cudaMemcpy");
      return result;
    });
    return answer;
  }

 private:
  static size_t count(const at::Tensor& tensor) { return static_cast<size_t>(tensor.numel()); }
  cudaStream_t compute_stream() const {
    return static_cast<cudaStream_t>(c10::impl::VirtualGuardImpl(at::kCUDA).getStream(device_).native_handle());
  }

  void connect(Rendezvous& rendezvous) {
    ncclUniqueId id{};
    if (rank_ == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    const auto bytes = rendezvous.share("nccl", std::string(id.internal, sizeof(id.internal)));
    std::copy_n(bytes.begin(), sizeof(id.internal), id.internal);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;  // a sixth of the host's time per call; the watchdog covers a call that blocks
    check(ncclCommInitRankConfig(&comm_, static_cast<int>(world_), id, static_cast<int>(rank_), &config), "ncclCommInitRank");
  }

  /// One of each kind, so that whatever is set up late is set up before the first step.
  void warm_up() {
    auto full = at::zeros({world_}, at::TensorOptions().device(device_));
    all_reduce(full);
    broadcast(full);
    wait(reduce_scatter(full, full.narrow(0, rank_, 1)));
    wait(all_gather(full.narrow(0, rank_, 1), full));
    barrier();
  }

  template <class F>
  Ticket enqueue(const Call& call, const at::Tensor& tensor, F nccl_call) {
    if (!tensor.is_contiguous() || tensor.device() != device_)
      fail("[{}] needs a contiguous tensor on {}", describe(call), device_.str());
    while (posted_ - completed_ >= kMostInFlight) std::this_thread::sleep_for(std::chrono::microseconds(50));
    const uint32_t number = board_->watchdog().enter(call);  // before the call, which may block
    check(cudaEventRecord(ready_, compute_stream()), "cudaEventRecord");
    check(cudaStreamWaitEvent(stream_, ready_, 0), "cudaStreamWaitEvent");
    check(nccl_call(), "NCCL");
    check(cudaEventRecord(done_[number % kEvents], stream_), "cudaEventRecord");
    posted_ = number;
    return number;
  }

  void drain() {
    while (completed_ != posted_) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }

  /// A thread: tells the watchdog, which must not call CUDA, what is done, and compares calls once all ranks have made them.
  void poll() {
    uint32_t checked = 1;  // that of connect()
    for (; !stop_; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
      while (completed_ != posted_ && cudaEventQuery(done_[(completed_ + 1) % kEvents]) == cudaSuccess) {
        board_->watchdog().leave(++completed_);
      }
      uint32_t common = posted_;
      for (const auto& row : board_->rows()) {
        const uint32_t theirs = row.called;
        if (static_cast<int32_t>(theirs - common) < 0) common = theirs;
      }
      while (static_cast<int32_t>(common - checked) > 0) board_->watchdog().check_call(++checked);
    }
  }

  int64_t rank_, world_;
  at::Device device_;
  std::optional<SharedBoard> board_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t ready_ = nullptr;
  std::array<cudaEvent_t, kEvents> done_{};           ///< collective n records number n % kEvents
  std::atomic<uint32_t> posted_ = 1, completed_ = 1;  ///< collectives given to NCCL, and ended; the first was connect()
  at::Tensor votes_;
  int64_t* answer_ = nullptr;  ///< pinned
  Ticket asked_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread poller_;
};

}  // namespace

std::unique_ptr<Comm> make_nccl_comm(const CommOptions& options) {
  if (options.world.local_size < options.world.size) {
    fail_user("{} ranks on machines of {}: training on GPUs of several machines is not built in yet", options.world.size,
              options.world.local_size);
  }
  return std::make_unique<NcclComm>(options);
}

}  // namespace scatterlm
#else
std::unique_ptr<scatterlm::Comm> scatterlm::make_nccl_comm(const CommOptions&) {
  fail_user("this program was built without NCCL, which ranks with GPUs need; use train.device: cpu, or build with CUDA");
}
#endif

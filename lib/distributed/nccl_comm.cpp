#include "lib/distributed/nccl_comm.h"

#include "lib/util/error.h"

#ifdef SCATTERLM_NCCL
#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "lib/distributed/collective.h"
#include "lib/distributed/nccl_stream.h"
#include "lib/distributed/peer_copies.h"
#include "lib/distributed/shared_rank_status.h"
#include "lib/distributed/topology.h"
#include "lib/distributed/trial_exchange.h"
#include "lib/ops/reduce_partials.h"
#include "lib/util/gpu.h"
#include "lib/util/log/log.h"
#include "lib/util/text.h"

namespace scatterlm {
namespace {

// Collectives in flight; with more the host waits. Each has a place in the rings of events.
constexpr uint32_t kMostQueued = 64;
constexpr size_t kEvents = 2 * kMostQueued;

constexpr double kTrialTimeout_s = 5;  // of the first exchange by copy engines

std::string gpu_id(int64_t index) { return host_id() + " " + gpus().at(static_cast<size_t>(index)).uuid; }

/// Returns a predicate of gpu_id(): whether this process sees that GPU and NVLink joins its own GPU to it. Only links with
/// atomics keep the order of writes that PeerCopies needs; over PCIe, where settings of the host can break such writes, NCCL
/// has other ways.
auto reaches_from(at::Device own) {
  const char* disabled = std::getenv("NCCL_P2P_DISABLE");
  return [own, allowed = !disabled || std::string_view(disabled) == "0"](const std::string& id) {
    for (int64_t index = 0; index < std::ssize(gpus()); ++index) {
      if (gpu_id(index) != id) continue;
      int atomics = 0;
      return index == own.index() || (allowed &&
                                      cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, own.index(),
                                                                static_cast<int>(index)) == cudaSuccess &&
                                      atomics == 1);
    }
    return false;
  };
}

class NcclComm final : public Comm {
 public:
  explicit NcclComm(const CommOptions& options)
      : rank_(options.launch_env.rank), world_(options.launch_env.size), device_(options.device) {
    Rendezvous rendezvous(options);
    rendezvous.compare_identities();
    const auto gpus_of_ranks = rendezvous.collect("gpu", gpu_id(device_.index()));
    check_gpus(gpus_of_ranks);
    const auto machines = number_machines(rendezvous.collect("machine", machine_id()));
    const bool reached =
        agree_on_reason(rendezvous, "reach", std::ranges::all_of(gpus_of_ranks, reaches_from(device_)) ? "" : "no").empty();
    status_.emplace(options, rendezvous, machines, 0);     // its watchdog runs before the first call that can hang
    setenv("NCCL_RUNTIME_CONNECT", "0", /*overwrite=*/0);  // connect now, not inside the first collective
    answer_ = at::zeros({1}, at::TensorOptions().dtype(at::kLong).pinned_memory(true));
    const uint32_t number = status_->watchdog().enter({});
    connect(rendezvous);
    if (std::ranges::max(machines) > 0) {
      no_copies_ = "several machines";
    } else if (!reached) {
      no_copies_ = "not every rank sees all GPUs, joined by NVLink, or NCCL_P2P_DISABLE is set";
    } else {
      no_copies_ = open_copies(rendezvous, std::min(kTrialTimeout_s, options.start_timeout_s / 2));
    }
    status_->watchdog().leave(number);
    poller_ = std::jthread([this](const std::stop_token& stop) { poll(stop); });
    warm_up();
    status_->watchdog().started();
  }

  ~NcclComm() override {
    if (std::uncaught_exceptions() > 0) return;  // NCCL's own end would wait for the others; the process is about to end
    drain();
    poller_ = {};
    const uint32_t number = status_->watchdog().enter({});  // a rank that does not come here must not block the others
    if (const auto result = cudaDeviceSynchronize(); result != cudaSuccess) {  // what still computes may read the buffers
      log_warning(fmt::format("CUDA: {}", cudaGetErrorString(result)));
      tell_failure();  // the others may wait for data that never comes
    }
    if (copies_) copies_->free_all();
    if (!small_.finish() || !bulk_.finish()) {
      log_warning(fmt::format("NCCL did not end cleanly: {}", first_line(ncclGetLastError(nullptr))));
    }
    status_->watchdog().leave(number);
  }

  int64_t rank() const override { return rank_; }
  int64_t world() const override { return world_; }
  std::string transport() const override { return copies_ ? "copy engines" : fmt::format("NCCL's kernels ({})", no_copies_); }
  void set_step(int64_t step) override { status_->watchdog().set_step(step); }
  void tell_failure() override { status_->watchdog().tell_failure(); }
  void begin_storage() override { status_->own().storage_scopes++; }
  void end_storage() override { status_->own().storage_scopes--; }
  CommTimes take_times() override {
    const std::lock_guard lock(times_mutex_);
    return std::exchange(times_, {});
  }

  void all_reduce(at::Tensor tensor) override {
    wait(enqueue({Operation::kAllReduce, tensor.scalar_type(), tensor.numel()}, tensor, small_, [&](const NcclStream& nccl) {
      return ncclAllReduce(tensor.const_data_ptr(), tensor.mutable_data_ptr(), count(tensor), type_of(tensor), ncclSum,
                           nccl.comm, nccl.stream);
    }));
  }

  void broadcast(at::Tensor tensor) override {
    wait(enqueue({Operation::kBroadcast, tensor.scalar_type(), tensor.numel()}, tensor, small_, [&](const NcclStream& nccl) {
      return ncclBroadcast(tensor.const_data_ptr(), tensor.mutable_data_ptr(), count(tensor), type_of(tensor), 0, nccl.comm,
                           nccl.stream);
    }));
  }

  CollectiveHandle reduce_scatter(const at::Tensor& full, at::Tensor part) override {
    const auto own = part_of("reduce_scatter", full, rank_, world_);
    check_part("reduce_scatter", part, own);
    const Call call{Operation::kReduceScatter, full.scalar_type(), full.numel()};
    if (copies_) {  // without copy engines NCCL's own is faster; between machines it sends less through each link
      if (to_sum_) wait(to_sum_->handle);  // or the parts that it sums would be overwritten
      reserve(static_cast<int64_t>(full.nbytes()));
      const CollectiveHandle handle = enqueue(call, full, bulk_, [&](const NcclStream&) {
        copies_->exchange(full.const_data_ptr(), received_, static_cast<int64_t>(own.nbytes()));
        return ncclSuccess;
      });
      to_sum_ = {handle, own, part};
      return handle;
    }
    return enqueue(call, full, bulk_, [&](const NcclStream& nccl) {
      return ncclReduceScatter(full.const_data_ptr(), part.mutable_data_ptr(), count(part), type_of(full), ncclSum, nccl.comm,
                               nccl.stream);
    });
  }

  void reserve(int64_t bytes) override {
    if (!copies_ || bytes <= reserved_) return;
    check(cudaStreamSynchronize(compute_stream()), "cudaStreamSynchronize");  // a sum may still read what is there
    on_host({Operation::kBuffer, at::kByte, bytes}, [&] {
      if (received_) {
        copies_->free(received_);
        status_->barrier();  // all ranks have opened the memory: it is free once all have closed it
      }
      received_ = copies_->allocate(bytes / world_ * (world_ - 1));
    });
    reserved_ = bytes;
  }

  CollectiveHandle all_gather(at::Tensor full) override {
    const auto own = part_of("all_gather", full, rank_, world_);
    return enqueue({Operation::kAllGather, full.scalar_type(), full.numel()}, full, bulk_, [&](const NcclStream& nccl) {
      if (!copies_)
        return ncclAllGather(own.const_data_ptr(), full.mutable_data_ptr(), count(own), type_of(full), nccl.comm, nccl.stream);
      copies_->gather(full.const_data_ptr(), static_cast<int64_t>(own.nbytes()));
      return ncclSuccess;
    });
  }

  at::Tensor gather_buffer(int64_t numel, at::TensorOptions options) override {
    if (!copies_) return at::zeros({numel}, options.device(device_));
    void* memory = nullptr;
    const auto bytes = numel * static_cast<int64_t>(options.dtype().itemsize());
    on_host({Operation::kBuffer, options.dtype().toScalarType(), numel}, [&] { memory = copies_->allocate(bytes); });
    return at::from_blob(memory, {numel}, options.device(device_));
  }

  void wait(CollectiveHandle handle) override {
    if (!is_completed(handle)) {
      await([&] { return waited_ - measured_ < kEvents; });
      auto& pause = waits_[waited_ % kEvents];
      pause.before.record(compute_stream());
      done_[handle % kEvents].block(compute_stream());
      pause.after.record(compute_stream());
      ++waited_;
    }
    if (to_sum_ && to_sum_->handle == handle) {
      const auto sum = *std::exchange(to_sum_, {});
      ops::reduce_partials(at::from_blob(received_, {world_ - 1, sum.own.numel()}, sum.own.options()), sum.own, rank_,
                           sum.part);
    }
  }

  void barrier() override {
    on_host({}, [&] { status_->barrier(); });
  }

  void background_barrier(std::stop_token stop) override { status_->background_barrier(stop); }

  /// Returns what the ranks said one call ago: only that collective must have ended, and the GPU's queue stays full.
  bool any(bool yes) override {
    bool answer = false;
    if (asked_ > 0) {
      if (!is_completed(asked_)) done_[asked_ % kEvents].synchronize();
      answer = answer_.item<int64_t>() > 0;
    }
    votes_ = at::full({1}, static_cast<int64_t>(yes), at::TensorOptions().dtype(at::kLong).device(device_));
    asked_ = enqueue({Operation::kAllReduce, at::kLong, 1}, votes_, small_, [&](const NcclStream& nccl) {
      const auto result =
          ncclAllReduce(votes_.const_data_ptr(), votes_.mutable_data_ptr(), 1, ncclInt64, ncclSum, nccl.comm, nccl.stream);
      check(cudaMemcpyAsync(answer_.mutable_data_ptr(), votes_.const_data_ptr(), sizeof(int64_t), cudaMemcpyDeviceToHost,
                            nccl.stream),
            "cudaMemcpy");
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
    if (bytes.size() != sizeof(id.internal))
      fail("[nccl] rank 0's id has {} bytes, must be {}", bytes.size(), sizeof(id.internal));
    std::copy_n(bytes.begin(), sizeof(id.internal), id.internal);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;  // takes a sixth of the host's time per call; the watchdog covers a call that blocks
    check(ncclCommInitRankConfig(&bulk_.comm, static_cast<int>(world_), id, static_cast<int>(rank_), &config),
          "ncclCommInitRank");
    check(ncclCommSplit(bulk_.comm, /*color=*/0, static_cast<int>(rank_), &small_.comm, &config), "ncclCommSplit");
  }

  /// Sets copies_ up if they work on all ranks. Otherwise returns why not.
  std::string open_copies(Rendezvous& rendezvous, double trial_timeout_s) {
    copies_.emplace(rank_, world_, bulk_.comm, bulk_.stream);
    auto reason =
        agree_on_reason(rendezvous, "shared memory", copies_->is_shared() ? "" : "NCCL shares no memory between these GPUs");
    if (reason.empty()) {
      const std::chrono::duration<double> timeout(trial_timeout_s);
      reason = agree_on_reason(rendezvous, "trial exchange", copies_->try_exchange(timeout));
    }
    if (!reason.empty()) {
      copies_->free_all();
      copies_.reset();
    }
    return reason;
  }

  /// One collective of each kind, so that whatever NCCL sets up late is set up before the first step.
  void warm_up() {
    const auto options = at::TensorOptions().device(device_);
    constexpr int64_t kShard = 8;  // what kernels take
    const int64_t numel = kShard * world_;
    auto full = at::zeros({numel}, options);
    all_reduce(full);
    broadcast(full);
    wait(reduce_scatter(full, full.narrow(0, rank_ * kShard, kShard)));
    wait(all_gather(gather_buffer(numel, options)));
    barrier();
  }

  /// A collective that has ended when `body`, which waits for all ranks, returns.
  template <class F>
  void on_host(const Call& call, F body) {
    drain();
    const uint32_t number = status_->watchdog().enter(call);
    body();
    done_[number % kEvents].record(small_.stream);
    posted_ = number;  // the poller does the rest, as for any other
  }

  template <class F>
  CollectiveHandle enqueue(const Call& call, const at::Tensor& tensor, NcclStream& nccl, F call_nccl) {
    if (!tensor.is_contiguous() || tensor.device() != device_)
      fail("[{}] needs a contiguous tensor on {}", describe(call), device_.str());
    await([&] { return posted_ - completed_ < kMostQueued; });
    const uint32_t number = status_->watchdog().enter(call);  // before the call, which may block
    ready_.record(compute_stream());
    ready_.block(nccl.stream);
    if (&nccl == &bulk_ && copies_)
      copies_->stream_barrier();  // the measured time shall not include waiting for the slowest rank
    begun_[number % kEvents].record(nccl.stream);
    check(call_nccl(nccl), "NCCL");
    done_[number % kEvents].record(nccl.stream);
    posted_ = number;
    return number;
  }

  /// Waits until the poller has come that far, or has seen an error of CUDA, which the next call to CUDA reports.
  template <class F>
  void await(F reached) const {
    while (!reached() && !broken_) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  void drain() const {
    await([&] { return completed_ == posted_; });
  }
  bool is_completed(CollectiveHandle handle) const {
    return static_cast<int32_t>(completed_ - static_cast<uint32_t>(handle)) >= 0;
  }

  /// Body of the poller thread: tells the watchdog, which must not call CUDA, which collectives have ended, measures them, and
  /// compares the calls of the ranks.
  void poll(const std::stop_token& stop) {
    c10::impl::VirtualGuardImpl(at::kCUDA).setDevice(device_);  // or its first call would take up memory on GPU 0
    for (; !stop.stop_requested(); std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
      for (; measured_ != waited_ && is_over(waits_[measured_ % kEvents].after); ++measured_) {
        const auto& pause = waits_[measured_ % kEvents];
        const std::lock_guard lock(times_mutex_);
        times_.exposed_ms += pause.after.ms_since(pause.before);
      }
      while (completed_ != posted_ && is_over(done_[(completed_ + 1) % kEvents])) complete(completed_ + 1);
      status_->watchdog().compare_calls();
    }
  }

  bool is_over(const Event& event) {
    const cudaError_t state = event.query();
    if (state != cudaSuccess && state != cudaErrorNotReady) broken_ = true;
    return state == cudaSuccess;
  }

  void complete(uint32_t number) {
    const auto called = status_->own().find(number);
    if (called && (called->call.operation == Operation::kReduceScatter || called->call.operation == Operation::kAllGather)) {
      const std::lock_guard lock(times_mutex_);
      add_moved(times_, called->call, world_, done_[number % kEvents].ms_since(begun_[number % kEvents]));
    }
    status_->watchdog().leave(number);
    completed_ = number;
  }

  int64_t rank_, world_;
  at::Device device_;
  std::optional<SharedRankStatus> status_;
  /// One stream for parameters and gradients, and one for small tensors that are waited for at once, such as statistics: they
  /// must not queue up behind the parameters of later layers.
  NcclStream bulk_, small_;
  /// Among GPUs of one machine that reach each other's memory: all-gathers into buffers of gather_buffer(), and
  /// reduce-scatters, which are an exchange of parts and a sum on the stream of the computation that waits for it.
  std::optional<PeerCopies> copies_;
  std::string no_copies_;     ///< why not
  void* received_ = nullptr;  ///< the parts that the other ranks have for this one
  int64_t reserved_ = 0;      ///< bytes of the largest tensor that received_ suffices for
  struct Sum {
    CollectiveHandle handle;
    at::Tensor own, part;
  };
  std::optional<Sum> to_sum_;
  Event ready_;
  std::array<Event, kEvents> begun_, done_;           ///< collective n records number n % kEvents
  std::atomic<uint32_t> posted_ = 1, completed_ = 1;  ///< number of the last collective begun, and ended; 1 was connect()
  struct Wait {
    Event before, after;
  };
  std::array<Wait, kEvents> waits_;                  ///< of the computation
  std::atomic<uint32_t> waited_ = 0, measured_ = 0;  ///< begun, and added to times_
  std::mutex times_mutex_;
  CommTimes times_;
  at::Tensor votes_, answer_;  ///< on the device; pinned
  CollectiveHandle asked_ = 0;
  std::atomic<bool> broken_ = false;  ///< CUDA has reported an error
  std::jthread poller_;
};

}  // namespace

std::unique_ptr<Comm> make_nccl_comm(const CommOptions& options) { return std::make_unique<NcclComm>(options); }

}  // namespace scatterlm
#else
std::unique_ptr<scatterlm::Comm> scatterlm::make_nccl_comm(const CommOptions&) {
  fail_user("this program was built without NCCL, which ranks with GPUs need; use train.device: cpu, or build with CUDA");
}
#endif

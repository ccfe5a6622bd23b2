#include "lib/distributed/local_comm.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "lib/distributed/collective.h"
#include "lib/distributed/shared_rank_status.h"
#include "lib/distributed/topology.h"
#include "lib/util/error.h"

namespace scatterlm {
namespace {

constexpr int64_t kSlotBytes = 1 << 20;

template <class T>
void sum(T* out, const std::vector<const T*>& parts, int64_t count) {
  using Accumulator = std::conditional_t<std::is_same_v<T, at::BFloat16>, float, T>;
  for (int64_t i = 0; i < count; ++i) {
    auto total = static_cast<Accumulator>(parts[0][i]);
    for (size_t p = 1; p < parts.size(); ++p) total += static_cast<Accumulator>(parts[p][i]);
    out[i] = static_cast<T>(total);
  }
}

/// A range of elements that fits into a slot.
struct Piece {
  int64_t begin, count;
};

class LocalComm final : public Comm {
 public:
  explicit LocalComm(const CommOptions& options) : rank_(options.launch_env.rank), world_(options.launch_env.size) {
    Rendezvous rendezvous(options);
    rendezvous.compare_identities();
    const auto machines = number_machines(rendezvous.collect("machine", machine_id()));
    if (const auto count = *std::max_element(machines.begin(), machines.end()) + 1; count > 1) {
      fail_user("the {} ranks are on {} machines, and CPU ranks work on one alone: start them all on one, or use GPUs", world_,
                count);
    }
    status_.emplace(options, rendezvous, machines, static_cast<size_t>(2 * world_ * kSlotBytes));
    status_->watchdog().started();
  }

  int64_t rank() const override { return rank_; }
  int64_t world() const override { return world_; }
  std::string transport() const override { return "shared memory"; }
  void set_step(int64_t step) override { status_->watchdog().set_step(step); }
  void tell_failure() override { status_->watchdog().tell_failure(); }
  void begin_storage() override { status_->own().storage_scopes++; }
  void end_storage() override { status_->own().storage_scopes--; }
  CommTimes take_times() override { return std::exchange(times_, {}); }
  void wait(CollectiveHandle) override {}

  void all_reduce(at::Tensor tensor) override {
    collective({Operation::kAllReduce, tensor.scalar_type(), tensor.numel()}, tensor, [&]<class T>(T* data) {
      exchange<T>(
          tensor.numel(), kSlotBytes / sizeof(T), [&](Piece piece, T* slot) { copy(slot, data + piece.begin, piece.count); },
          [&](Piece piece, const std::vector<const T*>& slots) { sum(data + piece.begin, slots, piece.count); });
    });
  }

  void broadcast(at::Tensor tensor) override {
    collective({Operation::kBroadcast, tensor.scalar_type(), tensor.numel()}, tensor, [&]<class T>(T* data) {
      exchange<T>(
          tensor.numel(), kSlotBytes / sizeof(T),
          [&](Piece piece, T* slot) {
            if (rank_ == 0) copy(slot, data + piece.begin, piece.count);
          },
          [&](Piece piece, const std::vector<const T*>& slots) { copy(data + piece.begin, slots[0], piece.count); });
    });
  }

  void barrier() override {
    auto nothing = at::empty({0});
    collective({}, nothing, [&]<class T>(T*) {
      exchange<T>(
          0, 1, [](Piece, T*) {}, [](Piece, const std::vector<const T*>&) {});
    });
  }

  void background_barrier(std::stop_token stop) override { status_->background_barrier(stop); }

  bool any(bool yes) override {
    auto flag = at::full({1}, static_cast<int64_t>(yes), at::kLong);
    all_reduce(flag);
    return flag.item<int64_t>() > 0;
  }

  CollectiveHandle reduce_scatter(const at::Tensor& full, at::Tensor part) override {
    check_part("reduce_scatter", part, part_of("reduce_scatter", full, rank_, world_));
    const int64_t n = part.numel();
    collective({Operation::kReduceScatter, full.scalar_type(), full.numel()}, full, [&]<class T>(T* data) {
      auto* out = part.mutable_data_ptr<T>();
      const int64_t room = kSlotBytes / static_cast<int64_t>(sizeof(T)) / world_;  // of a slot for each destination
      exchange<T>(
          n, room,
          [&](Piece piece, T* slot) {
            for (int64_t r = 0; r < world_; ++r) copy(slot + r * room, data + r * n + piece.begin, piece.count);
          },
          [&](Piece piece, std::vector<const T*> slots) {
            for (auto& slot : slots) slot += rank_ * room;
            sum(out + piece.begin, slots, piece.count);
          });
    });
    return 0;
  }

  CollectiveHandle all_gather(at::Tensor full) override {
    const int64_t n = part_of("all_gather", full, rank_, world_).numel();
    collective({Operation::kAllGather, full.scalar_type(), full.numel()}, full, [&]<class T>(T* data) {
      exchange<T>(
          n, kSlotBytes / sizeof(T), [&](Piece piece, T* slot) { copy(slot, data + rank_ * n + piece.begin, piece.count); },
          [&](Piece piece, const std::vector<const T*>& slots) {
            for (int64_t r = 0; r < world_; ++r) copy(data + r * n + piece.begin, slots[r], piece.count);
          });
    });
    return 0;
  }

 private:
  template <class T>
  static void copy(T* to, const T* from, int64_t count) {
    if (count > 0) std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));  // an empty tensor has no memory
  }

  /// Each rank has two slots, which alternate from barrier to barrier: a rank that writes one knows that all have read it.
  std::byte* slot(int64_t rank) { return status_->extra() + (2 * rank + status_->barriers() % 2) * kSlotBytes; }

  /// Calls body with the tensor's data as its type.
  template <class F>
  void collective(const Call& call, const at::Tensor& tensor, F body) {
    if (!tensor.is_contiguous() || !tensor.is_cpu()) fail("[{}] needs a contiguous tensor on the CPU", describe(call));
    const auto start = std::chrono::steady_clock::now();
    const uint32_t number = status_->watchdog().enter(call);
    switch (tensor.scalar_type()) {
      case at::kFloat: body(tensor.mutable_data_ptr<float>()); break;
      case at::kBFloat16: body(tensor.mutable_data_ptr<at::BFloat16>()); break;
      case at::kDouble: body(tensor.mutable_data_ptr<double>()); break;
      case at::kLong: body(tensor.mutable_data_ptr<int64_t>()); break;
      default: fail("[{}] takes float32, bfloat16, float64 and int64", describe(call));
    }
    status_->watchdog().leave(number);
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    times_.exposed_ms += ms;
    add_moved(times_, call, world_, ms);
  }

  /// For each piece: write the own slot, wait at a barrier, read all slots. There is at least one barrier, and after the first
  /// the calls are compared.
  template <class T, class Write, class Read>
  void exchange(int64_t count, int64_t room, Write write, Read read) {
    int64_t begin = 0;
    do {
      const Piece piece{begin, std::min(room, count - begin)};
      write(piece, reinterpret_cast<T*>(slot(rank_)));
      std::vector<const T*> slots;
      for (int64_t r = 0; r < world_; ++r) slots.push_back(reinterpret_cast<const T*>(slot(r)));
      status_->barrier();
      if (begin == 0) status_->watchdog().compare_calls();
      read(piece, slots);
      begin += piece.count;
    } while (begin < count);
  }

  int64_t rank_, world_;
  std::optional<SharedRankStatus> status_;
  CommTimes times_;
};

}  // namespace

std::unique_ptr<Comm> make_local_comm(const CommOptions& options) { return std::make_unique<LocalComm>(options); }

}  // namespace scatterlm

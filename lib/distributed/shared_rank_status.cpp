#include "lib/distributed/shared_rank_status.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <exception>

#include "lib/distributed/bridge.h"
#include "lib/util/error.h"

namespace scatterlm {
namespace {

constexpr auto kPatienceAtEnd = std::chrono::seconds(10);  // of rank 0 where it keeps the store
constexpr timespec kNap{.tv_sec = 0, .tv_nsec = 10'000'000};

void wake_waiters(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

/// Returns when the word has reached `goal`; it counts up and may wrap around. The watchdog ends a wait in vain.
void wait_until(std::atomic<uint32_t>& word, uint32_t goal, const std::stop_token& stop = {}) {
  for (int spin = 0; spin < 200; ++spin) {
    if (static_cast<int32_t>(word - goal) >= 0) return;
  }
  for (uint32_t seen = word; static_cast<int32_t>(seen - goal) < 0; seen = word) {
    if (stop.stop_requested()) fail("stopped while other ranks are waited for");
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen, &kNap, nullptr, 0);
  }
}

StoreLink::Options link_options(const LaunchEnv& world, const Rendezvous& rendezvous, std::shared_ptr<Bridge> bridge) {
  const auto name = [](int64_t rank) { return fmt::format("rank {}", rank); };
  StoreLink::Options options{.world = world, .name = name(world.rank)};
  options.errand = [bridge = std::move(bridge)](c10d::Store& store, bool leaving) {
    if (leaving) bridge->leave(store);
    return !leaving && bridge->carry(store);
  };
  if (!keeps_store(world)) return options;
  options.kept = rendezvous.store();
  for (int64_t rank = 1; rank < world.size; ++rank) options.awaited.push_back(name(rank));
  return options;
}

}  // namespace

SharedRankStatus::SharedRankStatus(const CommOptions& options, Rendezvous& rendezvous, const std::vector<int64_t>& machines,
                                   size_t extra_bytes)
    : rank_(options.world.rank), world_(options.world.size) {
  const size_t bytes = board_bytes() + extra_bytes;
  const int64_t machine = machines[static_cast<size_t>(rank_)];
  const auto maker = std::find(machines.begin(), machines.end(), machine) - machines.begin();
  if (rank_ == maker) {
    memory_ = std::make_shared<SharedMemory>(bytes);
    for (RankStatus& row : rows())
      row.heartbeat = now_ns();  // or one that dies soon would be taken for one that has long been stopped
  }
  const auto paths = rendezvous.collect("memory", rank_ == maker ? memory_->path() : "");
  if (rank_ != maker) memory_ = std::make_shared<SharedMemory>(paths[static_cast<size_t>(maker)], bytes);
  rows()[static_cast<size_t>(rank_)].pid = getpid();
  const bool several = std::count(machines.begin(), machines.end(), machine) < world_;
  if (several) {
    link_.emplace(link_options(options.world, rendezvous, std::make_shared<Bridge>(memory_, rank_, machines)));
    if (!link_->is_linked(options.start_timeout_s))
      fail("rank {} gets no second connection to {} within {:g} s (parallel.start_timeout_s)", rank_,
           store_keeper(options.world), options.start_timeout_s);
  }
  rows()[static_cast<size_t>(rank_)].heartbeat = now_ns();  // connecting may have taken long
  rendezvous.meet("mapped");
  watchdog_.emplace(board(), rank_, machines, Patience{options.start_timeout_s, options.timeout_s},
                    several ? &*link_ : nullptr);
}

SharedRankStatus::~SharedRankStatus() {
  watchdog_.reset();
  if (link_ && std::uncaught_exceptions() == 0) link_->leave(kPatienceAtEnd);
}

void SharedRankStatus::meet() { meet(&RankStatus::arrived, ++meetings_, {}); }
void SharedRankStatus::meet_in_background(const std::stop_token& stop) {
  meet(&RankStatus::beside, ++background_meetings_, stop);
}

void SharedRankStatus::meet(std::atomic<uint32_t> RankStatus::*place, uint32_t meeting, const std::stop_token& stop) {
  auto& own = rows()[static_cast<size_t>(rank_)].*place;
  own = meeting;
  wake_waiters(own);
  for (auto& row : rows()) wait_until(row.*place, meeting, stop);
}

}  // namespace scatterlm

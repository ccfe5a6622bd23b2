#include "lib/distributed/shared_rank_status.h"

#include <fmt/ranges.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <exception>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "lib/distributed/topology.h"
#include "lib/util/error.h"
#include "lib/util/text.h"

namespace scatterlm {
namespace {

constexpr timespec kWait{.tv_sec = 0, .tv_nsec = 10'000'000};

void wake_waiters(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

void throw_if_stopped(const std::stop_token& stop) {
  if (stop.stop_requested()) fail("asked to stop while waiting for other ranks");
}

/// Returns when the word has reached `goal`; it counts up and may wrap around.
void wait_until(std::atomic<uint32_t>& word, uint32_t goal, const std::stop_token& stop) {
  for (int spin = 0; spin < 200; ++spin) {
    if (static_cast<int32_t>(word - goal) >= 0) return;
  }
  for (uint32_t seen = word; static_cast<int32_t>(seen - goal) < 0; seen = word) {
    throw_if_stopped(stop);
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen, &kWait, nullptr, 0);
  }
}

/// The first rank of a machine that runs sends the heartbeat: the progress of the rank that has called the fewest collectives.
std::optional<MachineProgress> heartbeat(std::span<RankStatus> rows, const RankStatus& own) {
  const auto first =
      std::ranges::find_if(rows, [&](const RankStatus& row) { return &row == &own || (!row.finished && !row.is_stopped()); });
  if (&*first != &own) return std::nullopt;
  MachineProgress slowest{own.rank, own.called, own.storage_scopes > 0};
  for (const RankStatus& row : rows) {
    const MachineProgress progress{row.rank, row.called, row.storage_scopes > 0};
    const auto ahead = static_cast<int32_t>(progress.called - slowest.called);
    // Of several, one without an excuse: the others may wait longer for the rest.
    if (ahead < 0 || (ahead == 0 && slowest.in_storage && !progress.in_storage)) slowest = progress;
  }
  return slowest;
}

}  // namespace

SharedRankStatus::SharedRankStatus(const CommOptions& options, Rendezvous& rendezvous, const std::vector<int64_t>& machines,
                                   size_t extra_bytes) {
  const int64_t rank = options.launch_env.rank, machine = machines[static_cast<size_t>(rank)];
  const auto first_rank = std::ranges::find(machines, machine) - machines.begin();
  num_machines_ = std::ranges::max(machines) + 1;
  local_rank_ = std::count(machines.begin(), machines.begin() + rank, machine);
  local_size_ = std::ranges::count(machines, machine);
  const size_t bytes = table_bytes() + extra_bytes;
  if (local_rank_ == 0) {
    memory_ = std::make_shared<SharedMemory>(bytes);
    for (RankStatus& row : rows()) row.heartbeat = now_ns();  // or a rank that dies early would look long stopped
  }
  const auto paths = rendezvous.collect("memory", local_rank_ == 0 ? memory_->path() : "");
  if (local_rank_ != 0) memory_ = std::make_shared<SharedMemory>(paths[static_cast<size_t>(first_rank)], bytes);
  own().rank = rank;
  own().pid = getpid();
  if (num_machines_ > 1) start_monitor(options, rendezvous, machines);
  own().heartbeat = now_ns();  // connecting may have taken long
  rendezvous.barrier("mapped");
  watchdog_.emplace(table(), rows(), local_rank_,
                    Timeouts{options.start_timeout_s, options.timeout_s, options.storage_timeout_s},
                    monitor_ ? &*monitor_ : nullptr);
}

void SharedRankStatus::start_monitor(const CommOptions& options, Rendezvous& rendezvous, const std::vector<int64_t>& machines) {
  const LaunchEnv& env = options.launch_env;
  const auto hosts = rendezvous.collect("host", host_name());
  std::vector<std::vector<int64_t>> ranks(static_cast<size_t>(num_machines_));
  for (size_t rank = 0; rank < machines.size(); ++rank)
    ranks[static_cast<size_t>(machines[rank])].push_back(static_cast<int64_t>(rank));
  std::vector<std::string> names;
  for (const auto& own_ranks : ranks) {
    names.push_back(fmt::format("machine {} ({}, rank{} {})", names.size(), hosts[static_cast<size_t>(own_ranks.front())],
                                own_ranks.size() > 1 ? "s" : "", fmt::join(own_ranks, ", ")));
  }
  store_owner_ = store_owner(env);
  store_ = rendezvous.store();
  const auto rows_of = [memory = memory_, size = local_size_] {  // the monitor's thread may outlive this object
    return reinterpret_cast<RankStatusTable*>(memory->data())->rows(size);
  };
  monitor_.emplace(MachineMonitor::Options{
      .store = rendezvous.connect(),
      .store_owner = store_owner_,
      .reporter = fmt::format("rank {} on {}", env.rank, host_name()),
      .machines = names,
      .machine = machines[static_cast<size_t>(env.rank)],
      .heartbeat = [rows_of, &own = own()] { return heartbeat(rows_of(), own); },
      .machine_finished =
          [rows_of] { return std::ranges::all_of(rows_of(), [](const RankStatus& row) { return row.finished.load(); }); },
      .await_ranks = keeps_store(env) ? env.size : 0});
}

SharedRankStatus::~SharedRankStatus() {
  watchdog_.reset();
  if (monitor_ && std::uncaught_exceptions() == 0) monitor_->finish();
}

void SharedRankStatus::barrier() {
  barrier({&RankStatus::barriers, &RankStatusTable::barriers_passed, "barrier"}, ++barriers_, {});
}
void SharedRankStatus::background_barrier(const std::stop_token& stop) {
  barrier({&RankStatus::background_barriers, &RankStatusTable::background_barriers_passed, "background barrier"},
          ++background_barriers_, stop);
}

/// On several machines the first rank of each waits for the others of its machine, and then for the other machines.
void SharedRankStatus::barrier(const BarrierKind& kind, uint32_t number, const std::stop_token& stop) {
  auto& reached = own().*kind.reached;
  auto& passed = table().*kind.passed;
  reached = number;
  wake_waiters(reached);
  if (num_machines_ > 1 && local_rank_ > 0) return wait_until(passed, number, stop);
  for (auto& row : rows()) wait_until(row.*kind.reached, number, stop);
  if (num_machines_ == 1) return;
  await_machines(kind, number, stop);
  passed = number;
  wake_waiters(passed);
}

void SharedRankStatus::await_machines(const BarrierKind& kind, uint32_t number, const std::stop_token& stop) {
  constexpr auto kLongestPause = std::chrono::milliseconds(16);
  auto pause = std::chrono::milliseconds(1);
  try {
    const int64_t goal = num_machines_ * static_cast<int64_t>(number);
    for (int64_t reached = store_->add(kind.key, 1); reached < goal; reached = store_->add(kind.key, 0)) {
      if (stop.stop_requested()) break;
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, kLongestPause);
    }
  } catch (const std::exception& error) {
    std::this_thread::sleep_for(std::chrono::seconds(2));  // for the watchdog, which says where all ranks were
    fail("{}, which keeps the store, is gone: {}", store_owner_, first_line(error.what()));
  }
  throw_if_stopped(stop);
}

}  // namespace scatterlm

#include "lib/distributed/machine_monitor.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "lib/distributed/rendezvous.h"
#include "lib/util/text.h"

namespace scatterlm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPeriod = std::chrono::milliseconds(100), kHeartbeatPeriod = std::chrono::milliseconds(500);
constexpr auto kCallTimeout = std::chrono::seconds(1);
constexpr auto kFinishTimeout = std::chrono::seconds(10);  // of the rank that keeps the store, for the others to leave
const char* const kAbort = "abort";
const char* const kLeft = "ranks that have left";
const char* const kFinished = "finished";

std::string heartbeat_key(size_t machine) { return fmt::format("heartbeat/{}", machine); }

/// What is known of another machine. Its heartbeat is a counter, and silence is measured by the clock of this machine.
struct Machine {
  std::string heartbeat;
  double silent_s = 0;

  bool finished() const { return heartbeat == kFinished; }
};

}  // namespace

struct MachineMonitor::State {
  Options options;
  std::mutex mutex;  // of all below
  std::condition_variable changed;
  std::optional<std::string> to_report, failure;
  std::vector<Machine> machines;
  uint64_t answers = 0;
  bool reported = false, stopping = false, ended = false;
  std::chrono::seconds finish_timeout{0};

  bool must_report() const { return to_report && !reported; }
  void watch();
  void exchange_heartbeats(uint64_t number, double passed_s);
  void leave();
};

MachineMonitor::MachineMonitor(Options options) : state_(std::make_shared<State>()) {
  state_->machines.resize(options.machines.size());
  state_->options = std::move(options);
  std::thread([state = state_] { run(state); }).detach();
}

MachineMonitor::~MachineMonitor() { stop(std::chrono::seconds(0)); }

std::optional<std::string> MachineMonitor::failure() const {
  const std::lock_guard lock(state_->mutex);
  return state_->failure;
}

std::optional<std::string> MachineMonitor::silent_machine(double timeout_s) const {
  const std::lock_guard lock(state_->mutex);
  const auto& machines = state_->machines;
  const auto longest = std::ranges::max_element(machines, {}, &Machine::silent_s);
  if (longest->silent_s <= timeout_s) return std::nullopt;
  return fmt::format("{} has sent no heartbeat for {:.1f} s: it is stopped, down or out of reach",
                     state_->options.machines[static_cast<size_t>(longest - machines.begin())], longest->silent_s);
}

std::optional<std::string> MachineMonitor::late_rank(uint32_t number) const {
  const std::lock_guard lock(state_->mutex);
  for (size_t machine = 0; machine < state_->machines.size(); ++machine) {
    const auto& name = state_->options.machines[machine];
    if (state_->machines[machine].finished()) return fmt::format("{} has left the run", name);
    const auto progress = read_heartbeat(state_->machines[machine].heartbeat);
    if (progress && static_cast<int32_t>(number - progress->called) > 0) {
      return fmt::format("rank {} of {} has not called the collective that the others wait in", progress->rank, name);
    }
  }
  return std::nullopt;
}

bool MachineMonitor::awaits_storage(uint32_t number) const {
  const std::lock_guard lock(state_->mutex);
  int64_t late = 0, in_storage = 0;
  for (const auto& machine : state_->machines) {
    const auto progress = read_heartbeat(machine.heartbeat);
    const bool is_late = machine.finished() || (progress && static_cast<int32_t>(number - progress->called) > 0);
    late += is_late;
    in_storage += is_late && progress && progress->in_storage;
  }
  return late > 0 && in_storage == late;
}

uint64_t MachineMonitor::answers() const {
  const std::lock_guard lock(state_->mutex);
  return state_->answers;
}

std::string MachineMonitor::store_owner() const { return state_->options.store_owner + ", which keeps the store,"; }

void MachineMonitor::abort(const std::string& reason) {
  std::unique_lock lock(state_->mutex);
  if (state_->to_report || state_->failure) return;
  state_->to_report = fmt::format("{} (reported by {})", reason, state_->options.reporter);
  state_->changed.notify_all();
  state_->changed.wait_for(lock, kCallTimeout, [this] { return state_->reported || state_->ended; });
}

void MachineMonitor::let_others_read() const {
  if (state_->options.await_ranks > 0) std::this_thread::sleep_for(5 * kPeriod);
}

void MachineMonitor::finish() { stop(kFinishTimeout); }

void MachineMonitor::stop(std::chrono::seconds timeout) {
  std::unique_lock lock(state_->mutex);
  if (!std::exchange(state_->stopping, true)) state_->finish_timeout = timeout;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, timeout + kCallTimeout, [this] { return state_->ended; });
}

void MachineMonitor::run(const std::shared_ptr<State>& state) {
  try {
    state->watch();
    state->leave();
  } catch (const std::exception& error) {
    const std::lock_guard lock(state->mutex);
    if (!state->stopping) {
      state->failure =
          fmt::format("{}, which keeps the store, is gone: {}", state->options.store_owner, first_line(error.what()));
    }
  }
  state->options.store.reset();
  const std::lock_guard lock(state->mutex);
  state->ended = true;
  state->changed.notify_all();
}

/// Until it is to stop.
void MachineMonitor::State::watch() {
  auto& store = *options.store;
  uint64_t number = 0;
  auto last = Clock::now() - kHeartbeatPeriod;
  for (std::unique_lock lock(mutex); !stopping;) {
    const auto report = must_report() ? to_report : std::nullopt;
    lock.unlock();
    if (report) claim(store, kAbort, *report);
    std::optional<std::string> read;
    if (store.check({kAbort})) read = store.get_to_str(kAbort);
    if (const auto now = Clock::now(); now - last >= kHeartbeatPeriod) {
      // A process that was paused must not blame the others for its own pause.
      exchange_heartbeats(++number, std::min(std::chrono::duration<double>(now - last).count(), 1.0));
      last = now;
    }
    lock.lock();
    ++answers;
    reported = reported || report;
    if (read) failure = read;
    changed.notify_all();
    changed.wait_for(lock, kPeriod, [this] { return stopping || must_report(); });
  }
}

void MachineMonitor::State::exchange_heartbeats(uint64_t number, double passed_s) {
  auto& store = *options.store;
  const auto own = static_cast<size_t>(options.machine);
  if (const auto progress = options.heartbeat()) store.set(heartbeat_key(own), write_heartbeat(number, *progress));
  std::vector<size_t> others;
  std::vector<std::string> keys;
  for (size_t machine = 0; machine < machines.size(); ++machine) {
    const auto key = heartbeat_key(machine);
    if (machine == own) continue;
    if (machines[machine].heartbeat.empty() && !store.check({key})) continue;  // multiGet would wait for it
    others.push_back(machine);
    keys.push_back(key);
  }
  const auto values = keys.empty() ? std::vector<std::vector<uint8_t>>() : store.multiGet(keys);
  const std::lock_guard lock(mutex);
  for (size_t machine = 0; machine < machines.size(); ++machine) {
    if (machine != own) machines[machine].silent_s += passed_s;
  }
  for (size_t i = 0; i < others.size(); ++i) {
    auto& machine = machines[others[i]];
    const std::string value(values[i].begin(), values[i].end());
    if (std::exchange(machine.heartbeat, value) != value || machine.finished()) machine.silent_s = 0;
  }
}

void MachineMonitor::State::leave() {
  auto& store = *options.store;
  // The last rank of a machine finds all of them finished, and nobody writes a heartbeat after it.
  if (options.machine_finished()) store.set(heartbeat_key(static_cast<size_t>(options.machine)), kFinished);
  store.add(kLeft, 1);
  const auto deadline = Clock::now() + finish_timeout;
  while (Clock::now() < deadline && store.add(kLeft, 0) < options.await_ranks) std::this_thread::sleep_for(kPeriod / 10);
}

}  // namespace scatterlm

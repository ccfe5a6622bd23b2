#include "lib/distributed/bridge.h"

#include <algorithm>
#include <cstring>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "lib/util/error.h"

namespace scatterlm {
namespace {

constexpr auto kPeriod = std::chrono::milliseconds(100), kPeriodInMeetings = std::chrono::milliseconds(10);

/// As many as can be under way at once, and some: ranks are compared by the last call that both have.
constexpr uint32_t kSentCalls = 80;

/// How a row travels; machines have the same program, and so the same layout.
struct RowCopy {
  uint64_t age_ns;
  int64_t step;
  uint32_t called, done, arrived, beside;
  bool finished;
  std::array<NumberedCall, kSentCalls> calls;
};

}  // namespace

Bridge::Bridge(std::shared_ptr<SharedMemory> memory, int64_t rank, std::vector<int64_t> machines)
    : memory_(std::move(memory)),
      board_(*reinterpret_cast<RankStatusTable*>(memory_->data())),
      rows_(board_.rows(std::ssize(machines))),
      rank_(rank),
      machine_(machines[static_cast<size_t>(rank)]),
      ranks_(static_cast<size_t>(*std::max_element(machines.begin(), machines.end()) + 1)),
      sent_(ranks_.size()) {
  for (size_t r = 0; r < machines.size(); ++r) ranks_[static_cast<size_t>(machines[r])].push_back(static_cast<int64_t>(r));
  for (int64_t machine = 0; machine < std::ssize(ranks_); ++machine) {
    if (machine == machine_) continue;
    others_.push_back(machine);
    keys_.push_back(key(machine));
  }
}

std::string Bridge::key(int64_t machine) const { return fmt::format("rows/{}", machine); }

bool Bridge::is_on_duty() {
  for (const int64_t rank : ranks_[static_cast<size_t>(machine_)]) {
    if (rank == rank_) return true;
    const RankStatus& row = rows_[static_cast<size_t>(rank)];
    if (!row.finished && !row.is_stopped()) return false;
  }
  return true;
}

bool Bridge::is_meeting() {
  return std::any_of(rows_.begin(), rows_.end(), [this](const RankStatus& row) { return row.arrived != rows_[0].arrived; });
}

bool Bridge::carry(c10d::Store& store) {
  const auto now = std::chrono::steady_clock::now();
  if (!is_on_duty() || now - last_ < (is_meeting() ? kPeriodInMeetings : kPeriod)) return false;
  last_ = now;
  send(store);
  if (store.check(keys_)) {  // or some have not begun
    const auto values = store.multiGet(keys_);
    for (size_t i = 0; i < others_.size(); ++i) receive(others_[i], values[i]);
  }
  ++board_.carried;
  return true;
}

/// Another rank of the machine may leave meanwhile, and rows be sent in its place that do not say so: until all is said.
void Bridge::leave(c10d::Store& store) {
  const auto finished = [this] {
    return std::count_if(rows_.begin(), rows_.end(), [](const RankStatus& row) { return row.finished.load(); });
  };
  for (auto before = finished() - 1; before != finished();) {
    before = finished();
    send(store);
  }
}

void Bridge::send(c10d::Store& store) {
  const auto& ranks = ranks_[static_cast<size_t>(machine_)];
  std::vector<RowCopy> copies(ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i) {
    const RankStatus& row = rows_[static_cast<size_t>(ranks[i])];
    RowCopy& copy = copies[i];
    copy.finished = row.finished;  // before the others, which it is not to contradict
    copy.age_ns = static_cast<uint64_t>(row.age_s() * 1e9);
    copy.step = row.step;
    copy.arrived = row.arrived;
    copy.beside = row.beside;
    copy.done = row.done;
    copy.called = row.called;
    for (uint32_t c = 0; c < kSentCalls; ++c) copy.calls[c] = row.find(copy.called - c).value_or(NumberedCall{});
  }
  const uint64_t now = now_ns();
  std::vector<uint8_t> bytes(sizeof(now) + copies.size() * sizeof(RowCopy));
  std::memcpy(bytes.data(), &now, sizeof(now));
  std::memcpy(bytes.data() + sizeof(now), copies.data(), copies.size() * sizeof(RowCopy));
  store.set(key(machine_), bytes);
}

void Bridge::receive(int64_t machine, const std::vector<uint8_t>& bytes) {
  const auto& ranks = ranks_[static_cast<size_t>(machine)];
  uint64_t sent = 0;
  if (bytes.size() != sizeof(sent) + ranks.size() * sizeof(RowCopy)) {
    fail("rows of machine {} have {} bytes in place of {}", machine, bytes.size(),
         sizeof(sent) + ranks.size() * sizeof(RowCopy));
  }
  std::memcpy(&sent, bytes.data(), sizeof(sent));
  if (std::exchange(sent_[static_cast<size_t>(machine)], sent) == sent) return;  // its ages are those of back then
  RowCopy copy;
  for (size_t i = 0; i < ranks.size(); ++i) {
    std::memcpy(&copy, bytes.data() + sizeof(sent) + i * sizeof(copy), sizeof(copy));
    RankStatus& row = rows_[static_cast<size_t>(ranks[i])];
    row.heartbeat = now_ns() - copy.age_ns;
    row.step = copy.step;
    for (const auto& call : copy.calls) {
      if (call.number > 0) row.keep(call);
    }
    row.called = copy.called;
    row.done = copy.done;
    row.beside = copy.beside;
    row.arrived = copy.arrived;
    row.finished = copy.finished;
  }
}

}  // namespace scatterlm

#include "tests/kernels/emulated/machine.h"

#include <ucontext.h>

#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

namespace emulated {
namespace {

constexpr size_t kStackBytes = 128 * 1024;
constexpr uint32_t kMaxShared = 232448;

using Operations = std::vector<std::function<void()>>;

struct Barrier {
  uint32_t count = 0, pending = 0, phase = 0;
  int64_t bytes = 0;
};

struct NamedBarrier {
  int arrived = 0;
  uint64_t generation = 0;
};

struct Warp {
  uint64_t values[2][32] = {};
  int arrived = 0;
  uint64_t generation = 0;

  struct Product {
    Fragments lanes[32];
    int arrived = 0;
  };
  std::deque<Product> products;  ///< begun by some lane
  size_t products_done = 0;
  size_t products_of_lane[32] = {};
};

/// Where a thread or the scheduler goes on: a buffer of __builtin_setjmp, which makes no call of the system; swapcontext makes
/// two, which were four fifths of the time of these tests.
using Place = void* [5];

struct Thread {
  Place place;
  bool started = false;  ///< has a place; its stack is that of thread_main, which never returns
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  bool done = true;
  std::function<bool()> ready;  ///< what it waits for; empty: nothing
  std::string waits_for;
  Operations copies;
  Operations open[kQueues];
  std::deque<Operations> groups[kQueues];
};

struct Machine {
  alignas(1024) char shared[kMaxShared];
  std::vector<Barrier> barriers{(kMaxShared + kSharedBase) / 8};
  NamedBarrier named[16];
  std::vector<Warp> warps;
  std::vector<std::unique_ptr<Thread>> threads;
  Operations in_flight;
  std::mt19937_64 random{1};
  Place scheduler;
  size_t current = 0;
  const std::function<void()>* body = nullptr;
};

Machine& machine() {
  static Machine instance;
  return instance;
}

Thread& self() { return *machine().threads[machine().current]; }

// Not for AddressSanitizer, which before a jump cleans the whole stack and asks the system for the signals' one.
[[gnu::noinline, gnu::no_sanitize("address")]] void go_to(Place& to) { __builtin_longjmp(to, 1); }

[[gnu::noinline, gnu::no_sanitize("address")]] void leave(Place& from, Place& to) {
  if (__builtin_setjmp(from) == 0) go_to(to);
}

void wait_until(const std::string& what, std::function<bool()> ready) {
  if (ready()) return;
  auto& thread = self();
  thread.ready = std::move(ready);
  thread.waits_for = what;
  leave(thread.place, machine().scheduler);
}

/// Runs one body after another, each when the scheduler resumes the thread.
void thread_main() {
  auto& thread = self();
  for (;;) {
    (*machine().body)();
    for (auto& copy : thread.copies) copy();
    thread.done = true;
    leave(thread.place, machine().scheduler);
  }
}

// Not for AddressSanitizer: this frame is left for ever, and its red zones would stay on the scheduler's stack.
[[gnu::noinline, gnu::no_sanitize("address")]] void start(Thread& thread) {
  thread.started = true;
  ucontext_t context;
  getcontext(&context);
  context.uc_stack = {.ss_sp = thread.stack.get(), .ss_flags = 0, .ss_size = kStackBytes};
  context.uc_link = nullptr;
  makecontext(&context, thread_main, 0);
  setcontext(&context);
  throw std::runtime_error("setcontext failed");
}

/// Runs a thread until it waits or is done.
[[gnu::noinline, gnu::no_sanitize("address")]] void resume(Thread& thread) {
  if (__builtin_setjmp(machine().scheduler) != 0) return;
  thread.started ? go_to(thread.place) : start(thread);
}

Barrier& barrier_at(uint32_t address) { return machine().barriers.at(address / 8); }

void complete_if_done(Barrier& barrier) {
  if (barrier.pending != 0 || barrier.bytes != 0) return;
  barrier.phase ^= 1;
  barrier.pending = barrier.count;
}

void start_block(int threads) {
  auto& m = machine();
  std::memset(m.shared, 0xFF, sizeof m.shared);
  std::fill(m.barriers.begin(), m.barriers.end(), Barrier{});
  std::fill(std::begin(m.named), std::end(m.named), NamedBarrier{});
  m.warps.assign((threads + 31) / 32, Warp{});
  while (m.threads.size() < static_cast<size_t>(threads)) m.threads.push_back(std::make_unique<Thread>());
  for (int i = 0; i < threads; ++i) {
    auto& thread = *m.threads[i];
    thread.done = false;
    thread.ready = nullptr;
  }
}

/// One operation of those in flight, chosen at random.
void finish_one() {
  auto& in_flight = machine().in_flight;
  const size_t i = machine().random() % in_flight.size();
  const auto operation = std::move(in_flight[i]);
  in_flight[i] = std::move(in_flight.back());
  in_flight.pop_back();
  operation();
}

[[noreturn]] void report_deadlock(int threads) {
  std::string text = "all threads wait for ever:";
  std::string last;
  for (int i = 0; i < threads; ++i) {
    const auto& thread = *machine().threads[i];
    if (thread.done || thread.waits_for == last) continue;
    last = thread.waits_for;
    text += "\n  thread " + std::to_string(i) + ": " + last;
  }
  throw std::runtime_error(text);
}

void run_block(int threads) try {
  auto& m = machine();
  start_block(threads);
  int left = threads;
  while (left > 0) {
    bool moved = false;
    const size_t start = m.random() % threads;
    for (int i = 0; i < threads; ++i) {
      m.current = (start + i) % threads;
      auto& thread = self();
      if (thread.done || (thread.ready && !thread.ready())) continue;
      moved = true;
      thread.ready = nullptr;
      thread_index.x = static_cast<unsigned>(m.current);
      resume(thread);
      left -= thread.done;
      if (!m.in_flight.empty() && m.random() % 64 == 0) finish_one();
    }
    if (moved) continue;
    if (m.in_flight.empty()) report_deadlock(threads);
    finish_one();
  }
  while (!m.in_flight.empty()) finish_one();
} catch (...) {
  machine().threads.clear();  // they stand in the middle of a body
  machine().in_flight.clear();
  throw;
}

}  // namespace

void seed(uint64_t value) { machine().random.seed(value); }

void run(int64_t blocks, int threads, uint32_t shared_bytes, const std::function<void()>& body) {
  if (shared_bytes > max_shared_bytes) throw std::runtime_error("too much shared memory: " + std::to_string(shared_bytes));
  machine().body = &body;
  block_dim.x = static_cast<unsigned>(threads);
  grid_dim.x = static_cast<unsigned>(blocks);
  for (int64_t block = 0; block < blocks; ++block) {
    block_index.x = static_cast<unsigned>(block);
    run_block(threads);
  }
}

char* shared(uint32_t address) { return machine().shared + (address - kSharedBase); }
void* shared_begin() { return machine().shared; }

void barrier_init(uint32_t address, uint32_t count) { barrier_at(address) = {.count = count, .pending = count}; }

void barrier_arrive(uint32_t address, int64_t announced_bytes) {
  auto& barrier = barrier_at(address);
  if (barrier.pending == 0) throw std::runtime_error("more arrivals than the barrier counts");
  barrier.bytes += announced_bytes;
  --barrier.pending;
  complete_if_done(barrier);
}

void barrier_complete_bytes(uint32_t address, int64_t bytes) {
  auto& barrier = barrier_at(address);
  barrier.bytes -= bytes;
  complete_if_done(barrier);
}

void barrier_wait(uint32_t address, uint32_t parity) {
  auto& barrier = barrier_at(address);
  wait_until("barrier at " + std::to_string(address) + ", parity " + std::to_string(parity),
             [&barrier, parity] { return barrier.phase != parity; });
}

void named_barrier_sync(int id, int threads) {
  auto& barrier = machine().named[id];
  const uint64_t generation = barrier.generation;
  if (++barrier.arrived == threads) {
    barrier.arrived = 0;
    ++barrier.generation;
  }
  wait_until("named barrier " + std::to_string(id), [&barrier, generation] { return barrier.generation != generation; });
}

void wait_for_at_least(const int32_t* counter, int32_t value) {
  wait_until("counter of at least " + std::to_string(value), [counter, value] { return *counter >= value; });
}

const uint64_t* warp_exchange(uint64_t value) {
  auto& warp = machine().warps[machine().current / 32];
  const uint64_t generation = warp.generation;
  auto* values = warp.values[generation & 1];
  values[machine().current % 32] = value;
  if (++warp.arrived == 32) {
    warp.arrived = 0;
    ++warp.generation;
  }
  wait_until("the other lanes of its warp", [&warp, generation] { return warp.generation != generation; });
  return values;
}

void warp_product(const Fragments& part, void (*product)(const Fragments* lanes)) {
  auto& warp = machine().warps[machine().current / 32];
  const size_t lane = machine().current % 32, index = warp.products_of_lane[lane]++ - warp.products_done;
  if (index == warp.products.size()) warp.products.emplace_back();
  auto& mine = warp.products[index];
  mine.lanes[lane] = part;
  if (++mine.arrived < 32) return;
  product(mine.lanes);  // the oldest: nobody joins a product before the one before it
  warp.products.pop_front();
  ++warp.products_done;
}

void later(std::function<void()> operation) { machine().in_flight.push_back(std::move(operation)); }

void copy_later(std::function<void()> copy) { self().copies.push_back(std::move(copy)); }

void arrive_after_copies(uint32_t barrier) {
  later([copies = std::move(self().copies), barrier] {
    for (auto& copy : copies) copy();
    barrier_arrive(barrier);
  });
  self().copies.clear();
}

void commit_copies() {
  for (auto& copy : self().copies) enqueue(Queue::kCopies, std::move(copy));
  self().copies.clear();
  commit(Queue::kCopies);
}

void enqueue(Queue queue, std::function<void()> operation) {
  self().open[static_cast<int>(queue)].push_back(std::move(operation));
}

void commit(Queue queue) {
  auto& open = self().open[static_cast<int>(queue)];
  self().groups[static_cast<int>(queue)].push_back(std::move(open));
  open.clear();
}

void wait(Queue queue, int pending) {
  auto& groups = self().groups[static_cast<int>(queue)];
  for (; groups.size() > static_cast<size_t>(pending); groups.pop_front())
    for (auto& operation : groups.front()) operation();
}

}  // namespace emulated

#include "lib/distributed/store_link.h"

#include <fmt/format.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "lib/distributed/rendezvous.h"
#include "lib/util/error.h"
#include "lib/util/text.h"

namespace scatterlm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kTick = std::chrono::milliseconds(10), kPeriod = std::chrono::milliseconds(100);
constexpr auto kPatience = std::chrono::seconds(1);
constexpr double kMostToConnect_s = 300;  // ranks wait less; a launcher whose ranks cannot end by themselves that long
const char* const kNews = "news";

std::string came_key(const std::string& name) { return fmt::format("link/{}/came", name); }
std::string left_key(const std::string& name) { return fmt::format("link/{}/left", name); }

}  // namespace

struct StoreLink::State {
  Options options;
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<std::string> to_tell, heard;
  bool linked = false, told = false, leaving = false, ended = false;
  std::chrono::milliseconds patience{0};
};

StoreLink::StoreLink(Options options) : state_(std::make_shared<State>()) {
  state_->options = std::move(options);
  std::thread([state = state_] { run(state); }).detach();
}

StoreLink::~StoreLink() { leave(std::chrono::seconds(0)); }

bool StoreLink::is_linked(double within_s) const {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, std::chrono::duration<double>(within_s), [this] { return state_->linked || state_->ended; });
  return state_->linked;
}

std::string StoreLink::keeper() const { return store_keeper(state_->options.world) + ", which keeps the store,"; }

std::optional<std::string> StoreLink::heard() const {
  const std::lock_guard lock(state_->mutex);
  return state_->heard;
}

void StoreLink::tell(const std::string& why) {
  std::unique_lock lock(state_->mutex);
  if (state_->to_tell) return;  // only the first counts
  state_->to_tell = why;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, kPatience, [this] { return state_->told || state_->ended; });
}

void StoreLink::linger() const {
  if (!state_->options.awaited.empty()) std::this_thread::sleep_for(5 * kPeriod);
}

void StoreLink::leave(std::chrono::seconds patience) {
  std::unique_lock lock(state_->mutex);
  if (!std::exchange(state_->leaving, true)) state_->patience = patience;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, state_->linked ? patience + kPatience : kPatience, [this] { return state_->ended; });
}

void StoreLink::run(const std::shared_ptr<State>& state) {
  auto& options = state->options;
  std::unique_lock lock(state->mutex, std::defer_lock);
  c10::intrusive_ptr<c10d::Store> store;
  try {
    store = connect_store(options.world, kMostToConnect_s);
    lock.lock();
    state->linked = !state->leaving;
    state->changed.notify_all();
    lock.unlock();
    const auto own = fmt::format("process {}, {}", getpid(), Clock::now().time_since_epoch().count());
    // Its place is taken: it belongs to another job, which hears nothing of this one.
    const bool stranger = state->linked && claim(*store, came_key(options.name), own) != own;
    lock.lock();
    if (stranger) {
      state->linked = false;
      state->leaving = true;
    }
    auto looked = Clock::now() - kPeriod;
    while (!state->leaving) {
      const auto to_tell = state->told ? std::nullopt : state->to_tell;
      lock.unlock();
      if (to_tell) store->compareSet(kNews, std::vector<uint8_t>{}, {to_tell->begin(), to_tell->end()});
      std::optional<std::string> news;
      const bool look = options.errand ? options.errand(*store, false) : Clock::now() - looked >= kPeriod;
      if (look) looked = Clock::now();
      if (look && store->check({kNews})) news = store->get_to_str(kNews);
      lock.lock();
      state->told = state->told || to_tell;
      if (news) state->heard = news;
      state->changed.notify_all();
      state->changed.wait_for(lock, kTick, [&] { return state->leaving || (state->to_tell && !state->told); });
    }
    lock.unlock();
    if (state->linked) {
      if (options.errand) options.errand(*store, true);
      store->set(left_key(options.name), "");
      std::vector<std::string> keys;
      for (const auto& name : options.awaited) {
        if (store->check({came_key(name)})) keys.push_back(left_key(name));
      }
      const auto until = Clock::now() + state->patience;
      while (!keys.empty() && Clock::now() < until && !store->check(keys)) std::this_thread::sleep_for(kTick);
    }
    lock.lock();
  } catch (const std::exception& error) {
    if (!lock.owns_lock()) lock.lock();
    const bool ours = dynamic_cast<const Error*>(&error) != nullptr;  // of the errand, not of the store
    if (!state->leaving)
      state->heard =
          ours ? error.what()
               : fmt::format("{}, which keeps the store, is gone: {}", store_keeper(options.world), first_line(error.what()));
  }
  lock.unlock();
  store.reset();
  options.errand = nullptr;
  options.kept.reset();
  lock.lock();
  state->ended = true;
  state->changed.notify_all();
}

}  // namespace scatterlm

#include "lib/distributed/rendezvous.h"

#include <fmt/chrono.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <sstream>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "lib/util/error.h"
#include "lib/util/log/log.h"
#include "lib/util/text.h"

namespace scatterlm {
namespace {

/// "what rank 0 has" and "what rank r has": the first lines that differ.
std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b) {
  std::istringstream one(a), other(b);
  std::string x, y;
  do {
    if (!std::getline(one, x)) x.clear();
    if (!std::getline(other, y)) y.clear();
  } while (x == y);
  return {x, y};
}

/// Before keys of one start of a group.
std::string prefix_of_start(int64_t restart) { return fmt::format("scatterlm/{}", restart); }
const char* const kSize = "size";

/// A name may become known while machines start.
void await_name(const std::string& host, double timeout_s) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s);
  addrinfo* found = nullptr;
  while (const int error = getaddrinfo(host.c_str(), nullptr, nullptr, &found)) {
    if (std::chrono::steady_clock::now() >= give_up)
      fail_user("{}, where the ranks are to meet (--master-addr, MASTER_ADDR): {}", host, gai_strerror(error));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  freeaddrinfo(found);
}

/// Ends the process with a message unless it is destroyed in time. The store's own timeout does not help when its keeper is
/// stopped: after it the client waits, without any, for the keeper to confirm that it has given up.
class Deadline {
 public:
  Deadline(std::chrono::duration<double> limit, std::string message)
      : thread_([limit, message = std::move(message)](const std::stop_token& stop) {
          std::mutex mutex;
          std::unique_lock lock(mutex);
          std::condition_variable_any stopped;
          stopped.wait_for(lock, stop, limit, [] { return false; });
          if (stop.stop_requested()) return;
          log_error(message);
          _exit(kExitPeer);
        }) {}

 private:
  std::jthread thread_;
};

}  // namespace

StoreServer::StoreServer(int64_t port, int64_t ranks) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.isServer = true;
  options.waitWorkers = false;
  try {
    store_ = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    claim(*store_, prefix_of_start(0) + "/" + kSize, std::to_string(ranks));  // before ranks of an earlier try that still wait
  } catch (const std::exception& error) {
    fail_user("the ranks cannot meet at port {}: {}; give another --master-port", port, first_line(error.what()));
  }
}

StoreServer::~StoreServer() = default;

int64_t StoreServer::port() const { return store_->getPort(); }

c10::intrusive_ptr<c10d::Store> connect_store(const LaunchEnv& world, double timeout_s, bool serve) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(world.port);
  options.isServer = serve;
  options.waitWorkers = false;
  options.timeout = std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1000));
  const auto prefix = [](const auto& name, const auto& store) { return c10::make_intrusive<c10d::PrefixStore>(name, store); };
  // A group that was started anew shares the launcher's store with its predecessor. Nobody hears those who think that the
  // world has another size.
  return prefix(fmt::format("{} ranks", world.size),
                prefix(prefix_of_start(world.restart), c10::make_intrusive<c10d::TCPStore>(world.address, options)));
}

std::string claim(c10d::Store& store, const std::string& key, const std::string& own) {
  const auto holder = store.compareSet(key, std::vector<uint8_t>{}, {own.begin(), own.end()});
  return {holder.begin(), holder.end()};
}

std::string store_keeper(const LaunchEnv& world) {
  return fmt::format("{} at {}:{}", world.hosted_store ? "the launcher" : "rank 0", world.address, world.port);
}

template <class F>
auto Rendezvous::ask(const std::string& what, F call) const {
  constexpr double kSpare_s = 2;  // the store's own timeout comes first where it can
  const Deadline deadline(
      std::chrono::duration<double>(options_.start_timeout_s + kSpare_s),
      fmt::format(
          "{} does not answer within {:g} s (parallel.start_timeout_s, and {:g}) while the ranks are starting (asked for "
          "'{}'): it is stopped, or the network is down",
          store_keeper(options_.world), options_.start_timeout_s + kSpare_s, kSpare_s, what));
  return call();
}

Rendezvous::Rendezvous(const CommOptions& options) : options_(options) {
  const LaunchEnv& world = options.world;
  ask("address", [&] { await_name(world.address, options.start_timeout_s); });
  try {
    ask("connection", [&] { store_ = connect_store(world, options.start_timeout_s, keeps_store(world)); });
  } catch (const std::exception& error) {
    if (keeps_store(world)) {
      fail_user("rank 0 cannot wait for the others at port {}: {}; set another MASTER_PORT", world.port,
                first_line(error.what()));
    }
    fail("rank {} of {} (started by {}) does not reach {} within {:g} s (parallel.start_timeout_s): {}", world.rank, world.size,
         world.started_by, store_keeper(world), options.start_timeout_s, first_line(error.what()));
  }
  ask("place", [this] { take_place(); });
}

void Rendezvous::take_place() {
  const LaunchEnv& world = options_.world;
  constexpr auto kWayOut = "start all ranks of a job alike, and another job with another --master-port or MASTER_PORT";
  const auto of_all_sizes = static_cast<c10d::PrefixStore&>(*store_).getUnderlyingStore();
  const auto size = claim(*of_all_sizes, kSize, std::to_string(world.size));
  if (size != std::to_string(world.size)) {
    fail_user("rank {} is of {} ranks, those that meet at {}:{} are {}; {}", world.rank, world.size, world.address, world.port,
              size, kWayOut);
  }
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  const auto own = fmt::format("process {} of {}, since {:%F %T} UTC", getpid(), host.data(), now);
  const auto holder = claim(*store_, keys("place")[static_cast<size_t>(world.rank)], own);
  if (holder != own) fail_user("{}:{} has a rank {} already, {}; {}", world.address, world.port, world.rank, holder, kWayOut);
}

Rendezvous::~Rendezvous() {
  constexpr auto kPatience = std::chrono::seconds(1);  // after a failure some may never have come
  try {
    store_->set(keys("left")[static_cast<size_t>(options_.world.rank)], "");
    if (keeps_store(options_.world)) store_->wait(keys("left"), kPatience);
  } catch (const std::exception&) {
    // Who is not here any more needs nothing.
  }
}

std::shared_ptr<void> Rendezvous::store() const { return std::make_shared<c10::intrusive_ptr<c10d::Store>>(store_); }

std::vector<std::string> Rendezvous::keys(const std::string& name) const {
  std::vector<std::string> result;
  for (int64_t rank = 0; rank < options_.world.size; ++rank) result.push_back(fmt::format("{}/{}", name, rank));
  return result;
}

std::vector<std::string> Rendezvous::collect(const std::string& name, const std::string& own) {
  const auto all = keys(name);
  try {
    ask(name, [&] {
      store_->set(all[static_cast<size_t>(options_.world.rank)], own);
      store_->wait(all);
    });
    return ask(name, [&] {
      std::vector<std::string> values;
      for (const auto& key : all) values.push_back(store_->get_to_str(key));
      return values;
    });
  } catch (const std::exception& error) {
    std::vector<size_t> missing;
    try {
      ask(name, [&] {
        for (size_t rank = 0; rank < all.size(); ++rank) {
          if (!store_->check({all[rank]})) missing.push_back(rank);
        }
      });
    } catch (const std::exception&) {
      fail("{} is gone while the ranks were starting: {}", store_keeper(options_.world), first_line(error.what()));
    }
    fail("{} of {} ranks (started by {}) did not come within {:g} s (parallel.start_timeout_s): {}", missing.size(),
         options_.world.size, options_.world.started_by, options_.start_timeout_s, fmt::join(missing, ", "));
  }
}

void Rendezvous::compare_identities() {
  const auto identities = collect("identity", options_.identity);
  for (size_t rank = 1; rank < identities.size(); ++rank) {
    if (identities[rank] == identities[0]) continue;
    const auto [first, other] = first_difference(identities[0], identities[rank]);
    fail_user("rank {} differs from rank 0: '{}' against '{}'; start every rank with the same program and configuration", rank,
              other, first);
  }
}

std::string Rendezvous::share(const std::string& key, const std::string& value) {
  return ask(key, [&] {
    if (options_.world.rank == 0) store_->set(key, value);
    return store_->get_to_str(key);
  });
}

}  // namespace scatterlm

#include "lib/distributed/rendezvous.h"

#include <fmt/chrono.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "lib/distributed/store_messages.h"
#include "lib/distributed/topology.h"
#include "lib/util/error.h"
#include "lib/util/hash.h"
#include "lib/util/limits.h"
#include "lib/util/log/log.h"
#include "lib/util/text.h"

namespace scatterlm {
namespace {

/// Of the keys of one start of all ranks: those started again share the launcher's store with their predecessors.
std::string prefix_of_start(int64_t restart) { return fmt::format("scatterlm/{}", restart); }
const char* const kSize = "size";
const char* const kJob = "job";

/// Returns when the host's name can be resolved: a name may become known only while machines start.
void await_name(const std::string& host, double timeout_s) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s);
  addrinfo* found = nullptr;
  while (const int error = getaddrinfo(host.c_str(), nullptr, nullptr, &found)) {
    if (std::chrono::steady_clock::now() >= give_up)
      fail_user("{}, where the ranks are to meet (MASTER_ADDR): {}", host, gai_strerror(error));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  freeaddrinfo(found);
}

/// Ends the process with a message unless it is destroyed in time. The store's own timeout does not help when the process that
/// keeps it is stopped: after that timeout the client waits, without one, for the server to confirm that it has given up.
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

/// A socket bound to the host's address and the port (0: a free one), which the store takes over; c10d itself would listen on
/// all interfaces. None if the address is not one of this machine, as when it is that of a service in front of it. Throws
/// Error.
std::optional<int> bind_socket(const std::string& host, int64_t port) {
  const addrinfo hints{.ai_flags = AI_PASSIVE, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found))
    fail("{}: {}", host, gai_strerror(error));
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
  const bool bound = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
                     bind(fd, found->ai_addr, found->ai_addrlen) == 0;
  const int reason = errno;
  freeaddrinfo(found);
  if (bound) return fd;
  if (fd >= 0) close(fd);
  if (reason == EADDRNOTAVAIL) return std::nullopt;
  fail("{}", std::strerror(reason));
}

int64_t port_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

/// Where hardly any file or thread can be opened any more c10d would blame the port, or abort.
void require_files_and_threads() {
  if (const int limit = exhausted_limit()) fail("the ranks cannot meet: {}{}", std::strerror(limit), explain_limit(limit));
}

/// A connection to the store, with the keys of this start of the ranks. With `serve` this process keeps the store, and listens
/// only at the address of the ranks if all are on this machine. Throws Error and c10's exceptions.
c10::intrusive_ptr<c10d::Store> connect_store(const LaunchEnv& env, double timeout_s, bool serve) {
  c10d::TCPStoreOptions options;
  if (serve && env.local_size == env.size) options.masterListenFd = bind_socket(env.address, env.port);
  options.port = static_cast<uint16_t>(env.port);
  options.isServer = serve;
  options.waitWorkers = false;
  options.timeout = std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1000));
  const auto prefix = [](const auto& name, const auto& store) { return c10::make_intrusive<c10d::PrefixStore>(name, store); };
  // Ranks of another job, or that expect another number of ranks, share no keys with these.
  return prefix(fmt::format("{} ranks {}", env.size, env.job_token),
                prefix(prefix_of_start(env.restart), c10::make_intrusive<c10d::TCPStore>(env.address, options)));
}

}  // namespace

StoreServer::StoreServer() {
  require_files_and_threads();
  try {
    c10d::TCPStoreOptions options;
    options.masterListenFd = bind_socket("127.0.0.1", 0);
    options.port = static_cast<uint16_t>(port_of(options.masterListenFd.value()));
    options.isServer = true;
    options.waitWorkers = false;
    store_ = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  } catch (const std::exception& error) {
    fail("no port for the ranks to meet at: {}", first_line(error.what()));
  }
}

StoreServer::~StoreServer() = default;

int64_t StoreServer::port() const { return store_->getPort(); }

std::string claim(c10d::Store& store, const std::string& key, const std::string& own) {
  const auto holder = store.compareSet(key, std::vector<uint8_t>{}, {own.begin(), own.end()});
  return {holder.begin(), holder.end()};
}

std::string store_owner(const LaunchEnv& env) {
  return fmt::format("{} at {}:{}", env.hosted_store ? "the launcher" : "rank 0", env.address, env.port);
}

template <class F>
auto Rendezvous::ask(const std::string& what, F call) const {
  constexpr double kSpare_s = 2;  // so that the store's own timeout comes first where it can
  const Deadline deadline(
      std::chrono::duration<double>(options_.start_timeout_s + kSpare_s),
      fmt::format(
          "{} does not answer within {:g} s (parallel.start_timeout_s, and {:g}) while the ranks are starting (asked for "
          "'{}'): it is stopped, or the network is down",
          store_owner(options_.launch_env), options_.start_timeout_s + kSpare_s, kSpare_s, what));
  return call();
}

Rendezvous::Rendezvous(const CommOptions& options) : options_(options) {
  const LaunchEnv& env = options.launch_env;
  require_files_and_threads();
  ask("address", [&] { await_name(env.address, options.start_timeout_s); });
  try {
    ask("connection", [&] { store_ = connect_store(env, options.start_timeout_s, keeps_store(env)); });
  } catch (const std::exception& error) {
    if (keeps_store(env)) {
      fail_user("rank 0 cannot wait for the others at port {}: {}; set another MASTER_PORT", env.port,
                first_line(error.what()));
    }
    fail("rank {} of {} (started by {}) does not reach {} within {:g} s (parallel.start_timeout_s): {}", env.rank, env.size,
         env.started_by, store_owner(env), options.start_timeout_s, first_line(error.what()));
  }
  ask("rank", [this] { claim_rank(); });
}

void Rendezvous::claim_rank() {
  const LaunchEnv& env = options_.launch_env;
  constexpr auto kWayOut = "start all ranks of a job alike, and another job with another MASTER_PORT";
  const auto of_all_sizes = static_cast<c10d::PrefixStore&>(*store_).getUnderlyingStore();
  const auto job = hash_hex(env.job_token);  // who reads it learns 64 of the token's 128 bits
  if (claim(*of_all_sizes, kJob, job) != job)
    fail_user("rank {} is of another job than those that meet at {}:{} ({}); {}", env.rank, env.address, env.port, kJobToken,
              kWayOut);
  const auto size = claim(*of_all_sizes, kSize, std::to_string(env.size));
  if (size != std::to_string(env.size)) {
    fail_user("rank {} is of {} ranks, those that meet at {}:{} are {}; {}", env.rank, env.size, env.address, env.port, size,
              kWayOut);
  }
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  const auto own = fmt::format("process {} of {}, since {:%F %T} UTC", getpid(), host_name(), now);
  const auto holder = claim(*store_, keys("process")[static_cast<size_t>(env.rank)], own);
  if (holder != own) fail_user("{}:{} has a rank {} already, {}; {}", env.address, env.port, env.rank, holder, kWayOut);
}

Rendezvous::~Rendezvous() {
  constexpr auto kTimeout = std::chrono::seconds(1);  // after a failure some may never have come
  try {
    store_->set(keys("left")[static_cast<size_t>(options_.launch_env.rank)], "");
    if (keeps_store(options_.launch_env)) store_->wait(keys("left"), kTimeout);
  } catch (const std::exception&) {
    // A rank that is gone needs nothing.
  }
}

c10::intrusive_ptr<c10d::Store> Rendezvous::store() const { return store_; }

c10::intrusive_ptr<c10d::Store> Rendezvous::connect() const {
  const double timeout_s = options_.start_timeout_s;
  try {
    return ask("second connection", [&] { return connect_store(options_.launch_env, timeout_s, /*serve=*/false); });
  } catch (const std::exception& error) {
    fail("rank {} gets no second connection to {} within {:g} s (parallel.start_timeout_s): {}", options_.launch_env.rank,
         store_owner(options_.launch_env), timeout_s, first_line(error.what()));
  }
}

std::vector<std::string> Rendezvous::keys(const std::string& name) const {
  std::vector<std::string> result;
  for (int64_t rank = 0; rank < options_.launch_env.size; ++rank) result.push_back(fmt::format("{}/{}", name, rank));
  return result;
}

std::vector<std::string> Rendezvous::collect(const std::string& name, const std::string& own) {
  const auto all = keys(name);
  try {
    ask(name, [&] {
      store_->set(all[static_cast<size_t>(options_.launch_env.rank)], own);
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
      fail("{} is gone while the ranks were starting: {}", store_owner(options_.launch_env), first_line(error.what()));
    }
    fail("{} of {} ranks (started by {}) did not come within {:g} s (parallel.start_timeout_s): {}", missing.size(),
         options_.launch_env.size, options_.launch_env.started_by, options_.start_timeout_s, fmt::join(missing, ", "));
  }
}

void Rendezvous::compare_identities() {
  const auto identities = collect("identity", options_.identity);
  for (size_t rank = 1; rank < identities.size(); ++rank) {
    if (identities[rank] == identities[0]) continue;
    const auto [first, other] = first_difference(identities[0], identities[rank]);
    fail_user("rank {} differs from rank 0: '{}' against '{}'; start every rank with the same program, configuration and data",
              rank, other, first);
  }
}

std::string Rendezvous::share(const std::string& key, const std::string& value) {
  return ask(key, [&] {
    if (options_.launch_env.rank == 0) store_->set(key, value);
    return store_->get_to_str(key);
  });
}

}  // namespace scatterlm

// How ranks find each other: a key-value store on the network, kept by rank 0 or by the launcher.
#pragma once
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lib/distributed/comm.h"

namespace c10d {
class Store;
class TCPStore;
}  // namespace c10d

namespace scatterlm {

/// A store at a free port of this machine, for the ranks that a launcher starts.
class StoreServer {
 public:
  /// For so many ranks. Port 0: any free one. Throws Error if the port is taken.
  StoreServer(int64_t port, int64_t ranks);
  ~StoreServer();
  int64_t port() const;

 private:
  c10::intrusive_ptr<c10d::TCPStore> store_;
};

/// A connection to the world's store with the keys of this start of the group. With `serve` this process keeps
/// the store. Throws c10's exceptions.
c10::intrusive_ptr<c10d::Store> connect_store(const LaunchEnv& world, double timeout_s, bool serve = false);

/// Who has the key: the first to claim it for ever.
std::string claim(c10d::Store& store, const std::string& key, const std::string& own);

/// Who keeps the store, for messages: "the launcher at node1:29400".
std::string store_keeper(const LaunchEnv& world);
inline bool keeps_store(const LaunchEnv& world) { return world.rank == 0 && !world.hosted_store; }

/// Every call returns, throws Error or ends the process within the start's timeout and a little more.
class Rendezvous {
 public:
  /// Must not outlive the options.
  explicit Rendezvous(const CommOptions& options);
  /// The rank that keeps the store leaves last.
  ~Rendezvous();

  /// Returns when all ranks are there and have the same identity.
  void compare_identities();
  /// A value that rank 0 gives to all the others; ignored on these.
  std::string share(const std::string& key, const std::string& value);
  /// What each rank gives, once all have.
  std::vector<std::string> collect(const std::string& key, const std::string& own);
  /// Returns when all ranks have called it with this name.
  void meet(const std::string& name) { collect(name, "here"); }

  /// With it the store stays where rank 0 keeps it.
  std::shared_ptr<void> store() const;

 private:
  /// Throws Error (exit code 2) if another process has come as this rank, or the others are of another number of ranks.
  void take_place();
  std::vector<std::string> keys(const std::string& name) const;  ///< one a rank

  /// The result of a call to the store, in bounded time also if who keeps it is stopped: then the process says so and ends with
  /// kExitPeer.
  template <class F>
  auto ask(const std::string& what, F call) const;

  const CommOptions& options_;
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace scatterlm

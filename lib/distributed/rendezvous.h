// How ranks find each other: a key-value store (c10d's TCPStore), kept by rank 0 or by the launcher.
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

/// A store at a free port of the loopback interface, for the ranks that `scatterlm launch` starts.
class StoreServer {
 public:
  /// Throws Error if there is no free port.
  StoreServer();
  ~StoreServer();
  int64_t port() const;

 private:
  c10::intrusive_ptr<c10d::TCPStore> store_;
};

/// Writes the key unless another process already has. Returns the key's value: that of the first writer.
std::string claim(c10d::Store& store, const std::string& key, const std::string& own);

/// Who keeps the store, for messages: "the launcher at node1:29400".
std::string store_owner(const LaunchEnv& env);
/// Whether this rank keeps the store.
inline bool keeps_store(const LaunchEnv& env) { return env.rank == 0 && !env.hosted_store; }

/// What ranks tell each other while they start. Every call returns, throws Error or ends the process with kExitPeer within
/// start_timeout_s + 2 s.
class Rendezvous {
 public:
  /// Must not outlive the options.
  explicit Rendezvous(const CommOptions& options);
  /// The rank that keeps the store waits for the others, at most a second.
  ~Rendezvous();

  /// Returns when all ranks are there. Throws Error (exit code 2) if their identities differ.
  void compare_identities();
  /// Returns rank 0's value on all ranks.
  std::string share(const std::string& key, const std::string& value);
  /// Returns the values of all ranks, by rank, once all have called it with this key. A key serves once.
  std::vector<std::string> collect(const std::string& key, const std::string& own);
  /// Returns when all ranks have called it with this name. A name serves once.
  void barrier(const std::string& name) { collect(name, "here"); }

  /// The connection of this object. While it lives so does a store that rank 0 keeps.
  c10::intrusive_ptr<c10d::Store> store() const;
  /// Another connection, for another thread: calls over one connection wait for each other.
  c10::intrusive_ptr<c10d::Store> connect() const;

 private:
  /// Throws Error (exit code 2) if another process has come as this rank, or the others are of another job or number of ranks.
  void claim_rank();
  std::vector<std::string> keys(const std::string& name) const;  ///< one per rank

  /// The result of a call to the store. The timeout of the store itself does not hold when its process is stopped: then this
  /// one says so and ends with kExitPeer.
  template <class F>
  auto ask(const std::string& what, F call) const;

  const CommOptions& options_;
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace scatterlm

// How ranks find each other: a key-value store on the network, kept by rank 0 or by the launcher.
#pragma once
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <string>

#include "lib/dist/comm.h"

namespace c10d {
class Store;
class TCPStore;
}  // namespace c10d

namespace scatterlm {

/// A store at a free port of this machine, for the ranks that a launcher starts.
class StoreServer {
 public:
  /// Port 0: any free one. Throws Error if the port is taken.
  explicit StoreServer(int64_t port = 0);
  ~StoreServer();
  int64_t port() const;

 private:
  c10::intrusive_ptr<c10d::TCPStore> store_;
};

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
  /// Returns when all ranks have called it with this name.
  void meet(const std::string& name);

 private:
  bool keeps_store() const { return options_.world.rank == 0 && !options_.world.hosted_store; }
  const char* keeper() const;                                    ///< of the store, for messages
  std::vector<std::string> keys(const std::string& name) const;  ///< one a rank
  /// The key's values of all ranks, once they are there.
  std::vector<std::string> collect(const std::string& key, const std::string& own);

  /// The result of a call to the store, in bounded time also if who keeps it is stopped: then the process says so and ends with
  /// kExitPeer.
  template <class F>
  auto ask(const std::string& what, F call) const;

  const CommOptions& options_;
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace scatterlm

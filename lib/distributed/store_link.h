// News between machines through the store: why the run ends.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/distributed/launch_env.h"

namespace c10d {
class Store;
}

namespace scatterlm {

/// A thread with a connection to the store of its own, for threads that must not block: a call to a store that is stopped or
/// out of reach never returns. Nothing here waits for such a call longer than it says.
class StoreLink {
 public:
  /// What else the thread does each 10 ms, and when it leaves. Returns whether it is time to look for news.
  using Errand = std::function<bool(c10d::Store& store, bool leaving)>;

  struct Options {
    LaunchEnv world;
    std::string name;                  ///< of this process among the linked ones
    std::vector<std::string> awaited;  ///< those that this process, which keeps the store, lets leave before it
    Errand errand;                     ///< none: it looks for news every 100 ms
    std::shared_ptr<void> kept;        ///< stays until this process leaves
  };

  explicit StoreLink(Options options);
  /// Leaves at once.
  ~StoreLink();

  /// Whether there is a connection, at the latest after so long: a name server that does not answer takes its time.
  bool is_linked(double within_s) const;

  std::string keeper() const;  ///< of the store: "the launcher at node1:29400, which keeps the store,"

  /// Why the run ends: as another process has told, or since the store is gone.
  std::optional<std::string> heard() const;
  /// To all who listen; the first to tell is heard. Returns when they can hear it, or after a second.
  void tell(const std::string& why);
  /// Before the process ends without leaving: gives the others the time to hear, if it keeps the store.
  void linger() const;
  /// Who keeps the store stays until the awaited have left, at most that long.
  void leave(std::chrono::seconds patience);

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;  ///< the thread's as well, which may hang for ever
};

}  // namespace scatterlm

#pragma once
#include <limits>
#include <optional>

namespace scatterlm {

/// When a launcher kills a rank, and when it leaves one behind that does not end. It is told the state of the rank and the
/// seconds since the launcher's start, and calls neither processes nor clocks.
class RankDeadline {
 public:
  /// Of a rank that SIGKILL does not end: it is in uninterruptible sleep, in a file system or a driver.
  static constexpr double kAbandon_s = 30;

  struct Limits {
    double end_s = std::numeric_limits<double>::infinity();  ///< by this time the rank is to have ended
    double stopped_s;                                        ///< for so long the rank may be stopped (SIGSTOP)
  };
  enum class Action { kNone, kKill, kKillStopped, kAbandon };

  /// What to do about the rank, which still runs.
  Action check(double now_s, bool stopped, const Limits& limits);
  /// Whether the rank was to be killed.
  bool killed() const { return killed_s_.has_value(); }

 private:
  std::optional<double> stopped_s_, killed_s_;  ///< since when
};

}  // namespace scatterlm

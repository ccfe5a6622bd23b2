#include "lib/distributed/rank_deadline.h"

namespace scatterlm {

RankDeadline::Action RankDeadline::check(double now_s, bool stopped, const Limits& limits) {
  if (killed_s_) return now_s - *killed_s_ < kAbandon_s ? Action::kNone : Action::kAbandon;
  if (!stopped) stopped_s_.reset();
  if (stopped && !stopped_s_) stopped_s_ = now_s;
  const bool late = now_s >= limits.end_s, stopped_too_long = stopped && now_s - *stopped_s_ >= limits.stopped_s;
  if (!late && !stopped_too_long) return Action::kNone;
  killed_s_ = now_s;
  return late ? Action::kKill : Action::kKillStopped;
}

}  // namespace scatterlm

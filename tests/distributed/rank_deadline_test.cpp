#include "lib/distributed/rank_deadline.h"

#include <unistd.h>

#include "lib/distributed/rank_process.h"
#include "tests/catch.h"

using namespace scatterlm;
using Action = RankDeadline::Action;

TEST_CASE("a rank without a deadline may run for ever") {
  RankDeadline rank;
  REQUIRE(rank.check(1e9, /*stopped=*/false, {.stopped_s = 10}) == Action::kNone);
  REQUIRE(!rank.killed());
}

TEST_CASE("a rank is killed at its deadline, once, and left behind 30 s later") {
  RankDeadline rank;
  const RankDeadline::Limits limits{.end_s = 100, .stopped_s = 10};
  REQUIRE(rank.check(99.9, false, limits) == Action::kNone);
  REQUIRE(rank.check(100, false, limits) == Action::kKill);
  REQUIRE(rank.killed());
  REQUIRE(rank.check(100.1, false, limits) == Action::kNone);
  REQUIRE(rank.check(129.9, true, limits) == Action::kNone);
  REQUIRE(rank.check(130.1, false, limits) == Action::kAbandon);
}

TEST_CASE("a rank is killed when it has been stopped for too long at a stretch") {
  RankDeadline rank;
  const RankDeadline::Limits limits{.stopped_s = 10};
  REQUIRE(rank.check(50, true, limits) == Action::kNone);
  REQUIRE(rank.check(59.9, true, limits) == Action::kNone);
  REQUIRE(rank.check(59.95, false, limits) == Action::kNone);
  REQUIRE(rank.check(60, true, limits) == Action::kNone);
  REQUIRE(rank.check(69.9, true, limits) == Action::kNone);
  REQUIRE(rank.check(70, true, limits) == Action::kKillStopped);
  REQUIRE(rank.check(100.1, true, limits) == Action::kAbandon);
}

TEST_CASE("where a process waits is said as far as /proc tells") {
  REQUIRE_THAT(describe_process(getpid()), ContainsSubstring(", state R, waiting in "));
  REQUIRE_THAT(describe_process(1 << 30), ContainsSubstring("state unknown, waiting in an unknown place"));
}

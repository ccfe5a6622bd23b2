#include "lib/doctor/storage.h"

#include <filesystem>

#include "lib/doctor/limits.h"
#include "tests/catch.h"
#include "tests/data/files.h"

using namespace scatterlm;
using doctor::Health;

TEST_CASE("doctor: a disk is measured where the run's folder would be made, without a trace") {
  const TempDir dir;
  std::filesystem::create_directories(dir / "here");
  const auto finding =
      doctor::check_storage({.folder = dir / "here/deep/run", .checkpoint_bytes = 1 << 20, .num_checkpoints = 3});
  INFO(finding.text);
  REQUIRE(finding.health != Health::kFailed);
  REQUIRE_THAT(finding.text,
               ContainsSubstring(dir / "here" + ": writes ") && ContainsSubstring("3 MiB for 3 checkpoints of 1 MiB each"));
  REQUIRE(std::filesystem::is_empty(dir / "here"));
}

TEST_CASE("doctor: a disk without room, or that cannot be written, fails") {
  const TempDir dir;
  std::filesystem::create_directories(dir / "here");
  const auto full = doctor::check_storage({.folder = dir / "here", .checkpoint_bytes = 1e18, .num_checkpoints = 1});
  REQUIRE((full.health == Health::kFailed && full.advice == "make room, or choose another run.dir (--run-dir)"));
  const auto forbidden = doctor::check_storage({.folder = "/proc/sys/run"});
  REQUIRE(forbidden.health == Health::kFailed);
  REQUIRE_THAT(forbidden.text, ContainsSubstring("/proc/sys: cannot write: "));
}

TEST_CASE("doctor: a model that needs more memory than there is fails") {
  for (const auto& finding : doctor::check_limits({.memory_bytes = 1e18})) {
    if (finding.subject != "memory") continue;
    REQUIRE(finding.health == Health::kFailed);
    REQUIRE_THAT(finding.text, ContainsSubstring("the ranks of this machine need 9"));
  }
}

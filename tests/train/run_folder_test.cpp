#include "lib/train/run_folder.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <thread>

#include "lib/util/error.h"
#include "tests/catch.h"
#include "tests/data/files.h"

using namespace scatterlm;

TEST_CASE("a run folder that cannot be made is the user's to change") {
  REQUIRE_THROWS_WITH(RunLock("/dev/null/run", 0, StopRequest(0)),
                      "/dev/null/run: cannot create the run folder: Not a directory; give another --run-dir");
}

TEST_CASE("rank 0 may not wait for the lock for longer than the others wait for it") {
  const CheckpointConfig config{.timeout_s = 60, .lock_timeout_s = 60};
  REQUIRE_THROWS_WITH(
      check_lock_timeout(config, 2),
      ContainsSubstring("'checkpoint.lock_timeout_s: 60' must be below 'checkpoint.timeout_s: 60' with 2 ranks"));
  REQUIRE_NOTHROW(check_lock_timeout(config, 1));
  REQUIRE_NOTHROW(check_lock_timeout({.timeout_s = 61, .lock_timeout_s = 60}, 2));
}

TEST_CASE("a folder has one run at a time, until its process ends") {
  const TempDir dir;
  const auto run = dir / "run";
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const RunLock lock(run, 0, StopRequest(0));
    if (write(ready[1], "", 1) == 1) pause();
    _exit(0);
  }
  char byte = 0;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  REQUIRE_THROWS_WITH(RunLock(run, 0.3, StopRequest(0)),
                      run + ": another process trains in this folder; wait until it ends, or give another --run-dir");
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  REQUIRE_NOTHROW(RunLock(run, 0.3, StopRequest(0)));
  { const RunLock lock(dir / "deep/er/run", 0, StopRequest(0)); }
  REQUIRE_FALSE(std::filesystem::exists(dir / "deep"));
  {
    const RunLock lock(dir / "kept/run", 0, StopRequest(0));
    dir.write("kept/run/metrics.jsonl", "");
  }
  REQUIRE(std::filesystem::exists(dir / "kept/run/metrics.jsonl"));
  REQUIRE_FALSE(std::filesystem::exists(dir / "kept/run/.lock"));
}

TEST_CASE("a run waits for the one before to end, unless it is asked to stop") {
  const TempDir dir;
  const auto run = dir / "run";
  std::optional<RunLock> first(std::in_place, run, 0, StopRequest(0));
  std::jthread end([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    first.reset();
  });
  REQUIRE_NOTHROW(RunLock(run, 60, StopRequest(0)));
  end.join();
  const RunLock held(run, 0, StopRequest(0));
  REQUIRE_THROWS_WITH(RunLock(run, 60, StopRequest(1e-9)), ContainsSubstring("is used up while another process trains"));
}

TEST_CASE("taking the lock removes what a crashed save has left") {
  const TempDir dir;
  dir.write("run/.tmp_step_00000010/rank_00000.safetensors.tmp", "x");
  dir.write("run/.tmp_removed_step_00000005/manifest.json", "x");
  dir.write("run/metrics.jsonl", "x");
  const RunLock lock(dir / "run", 0, StopRequest(0));
  REQUIRE_FALSE(std::filesystem::exists(dir / "run/.tmp_step_00000010"));
  REQUIRE_FALSE(std::filesystem::exists(dir / "run/.tmp_removed_step_00000005"));
  REQUIRE(std::filesystem::exists(dir / "run/metrics.jsonl"));
}

TEST_CASE("a run folder that is renamed, replaced or removed is noticed, and another's lock stays") {
  const TempDir dir;
  const auto run = dir / "run";
  std::optional<RunLock> lock(std::in_place, run, 0, StopRequest(0));
  REQUIRE_NOTHROW(lock->check());
  const auto message = ContainsSubstring(run + ": the folder of the run, or its file .lock, was renamed or removed");
  std::filesystem::rename(run, dir / "renamed");
  REQUIRE_THROWS_WITH(lock->check(), message);
  {
    const RunLock other(run, 0, StopRequest(0));
    REQUIRE_THROWS_WITH(lock->check(), message);
    lock.reset();
    REQUIRE_NOTHROW(other.check());
  }
  REQUIRE(std::filesystem::exists(dir / "renamed"));
}

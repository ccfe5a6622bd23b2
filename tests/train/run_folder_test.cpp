#include "lib/train/run_folder.h"

#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "lib/util/error.h"
#include "tests/catch.h"
#include "tests/data/files.h"

using namespace scatterlm;

TEST_CASE("a run folder that cannot be made is the user's to change") {
  REQUIRE_THROWS_WITH(RunLock("/dev/null/run"),
                      "/dev/null/run: cannot create the run folder: Not a directory; give another one with --run-dir");
}

TEST_CASE("a folder has one run at a time, until its process ends") {
  const TempDir dir;
  const auto run = dir / "run";
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const RunLock lock(run);
    if (write(ready[1], "", 1) == 1) pause();
    _exit(0);
  }
  char byte = 0;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  REQUIRE_THROWS_WITH(RunLock(run),
                      run + ": another process trains in this folder; wait until it ends, or give another --run-dir");
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  REQUIRE_NOTHROW(RunLock(run));
  { const RunLock lock(dir / "deep/er/run"); }
  REQUIRE_FALSE(std::filesystem::exists(dir / "deep"));
  {
    const RunLock lock(dir / "kept/run");
    dir.write("kept/run/metrics.jsonl", "");
  }
  REQUIRE(std::filesystem::exists(dir / "kept/run/metrics.jsonl"));
  REQUIRE_FALSE(std::filesystem::exists(dir / "kept/run/.lock"));
}

// A checkpoint survives whatever each call of the system does that saves it: afterwards the newest one is whole, no other is
// damaged, and the next run finds nothing unfinished.
#include <ATen/ATen.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <cstdio>

#include "lib/io/checkpoint.h"
#include "lib/util/file_error.h"
#include "tests/catch.h"
#include "tests/data/files.h"
#include "tests/fault/fault_injection.h"

using namespace scatterlm;
namespace fs = std::filesystem;

namespace {

constexpr int kSaved = 0, kStorageFailed = 1, kOther = 2;

void save(const std::string& dir, int64_t step) {
  const auto values = at::full({100}, static_cast<double>(step), at::kFloat);
  save_checkpoint(dir, {step, "a: 1\n", {{"step", step}}}, {{"values", {100}, 0, 100, values}});
  prune_checkpoints(dir, step, /*keep_last=*/1, /*keep_every=*/0);
}

/// Saves in a process of its own. Returns its exit code, or minus the signal that ended it, and the calls that it made.
struct Outcome {
  int code;
  long calls;
};
Outcome save_with_fault(const std::string& dir, int64_t step, FaultKind kind, long call, bool swaps) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    int code = kSaved;
    if (!std::freopen("/dev/null", "w", stderr)) _exit(kOther);  // warnings of what could not be removed
    inject_fault(dir.c_str(), kind, call);
    if (!swaps) refuse_swaps();
    try {
      save(dir, step);
    } catch (const StorageError&) {
      code = kStorageFailed;
    } catch (const std::exception&) {
      code = kOther;
    }
    const long calls = faulty_calls();
    inject_fault(dir.c_str(), kind, 0);
    _exit(write(ends[1], &calls, sizeof(calls)) == sizeof(calls) ? code : kOther);
  }
  close(ends[1]);
  Outcome outcome{0, 0};
  const bool told = read(ends[0], &outcome.calls, sizeof(outcome.calls)) == sizeof(outcome.calls);
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  REQUIRE(told == WIFEXITED(status));
  return outcome;
}

size_t num_entries(const std::string& dir) { return static_cast<size_t>(std::distance(fs::directory_iterator(dir), {})); }

}  // namespace

TEST_CASE("whatever a call of the system does while a checkpoint is saved, the newest one is whole") {
  const bool replaces = GENERATE(false, true);  // a checkpoint of the same step
  const bool swaps = !replaces || GENERATE(true, false);
  const int64_t before = 5, step = replaces ? before : before + 1;
  const TempDir temporary;
  const auto dir = temporary / "run";
  const auto prepare = [&] {
    inject_fault(dir.c_str(), kFaultIo, 0);
    fs::remove_all(dir);
    fs::create_directories(dir);
    save(dir, before);
  };
  prepare();
  const auto undisturbed = save_with_fault(dir, step, kFaultIo, LONG_MAX, swaps);
  REQUIRE(undisturbed.code == kSaved);
  REQUIRE(undisturbed.calls > 30);
  for (int kind = 0; kind < kFaultKinds; ++kind) {
    for (long call = 1; call <= undisturbed.calls; ++call) {
      CAPTURE(replaces, swaps, kind, call);
      prepare();
      const auto [code, made] = save_with_fault(dir, step, static_cast<FaultKind>(kind), call, swaps);
      if (kind == kFaultKill) {
        REQUIRE((code == -SIGKILL || code == kSaved));  // the last calls may not be made, as after a swap that is refused
      } else if (kind == kFaultShort) {
        REQUIRE(code == kSaved);
      } else {
        REQUIRE((code == kSaved || code == kStorageFailed));
      }
      remove_unfinished(dir);  // as the next run does
      const auto steps = list_checkpoints(dir);
      REQUIRE(!steps.empty());
      for (const int64_t kept : steps) REQUIRE(verify_checkpoint(checkpoint_path(dir, kept)) == std::nullopt);
      REQUIRE(steps.back() >= (code == kSaved ? step : before));
      REQUIRE(num_entries(dir) == steps.size());
    }
  }
}

#include "lib/train/checkpoint_writer.h"

#include <ATen/Parallel.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>

#include "lib/util/file_error.h"
#include "tests/train/tiny_run.h"

#include "tests/catch.h"

using namespace scatterlm;

namespace {

/// One rank whose other thread waits until the gate is open.
struct Gate : Comm {
  int64_t rank() const override { return 0; }
  int64_t world() const override { return 1; }
  std::string transport() const override { return "nothing"; }
  void all_reduce(at::Tensor) override {}
  void broadcast(at::Tensor) override {}
  void barrier() override {}
  void background_barrier(std::stop_token stop) override {
    while (!open) {
      if (stop.stop_requested()) fail("stopped");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  bool any(bool yes) override { return yes; }
  CollectiveHandle reduce_scatter(const at::Tensor&, at::Tensor) override { return 0; }
  CollectiveHandle all_gather(at::Tensor) override { return 0; }
  void wait(CollectiveHandle) override {}
  std::atomic<bool> open = false;
};

void make_async(Config& config) {
  config.checkpoint.async = true;
  config.model.router.balance = Balance::kBias;
}

/// Two ranks, of which this one hangs in its writing thread and the other one waits for it.
struct Hanging final : Gate {
  int64_t rank() const override {
    while (std::this_thread::get_id() != main) std::this_thread::sleep_for(std::chrono::hours(1));
    return 0;
  }
  int64_t world() const override { return 2; }
  void all_reduce(at::Tensor votes) override {
    if (votes.scalar_type() == at::kLong) votes[0] += 1;
  }
  std::thread::id main = std::this_thread::get_id();
};

/// One rank whose other thread takes its time to write.
struct Slow final : Gate {
  int64_t rank() const override {
    if (std::this_thread::get_id() != main) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return 0;
  }
  std::thread::id main = std::this_thread::get_id();
};

struct Fixture {
  explicit Fixture(Comm* comm = nullptr) : run(make_async, comm ? comm : &gate) {}

  Gate gate;
  TinyRun run;
  std::string dir = (run.folder / "run").string();
  CheckpointWriter saver{dir, *run.state};
};

}  // namespace

TEST_CASE("what is saved beside the training is the state at that time, however much it goes on") {
  Fixture f;
  for (int save = 1; save <= 2; ++save) {  // the second one uses the memory of the first
    f.gate.open = false;
    f.run.trainer->step();
    const auto state = f.run.tensors();
    f.saver.save(/*last=*/false);
    REQUIRE(f.saver.take_stall_ms() > 0);
    for (int i = 0; i < 3; ++i) f.run.trainer->step();
    f.saver.check();
    REQUIRE(list_checkpoints(f.dir).size() == static_cast<size_t>(save - 1));
    f.gate.open = true;
    f.saver.finish();
    TinyRun other(make_async);
    resume_training(open_checkpoint(f.dir), *other.state);
    REQUIRE(all_equal(other.tensors(), state));
    REQUIRE(other.state->steps == 4 * save - 3);
  }
}

TEST_CASE("a save waits for the one before") {
  Fixture f;
  f.run.trainer->step();
  f.saver.save(/*last=*/false);
  f.run.trainer->step();
  std::jthread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    f.gate.open = true;
  });
  f.saver.take_stall_ms();
  f.saver.save(/*last=*/false);
  REQUIRE(f.saver.take_stall_ms() >= 90);
  f.saver.finish();
  REQUIRE(list_checkpoints(f.dir) == std::vector<int64_t>{1, 2});
}

TEST_CASE("what goes wrong beside the training is an error of the training") {
  Fixture f;
  f.gate.open = true;
  f.run.trainer->step();
  std::filesystem::create_directories(f.dir);
  std::ofstream(checkpoint_path(f.dir, 1)) << "a file where the folder should be";
  f.saver.save(/*last=*/false);
  REQUIRE_THROWS_WITH(f.saver.finish(), ContainsSubstring("step_00000001: cannot write: Not a directory"));
}

TEST_CASE("a rank that others wait for in vain gives up") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    dup2(ends[1], STDERR_FILENO);
    at::set_num_threads(1);  // a pool has no threads after fork(), and autograd's may not be needed: no step is made
    try {
      Hanging comm;
      Fixture f(&comm);
      f.run.config.checkpoint.timeout_s = 0.2;
      f.saver.save(/*last=*/false);
      f.saver.finish();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  for (char piece[256];;) {
    const ssize_t size = read(ends[0], piece, sizeof(piece));
    if (size <= 0) break;
    text.append(piece, static_cast<size_t>(size));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == kExitFailure);
  REQUIRE_THAT(text, ContainsSubstring("rank 0 has not written its part of ") &&
                         ContainsSubstring("step_00000000 within 0.2 s after another rank (checkpoint.timeout_s)"));
}

TEST_CASE("a save that no other rank waits for may be slow") {
  Slow comm;
  comm.open = true;
  Fixture f(&comm);
  f.run.config.checkpoint.timeout_s = 0.02;
  f.run.trainer->step();
  f.saver.save(/*last=*/false);
  f.saver.take_stall_ms();
  f.saver.finish();
  REQUIRE(list_checkpoints(f.dir) == std::vector<int64_t>{1});
}

TEST_CASE("a run that ends by an error does not wait for other ranks, and leaves nothing unfinished") {
  Fixture f;
  f.run.trainer->step();
  {
    CheckpointWriter saver(f.dir, *f.run.state);
    saver.save(/*last=*/false);
  }
  REQUIRE((!std::filesystem::exists(f.dir) || std::filesystem::is_empty(f.dir)));
}

TEST_CASE("storage that fails is no end of the training while another save can follow") {
  Fixture f;
  f.gate.open = true;
  const bool async = GENERATE(true, false);
  f.run.config.checkpoint.async = async;
  f.run.trainer->step();
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit tight{200, old.rlim_max};  // stands for a full disk
  std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &tight);
  REQUIRE_NOTHROW(f.saver.save(/*last=*/false));
  f.run.trainer->step();
  REQUIRE_NOTHROW(f.saver.save(/*last=*/false));
  const auto last = [&] {
    f.saver.save(/*last=*/true);
    f.saver.finish();
  };
  REQUIRE_THROWS_AS(last(), StorageError);
  setrlimit(RLIMIT_FSIZE, &old);
  REQUIRE(std::filesystem::is_empty(f.dir));
  REQUIRE_NOTHROW(last());
  REQUIRE(list_checkpoints(f.dir) == std::vector<int64_t>{2});
}

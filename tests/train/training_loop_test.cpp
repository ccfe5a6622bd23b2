#include "lib/train/training_loop.h"

#include <cmath>

#include "tests/train/tiny_run.h"

#include "tests/catch.h"

using namespace scatterlm;

namespace {

/// Notes what it is told.
struct Notes final : TrainingObserver {
  void untrained(const StepReport& report) override {
    REQUIRE((report.tasks.empty() ? std::isfinite(report.val_loss.value()) : report.tasks.size() == 1));
    notes.push_back(fmt::format("untrained, {} to go", report.total_steps));
  }
  void progress(int64_t step) override { progressed = step; }
  void step(StepReport report) override {
    REQUIRE(report.step == progressed);
    REQUIRE(report.step_ms > 0);
    notes.push_back(fmt::format("step {}{}", report.step, report.val_loss ? " evaluated" : ""));
    for (const auto& task : report.tasks) notes.back() += " " + task.name;
  }
  void trace(const Trace& trace) override { notes.push_back(fmt::format("trace {}", trace.step)); }
  void summary() override { notes.push_back("summary"); }
  std::vector<std::string> notes;
  int64_t progressed = 0;
};

struct LoopFixture {
  explicit LoopFixture(const std::function<void(Config&)>& change = {})
      : run([&](Config& config) {
          config.train.steps = 6;
          config.log.interval = 3;
          if (change) change(config);
        }) {
    if (!run.config.data.validation.empty()) reader.emplace(run.config.data, 300, 16, 64);
  }
  ExitCode train(double max_minutes = 0) {
    const StopRequest stop(max_minutes);
    return scatterlm::train(*run.state, {dir, stop, {reader ? &*reader : nullptr, {}, tasks}, &observer});
  }

  TinyRun run;
  std::string dir = (run.folder / "run").string();
  std::optional<EvalReader> reader;
  std::vector<Task> tasks;
  Notes observer;
};

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a run reports at its interval, saves at its end and sums up") {
  LoopFixture f;
  REQUIRE(f.train() == kExitDone);
  REQUIRE(f.observer.notes == Names{"step 3", "step 6", "summary"});
  REQUIRE(list_checkpoints(f.dir) == std::vector<int64_t>{6});
}

TEST_CASE("it evaluates before the first step, when it is due and at the end, and saves when that is due") {
  LoopFixture f([](Config& config) {
    config.data.validation = config.data.train;
    config.train.eval_interval = 4;
    config.checkpoint.save_interval = 2;
    config.checkpoint.keep_last = 9;
  });
  REQUIRE(f.train() == kExitDone);
  REQUIRE(f.observer.notes ==
          Names{"untrained, 6 to go", "step 2", "step 3", "step 4 evaluated", "step 6 evaluated", "summary"});
  REQUIRE(list_checkpoints(f.dir) == std::vector<int64_t>{2, 4, 6});
}

TEST_CASE("tasks are evaluated at the interval of validation, also without validation data") {
  LoopFixture f([](Config& config) { config.train.eval_interval = 4; });
  f.tasks = {{.name = "easy", .examples = {{.choices = {{{1, 2}, 1, 1}, {{1, 3}, 1, 1}}, .answer = 0}}}};
  REQUIRE(f.train() == kExitDone);
  REQUIRE(f.observer.notes == Names{"untrained, 6 to go", "step 3", "step 4 easy", "step 6 easy", "summary"});
}

TEST_CASE("a run that is out of time saves and asks to be started again; the next goes on where it stood") {
  LoopFixture whole, f;
  REQUIRE(f.train(1e-9) == kExitRestart);
  REQUIRE(f.observer.notes == Names{"step 1"});
  REQUIRE(list_checkpoints(f.dir) == std::vector<int64_t>{1});
  REQUIRE(f.train() == kExitDone);
  REQUIRE(f.observer.notes.back() == "summary");
  REQUIRE(whole.train() == kExitDone);
  REQUIRE(all_equal(f.run.tensors(), whole.run.tensors()));
}

TEST_CASE("a run whose steps are not finite saves what it had and fails") {
  LoopFixture f([](Config& config) { config.train.max_nonfinite_steps = 2; });
  f.run.weight("norm.weight").fill_(3e38f);
  const auto before = f.run.tensors();
  REQUIRE_THROWS_WITH(f.train(), ContainsSubstring("3 steps in a row up to step 3 had a loss or gradient that is not finite"));
  REQUIRE(f.observer.notes == Names{"step 3"});
  REQUIRE(list_checkpoints(f.dir) == std::vector<int64_t>{3});
  TinyRun other;
  resume_training(open_checkpoint(f.dir), *other.state);
  REQUIRE(all_equal(other.tensors(), before));
}

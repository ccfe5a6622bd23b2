#include "lib/train/training_loop.h"

#include "lib/train/batch_plan.h"
#include "lib/train/checkpoint_writer.h"
#include "lib/train/evaluate.h"
#include "lib/train/step_clock.h"
#include "lib/train/trainer.h"
#include "lib/util/error.h"
#include "lib/util/log/log.h"

namespace scatterlm {
namespace {

bool is_due(int64_t step, int64_t interval) { return interval > 0 && step % interval == 0; }

/// What is to be done after a step, the same on all ranks.
struct Due {
  bool evaluate, save, stop, report;
  bool anything() const { return evaluate || save || report; }
};

class TrainingLoop {
 public:
  TrainingLoop(TrainingState& state, const TrainingRun& run)
      : state_(state),
        run_(run),
        trainer_(state),
        writer_(run.run_dir, state),
        tracer_(run.observer ? state.config.log.trace_step : 0, state.steps, state.model.device(), run.run_dir) {}

  ExitCode train() {
    const int64_t total = state_.total_steps();
    evaluate_untrained();
    clock_.restart();
    state_.comm.take_times();  // what starting took does not count
    while (state_.steps < total) {
      trainer_.step([this] { trace(); });
      observe([&](auto& observer) { observer.progress(state_.steps); });
      writer_.check();
      clock_.count_step();
      const auto reason = run_.stop.reason();
      const bool last = state_.steps == total;
      const auto due = due_now(state_.comm.any(!reason.empty()), last);
      if (!due.anything()) continue;
      report_and_save(due);
      if (due.stop && !last) {
        log_info(fmt::format("{}: saved step {} of {} in {}; the same command continues",
                             reason.empty() ? "another rank was asked to stop" : reason, state_.steps, total, run_.run_dir));
        return kExitRestart;
      }
      begin_interval();
    }
    observe([](auto& observer) { observer.summary(); });
    return kExitDone;
  }

 private:
  template <class F>
  void observe(F tell) {
    if (!run_.observer) return;
    const StorageScope storage(state_.comm);
    tell(*run_.observer);
  }

  void evaluate_model(StepReport& report) {
    const auto& [validation, token_bytes_V, tasks] = run_.evaluation;
    const int64_t sequences = BatchPlan(state_.config.train, state_.comm.world()).per_pass;
    if (validation) {
      const auto result = evaluate(state_.model, *validation, sequences, state_.comm, token_bytes_V);
      report.val_loss = result.loss;
      report.val_bpb = result.bits_per_byte;
    }
    const int64_t tokens = sequences * state_.config.train.sequence_length;
    for (const Task& task : tasks)
      report.tasks.push_back(score_task(task, choice_log_probs(state_.model, task, tokens, state_.comm)));
  }

  void evaluate_untrained() {
    if (run_.evaluation.empty() || state_.config.train.eval_interval == 0 || state_.steps > 0) return;
    StepReport report{.total_steps = state_.total_steps()};
    evaluate_model(report);
    observe([&](auto& observer) { observer.untrained(report); });
  }

  void trace() {
    observe([&](auto& observer) {
      try {
        if (const auto traced = tracer_.before_update(state_.steps + 1)) observer.trace(*traced);
      } catch (const Error& error) {
        log_error(fmt::format("{}; training continues without the trace", error.what()));
      }
    });
  }

  Due due_now(bool asked_to_stop, bool last) const {
    const auto& config = state_.config;
    const bool stop = asked_to_stop || last;
    return {.evaluate = !run_.evaluation.empty() && (last || is_due(state_.steps, config.train.eval_interval)),
            .save = stop || is_due(state_.steps, config.checkpoint.save_interval),
            .stop = stop,
            .report = is_due(state_.steps, config.log.interval)};
  }

  void report_and_save(const Due& due) {
    auto report = trainer_.report();  // waits for the device
    report.step_ms = clock_.mean_ms();
    since_report_ = since_report_ + state_.comm.take_times();
    if (state_.comm.world() > 1) report.comm = since_report_ / static_cast<double>(clock_.steps());
    report.save_stall_ms = writer_.take_stall_ms();
    if (due.evaluate) evaluate_model(report);
    observe([&](auto& observer) {
      if (run_.lock) run_.lock->check();
      observer.step(report);
    });
    const int64_t most = state_.config.train.max_nonfinite_steps;
    const bool hopeless = report.nonfinite_row >= most;
    if (due.save || hopeless) writer_.save(due.stop || hopeless);
    if (due.stop || hopeless) writer_.finish();
    if (hopeless) {
      fail(
          "{} steps in a row up to step {} had a loss or gradient that is not finite{}; none was applied, the weights before them "
          "are saved. Lower optim.lr or raise optim.warmup_steps and continue (train.max_nonfinite_steps: {})",
          report.nonfinite_row, state_.steps, report.first_broken_router(), most);
    }
  }

  void begin_interval() {
    clock_.restart();
    since_report_ = state_.comm.take_times();
    since_report_.exposed_ms = 0;  // nothing but steps moves gradients and parameters, but evaluating and saving wait too
  }

  TrainingState& state_;
  TrainingRun run_;
  Trainer trainer_;
  CheckpointWriter writer_;
  Tracer tracer_;
  StepClock clock_;
  CommTimes since_report_;  ///< collectives that ended since the last report
};

}  // namespace

ExitCode train(TrainingState& state, const TrainingRun& run) { return TrainingLoop(state, run).train(); }

}  // namespace scatterlm

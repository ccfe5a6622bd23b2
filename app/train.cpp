#include <CLI/CLI.hpp>
#include <chrono>

#include "app/commands.h"
#include "app/dry_run.h"
#include "lib/config/load.h"
#include "lib/report/console.h"
#include "lib/report/report.h"
#include "lib/train/checkpoint_writer.h"
#include "lib/train/checkpointing.h"
#include "lib/train/evaluate.h"
#include "lib/train/execution_setup.h"
#include "lib/train/flops.h"
#include "lib/train/memory_estimate.h"
#include "lib/train/run_folder.h"
#include "lib/train/step_clock.h"
#include "lib/train/stop.h"
#include "lib/train/tracer.h"
#include "lib/train/trainer.h"
#include "lib/util/error.h"
#include "lib/util/file.h"
#include "lib/util/log/log.h"
#include "lib/util/text.h"

namespace scatterlm {
namespace {

struct TrainOptions {
  std::string config, run_dir, resume = "auto";
  std::vector<std::string> sets;
  bool dry_run = false;
};

bool is_due(int64_t step, int64_t interval) { return interval > 0 && step % interval == 0; }

/// What a run is made of while it trains.
struct Run {
  const Config& config;
  const std::string& dir;
  const StopRequest& stop;
  Comm& comm;
  nn::Model& model;
  Trainer& trainer;
  CheckpointWriter& saver;
  std::optional<EvalReader>& validation;

  double validation_loss() { return evaluate(model, *validation, sequences_per_pass(config.train, comm.world()), comm).loss; }
};

/// Only rank 0 has a report; what decides how the run goes on is known to all ranks.
ExitCode train_steps(Run run, std::optional<Report>& report) {
  const auto& config = run.config;
  auto& trainer = run.trainer;
  const int64_t total = trainer.total_steps();
  if (run.validation && config.train.eval_interval > 0 && trainer.steps() == 0) {
    const double loss = run.validation_loss();
    if (report) report->untrained(loss, total);
  }
  Tracer tracer(report ? config.log.trace_step : 0, trainer.steps(), run.model.device(), run.dir);
  const auto trace = [&] {
    if (const auto traced = tracer.before_update(trainer.steps() + 1)) report->trace(*traced);
  };
  StepClock clock;
  run.comm.take_times();      // what starting took does not count
  CommTimes since_last_line;  // collectives that ended beside other work than steps
  while (trainer.steps() < total) {
    trainer.step(trace);
    if (report) report->progress(trainer.steps());
    run.saver.check();
    clock.count_step();
    const int64_t step = trainer.steps();
    const auto reason = run.stop.reason();
    const bool last = step == total, stopping = run.comm.any(!reason.empty()) || last;
    const bool evaluating = run.validation && (last || is_due(step, config.train.eval_interval));
    const bool saving = stopping || is_due(step, config.checkpoint.save_interval);
    if (!evaluating && !saving && !is_due(step, config.log.interval)) continue;

    auto line = trainer.report();  // waits for the device
    line.step_ms = clock.mean_ms();
    since_last_line = since_last_line + run.comm.take_times();
    if (run.comm.world() > 1) line.comm = since_last_line / static_cast<double>(clock.steps());
    line.save_stall_ms = run.saver.take_stall_ms();
    if (evaluating) line.val_loss = run.validation_loss();
    if (report) report->step(line);
    const bool hopeless = line.nonfinite_row >= config.train.max_nonfinite_steps;
    if (saving || hopeless) run.saver.save();
    if (stopping || hopeless) run.saver.finish();
    if (hopeless) {
      fail(
          "{} steps in a row up to step {} had a loss or gradient that is not finite{}; none was applied, the weights before them are "
          "saved. Lower optim.lr or raise optim.warmup_steps and go on (train.max_nonfinite_steps: {})",
          line.nonfinite_row, step, line.first_broken_router(), config.train.max_nonfinite_steps);
    }
    if (!last && stopping) {
      log_info(fmt::format("{}: saved step {} of {} in {}; the same command goes on",
                           reason.empty() ? "another rank was asked to stop" : reason, step, total, run.dir));
      return kExitRestart;
    }
    clock.restart();
    since_last_line = run.comm.take_times();
    since_last_line.exposed_ms = 0;  // nothing but steps moves gradients and parameters, but evaluating and saving wait too
  }
  if (report) report->summary();
  return kExitDone;
}

ExitCode train(const TrainOptions& options) {
  Phases phases;
  const Config config = load_config(options.config, options.sets);
  const auto run_dir = run_folder(config.run, options.run_dir);
  const StopRequest stop(config.train.max_minutes);
  const auto world = find_launch_env(current_environment());
  sequences_per_pass(config.train, world.size);  // before anything is made
  const bool leads = world.rank == 0;
  if (world.size > 1) log_as_rank(world.rank);
  const auto phase = [&](const char* name, const std::string& result) {
    if (leads) phases.done(name, result);
  };
  const auto numerics = set_up_execution(config.train, world);
  const auto& parallel = config.parallel;
  const int64_t length = config.train.sequence_length, vocab = config.model.vocab_size;
  Loader loader(config.data, vocab, length, config.train.seed, world.rank, world.size);
  std::optional<EvalReader> validation;
  if (!config.data.validation.empty()) validation.emplace(config.data, vocab, length, config.train.eval_tokens);
  phase("data", loader.describe());

  std::optional<RunLock> lock;  // before the ranks meet, so that all see what an earlier run has left
  if (leads && !options.dry_run) lock.emplace(run_dir);
  const auto comm = make_comm({world, numerics.device, parallel.start_timeout_s, parallel.timeout_s,
                               world.size > 1 ? run_identity(config, options.run_dir, options.resume) : ""});
  phase("device", describe(numerics) + (world.size > 1 ? "; they exchange by " + comm->transport() : ""));

  if (const auto warning = rounding_warning(config, world.size)) log_warning(*warning);
  const auto checkpoint = checkpoint_to_resume(run_dir, options.resume, world.restart > 0);
  if (options.dry_run) {
    dry_run({config, numerics, world, *comm, checkpoint}, phase);
    return kExitDone;
  }
  require_memory(config, numerics, world);

  nn::Model model(config.model, numerics.options(), *comm, config.optim.decay_embeddings ? Decay::kYes : Decay::kNo);
  const auto optimizer = make_optimizer(config.optim, model.units(), *comm, Sharding(parallel, *comm));
  Trainer trainer(config, *comm, model, *optimizer, loader);
  begin_training(checkpoint, config, trainer, model, *optimizer, *comm);
  phase("model", describe_model(config));
  if (checkpoint) phase("resume", checkpoint->path());
  if (trainer.steps() >= trainer.total_steps()) {
    log_info(
        fmt::format("{}: all {} steps are done; give more train.steps to continue, or another --run-dir to start a new run",
                    run_dir, trainer.steps()));
    return kExitDone;
  }
  std::optional<Report> report;
  if (leads) {
    report.emplace(run_dir, config, numerics, trainer.steps());
    write_file_atomic(run_dir + "/config.yaml", dump_config(config));
  }
  CheckpointWriter saver(run_dir, config, trainer, model, *optimizer, *comm);
  return train_steps({config, run_dir, stop, *comm, model, trainer, saver, validation}, report);
}

std::pair<CLI::App*, std::shared_ptr<TrainOptions>> define_train(CLI::App& app) {
  auto* command = app.add_subcommand("train", "Train a model, or resume a run");
  auto options = std::make_shared<TrainOptions>();
  command->add_option("config", options->config, "Configuration file")->required();
  command->add_option("--set", options->sets, "Override a key of the configuration: a.b=c; may be repeated")
      ->allow_extra_args(false);
  command->add_option(
      "--resume", options->resume,
      "auto: resume from the run's newest complete checkpoint, if there is one; none: start from scratch; or a checkpoint folder");
  command->add_option("--run-dir", options->run_dir, "Folder for metrics and checkpoints, in place of run.dir/run.name");
  command->add_flag(
      "--dry-run", options->dry_run,
      "Check configuration, data and checkpoint; print parameters, FLOPs, memory and steps; allocate and train nothing");
  command->footer("Example:\n  scatterlm train configs/quickstart.yaml --set optim.lr=0.002 --run-dir runs/trial");
  return {command, options};
}

}  // namespace

void add_train(CLI::App& app, int& exit_code) {
  const auto [command, options] = define_train(app);
  command->callback([options, &exit_code] { exit_code = train(*options); });
}

void add_train_check(CLI::App& app, int64_t ranks) {
  const auto [command, options] = define_train(app);
  command->callback([options, ranks] { sequences_per_pass(load_config(options->config, options->sets).train, ranks); });
}

}  // namespace scatterlm

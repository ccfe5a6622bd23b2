#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "app/dry_run.h"
#include "app/train_options.h"
#include "app/training_run.h"
#include "lib/config/load.h"
#include "lib/io/checkpoint.h"
#include "lib/report/console.h"
#include "lib/report/report.h"
#include "lib/tasks/read_task.h"
#include "lib/train/batch_plan.h"
#include "lib/train/checkpointing.h"
#include "lib/train/data_files.h"
#include "lib/train/evaluate.h"
#include "lib/train/execution_setup.h"
#include "lib/train/flops.h"
#include "lib/train/kernel_limits.h"
#include "lib/train/memory_estimate.h"
#include "lib/train/open_checkpoint.h"
#include "lib/train/run_folder.h"
#include "lib/train/run_tokenizer.h"
#include "lib/train/trainer.h"
#include "lib/train/training_loop.h"
#include "lib/util/file.h"
#include "lib/util/log/log.h"
#include "lib/util/output.h"
#include "lib/util/text.h"

namespace scatterlm {
namespace {

/// The checkpoint of --init-from, if it is given. All ranks call it.
std::optional<InitialWeights> open_initial_weights(const TrainOptions& options, Comm& comm, at::Device device) {
  if (options.init_from.empty()) return std::nullopt;
  const StorageScope storage(comm);
  auto newest = open_newest_checkpoint(find_checkpoints(options.init_from), comm, device);
  return InitialWeights{std::move(newest->reader), options.init_allow};
}

}  // namespace

ExitCode run_training(const Config& config, const TrainOptions& options) {
  Phases phases;
  const auto run_dir = run_folder(config.run, options.run_dir);
  const StopRequest stop(config.train.max_minutes);
  const auto world = find_launch_env(current_environment());
  const BatchPlan plan(config.train, world.size);  // before anything is made
  check_lock_timeout(config.checkpoint, world.size);
  const bool leads = world.rank == 0;
  if (world.size > 1) log_as_rank(world.rank);
  const auto phase = [&](const char* name, const std::string& result) {
    if (leads) phases.done(name, result);
  };
  const auto setup = set_up_execution(config.train, world);
  require_dtypes(config, setup);
  check_kernel_limits(config.model, setup);
  const int64_t length = config.train.sequence_length, vocab = config.model.vocab_size;
  Loader loader(config.data, vocab, length, config.train.seed, world.rank, world.size);
  std::optional<EvalReader> validation;
  if (!config.data.validation.empty()) validation.emplace(config.data, vocab, length, config.train.eval_tokens);
  EvalReader* const validation_reader = validation ? &*validation : nullptr;
  auto files = loader.fingerprint();
  if (validation) std::ranges::copy(validation->fingerprint(), std::back_inserter(files));
  const TokenizerFiles tokenizer = read_run_tokenizer(config, files);
  EvaluationData evaluation{.validation = validation_reader, .tasks = read_tasks(config.train.eval_tasks, config, tokenizer)};
  if (validation) evaluation.token_bytes_V = bytes_of_tokens(*make_tokenizer(tokenizer), vocab);
  phase("data", loader.describe());

  const auto comm =
      make_comm({world, setup.device, config.parallel.start_timeout_s, config.parallel.timeout_s, config.checkpoint.timeout_s,
                 world.size > 1 ? run_identity(config, options.run_dir, options.resume + " " + options.init_from) +
                                      data_identity(loader, validation_reader) + task_identity(evaluation.tasks)
                                : ""});
  phase("device", describe(setup) + (world.size > 1 ? "; they exchange by " + comm->transport() : ""));

  if (const auto warning = rounding_warning(config.model, plan.per_pass * length)) log_warning(*warning);
  std::optional<RunLock> lock;
  if (leads && !options.dry_run) {
    const StorageScope storage(*comm);  // the other ranks wait in checkpoint_to_resume()
    lock.emplace(run_dir, config.checkpoint.lock_timeout_s, stop);
  }
  const auto checkpoint =
      checkpoint_to_resume({run_dir, options.resume, world.restart > 0, options.dry_run}, *comm, setup.device);
  const auto initial = checkpoint ? std::nullopt : open_initial_weights(options, *comm, setup.device);
  if (options.dry_run) {
    dry_run({config, setup, world, *comm, loader, checkpoint, initial}, phase);
    if (leads) require_printed();
    return kExitDone;
  }
  require_memory(config, setup, world);

  TrainingState state(config, setup.options(), *comm, loader);
  state.files = files_of_run(tokenizer, checkpoint ? &*checkpoint : initial ? &initial->reader : nullptr);
  begin_training(checkpoint, initial, state);
  phase("model", describe_model(config));
  if (initial) phase("weights", initial->reader.path());
  if (checkpoint) phase("resume", checkpoint->path());
  if (state.steps >= state.total_steps()) {
    log_info(
        fmt::format("{}: all {} steps are done; give more train.steps to continue, or another --run-dir to start a new run",
                    run_dir, state.steps));
    return kExitDone;
  }
  std::optional<Report> report;
  if (leads) {
    const StorageScope storage(*comm);
    report.emplace(run_dir, config, setup, state.steps);
    write_file_atomic(run_dir + "/config.yaml", dump_config(config));
    write_file_atomic(run_dir + "/environment.txt", describe(setup) + "\n");
    write_tokenizer(tokenizer, run_dir);
  }
  return train(state, {run_dir, stop, evaluation, report ? &*report : nullptr, lock ? &*lock : nullptr});
}

void add_train(CLI::App& app, int& exit_code) {
  const auto [command, options] = define_train(app);
  command->callback([options, &exit_code] { exit_code = run_training(load_config(options->config, options->sets), *options); });
}

}  // namespace scatterlm

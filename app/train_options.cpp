#include "app/train_options.h"

#include "app/commands.h"
#include "lib/config/load.h"
#include "lib/distributed/launcher.h"
#include "lib/train/batch_plan.h"
#include "lib/train/run_folder.h"

namespace scatterlm {

std::pair<CLI::App*, std::shared_ptr<TrainOptions>> define_train(CLI::App& app) {
  auto* command = app.add_subcommand("train", "Train a model, or resume a run");
  auto options = std::make_shared<TrainOptions>();
  command->add_option("config", options->config, "Configuration file")->required();
  command->add_option("--set", options->sets, "Override a key of the configuration: a.b=c; may be repeated")
      ->allow_extra_args(false);
  command->add_option(
      "--resume", options->resume,
      "auto: resume from the run's newest complete checkpoint, if there is one; none: start from scratch; or a checkpoint folder");
  command->add_option("--init-from", options->init_from,
                      "Start from the weights of this checkpoint or run, at step 0 with a fresh optimiser; a run that has a "
                      "checkpoint of its own resumes from that");
  command
      ->add_option(
          "--init-allow", options->init_allow,
          "With --init-from: tensors of this name (* and ? as in a shell) may be missing or left over; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--run-dir", options->run_dir, "Folder for metrics and checkpoints, in place of run.dir/run.name");
  command->add_flag(
      "--dry-run", options->dry_run,
      "Check configuration, data and checkpoint; print parameters, FLOPs, memory and steps; allocate and train nothing");
  command->footer("Example:\n  scatterlm train configs/quickstart.yaml --set optim.lr=0.002 --run-dir runs/trial");
  return {command, options};
}

void add_train_check(CLI::App& app, LaunchOptions& launch) {
  const auto [command, options] = define_train(app);
  command->callback([options, &launch] {
    const Config config = load_config(options->config, options->sets);
    const BatchPlan check(config.train, launch.ranks);
    check_lock_timeout(config.checkpoint, launch.ranks);
    launch.only_prints = options->dry_run;
    launch.timeout_s = config.parallel.timeout_s;
    launch.storage_timeout_s = config.checkpoint.timeout_s;
  });
}

}  // namespace scatterlm

#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <map>
#include <optional>

#include "app/command_line.h"
#include "app/commands.h"
#include "lib/config/load.h"
#include "lib/distributed/comm_check.h"
#include "lib/doctor/exchange.h"
#include "lib/doctor/gpus.h"
#include "lib/doctor/kernels.h"
#include "lib/doctor/limits.h"
#include "lib/doctor/storage.h"
#include "lib/train/execution_setup.h"
#include "lib/train/memory_estimate.h"
#include "lib/train/run_folder.h"
#include "lib/util/error.h"
#include "lib/util/escape.h"
#include "lib/util/file.h"
#include "lib/util/gpu.h"
#include "lib/util/hash.h"
#include "lib/util/log/log.h"
#include "lib/util/text.h"

namespace scatterlm {
namespace {

void examine_comm(int64_t mebibytes) {
  const auto launch_env = find_launch_env(current_environment());
  if (launch_env.size == 1)
    fail_user("a single rank has no collectives to check; start several: scatterlm launch -n 2 doctor comm");
  log_as_rank(launch_env.rank);
  const auto setup = set_up_execution({}, launch_env);
  const auto comm =
      make_comm({.launch_env = launch_env,
                 .device = setup.device,
                 .identity = fmt::format("program = {}\n--mib = {}\n", hash_hex(read_file("/proc/self/exe")), mebibytes)});
  const bool prints = comm->rank() == 0;
  for (const int64_t shard : {1, 1000, 1 << 20}) check_collectives(*comm, setup.device, shard);
  comm->barrier();
  if (prints) {
    std::cout << fmt::format("{}, by {}: all values exact\n", describe(setup), comm->transport())
              << "all_reduce is timed by the host's clock, reduce_scatter and all_gather as `comm` in metrics.jsonl\n";
  }
  for (int64_t size = 1; size <= mebibytes; size *= 8) {
    for (const auto& row : measure_bandwidth(*comm, setup.device, size << 20)) {
      if (prints) {
        std::cout << fmt::format("{:15} {:>9} {:9.3f} ms {:8.2f} GB/s through each link\n", row.collective,
                                 format_bytes(static_cast<double>(row.bytes)), 1e3 * row.seconds, row.link_bytes_per_s / 1e9);
      }
    }
  }
}

struct DoctorOptions {
  std::string config, run_dir;
  std::vector<std::string> sets;
  int64_t ranks = 0;
};

/// What the run of a configuration asks of this machine, from shapes alone. Adds what is wrong with it to the findings.
doctor::Needs needs_of(const DoctorOptions& options, const Config& config, std::vector<doctor::Finding>& findings) {
  const auto setup = set_up_execution(config.train);
  const int64_t ranks = options.ranks > 0 ? options.ranks : std::max<int64_t>(1, std::ssize(gpus()));
  const auto memory = estimate_memory(config, setup.dtype, ranks);
  const auto too_large = explain_too_large(memory, setup.device, ranks);
  if (too_large)
    findings.push_back({"model", doctor::Health::kFailed, *too_large});
  else
    findings.push_back({"model", doctor::Health::kOk, describe(memory, config.parallel, ranks)});
  doctor::Needs needs{.folder = run_folder(config.run, options.run_dir)};
  const auto& saving = config.checkpoint;
  const int64_t steps = total_steps(config.train), saves = saving.save_interval > 0 ? steps / saving.save_interval : 1,
                kept =
                    saving.keep_last + (saving.keep_every > 0 ? steps / saving.keep_every : 0) + 1;  // + the one being written
  needs.checkpoint_bytes = static_cast<double>(
      checkpoint_bytes(ranks == 1 ? memory : estimate_memory(config, setup.dtype, 1), config.optim, setup.dtype));
  needs.num_checkpoints = std::max<int64_t>(1, std::min(saves, kept) - std::ssize(list_checkpoints(needs.folder)));
  if (setup.device.is_cpu() && !too_large) needs.memory_bytes = static_cast<double>(memory.total() * ranks);
  return needs;
}

/// Prints the findings and counts them.
void print(const std::vector<doctor::Finding>& findings, std::map<doctor::Health, int>& counts) {
  constexpr const char* kNames[] = {"ok", "warning", "FAILED"};
  for (const auto& finding : findings) {
    ++counts[finding.health];
    std::cout << fmt::format("{:8} {:14} {}{}{}\n", kNames[static_cast<int>(finding.health)], finding.subject,
                             escape_control(finding.text), finding.advice.empty() ? "" : "; ", finding.advice)
              << std::flush;
  }
}

int examine_machine(const DoctorOptions& options) {
  const double exchange_s = 60 + 5 * static_cast<double>(gpus().size());  // only ranks that hang take so long
  std::optional<Config> config;
  if (!options.config.empty()) config = load_config(options.config, options.sets);  // a mistake in it is said at once
  const auto start = std::chrono::steady_clock::now();
  std::map<doctor::Health, int> counts;
  const auto exchange = doctor::check_exchange(exchange_s);  // first: a GPU may be for one process at a time
  print(doctor::check_gpus(), counts);
  std::vector<doctor::Finding> of_model;
  doctor::Needs needs;
  if (config)
    needs = needs_of(options, *config, of_model);
  else if (!options.run_dir.empty())
    needs.folder = options.run_dir;
  print(of_model, counts);
  print(doctor::check_limits(needs), counts);
  print({doctor::check_storage(needs)}, counts);
  print({exchange}, counts);
  print(doctor::check_kernels(), counts);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::cout << fmt::format("\n{} ok, {} warnings, {} FAILED, in {}\n", counts[doctor::Health::kOk],
                           counts[doctor::Health::kWarning], counts[doctor::Health::kFailed], format_duration(seconds));
  return counts[doctor::Health::kFailed] > 0 ? kExitFailure : kExitDone;
}

void add_comm(CLI::App& doctor) {
  auto* comm = doctor.add_subcommand("comm", "Check that ranks reach each other, that sums are right, and how fast they are");
  auto mebibytes = std::make_shared<int64_t>(64);
  comm->add_option("--mib", *mebibytes, "Largest tensor to measure")->capture_default_str()->check(in_range(1, 1 << 14));
  comm->footer("Example:\n  scatterlm launch -n 8 doctor comm --mib 1024");
  keep_options(*comm, mebibytes);
  comm->callback([mebibytes] { examine_comm(*mebibytes); });
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_code) {
  auto* command =
      app.add_subcommand("doctor", "Check what a machine needs for training, in some seconds; exit code 1 if something fails");
  command->require_subcommand(0, 1);
  auto options = std::make_shared<DoctorOptions>();
  command->add_option("config", options->config, "Configuration of a run: is there room for its model and its checkpoints?");
  command->add_option("--set", options->sets, "Override a key of the configuration: a.b=c; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--run-dir", options->run_dir,
                      "Folder whose disk is checked; by default the configuration's, or this one");
  command->add_option("-n,--nproc-per-node", options->ranks, "Number of ranks of the run; by default one per GPU")
      ->check(in_range(1, 1024));
  command->footer("Example:\n  scatterlm doctor configs/quickstart.yaml\n  scatterlm launch -n 2 doctor comm");
  add_comm(*command);
  keep_options(*command, options);
  command->callback([command, options, &exit_code] {
    if (command->get_subcommands().empty()) exit_code = examine_machine(*options);
  });
}

}  // namespace scatterlm

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "app/command_line.h"
#include "app/commands.h"
#include "lib/bench/evidence.h"
#include "lib/config/difference.h"
#include "lib/config/load.h"
#include "lib/report/comparison.h"
#include "lib/train/kernel_limits.h"
#include "lib/train/speed_run.h"
#include "lib/util/error.h"
#include "lib/util/file.h"
#include "lib/util/memory_meter.h"

namespace scatterlm {
namespace {

struct CompareOptions {
  std::string first, second, json;
  std::vector<std::string> sets;
  int64_t blocks = 8, steps_per_block = 5;
  bool speed_only = false;
};

/// What another person types for the same figures.
std::string command_of(const CompareOptions& options) {
  auto command = fmt::format("scatterlm compare {} {} --speed-only --blocks {} --steps-per-block {}", options.first,
                             options.second, options.blocks, options.steps_per_block);
  for (const auto& set : options.sets) command += fmt::format(" --set {}", set);
  return command;
}

/// Both models train in this process.
void require_same_process(const CompareOptions& options, const Config& first, const Config& second) {
  for (const auto& [key, of_first, of_second, on_resume] : differences(first, second)) {
    if (key == "train.device" || key == "train.threads" || key == "train.deterministic")
      fail_user("{} is {} in {} and {} in {}, but belongs to the whole process; --set {}=... sets it for both", key, of_first,
                options.first, of_second, options.second, key);
  }
}

/// Memory is that of the first two steps, model and optimiser included.
std::unique_ptr<SpeedRun> warm_up(Side& side, const StopRequest& stop) {
  constexpr double kGib = 1 << 30;
  const MemoryMeter meter(side.numerics.device);
  auto speed_run = std::make_unique<SpeedRun>(side.config, side.numerics);
  speed_run->block_ms(1, stop);
  side.peak_gib = static_cast<double>(meter.peak_bytes()) / kGib;
  return speed_run;
}

/// A B A B ..., so that a drift of the machine's speed meets both.
void measure(const CompareOptions& options, Side& first, Side& second) {
  const StopRequest stop(/*max_minutes=*/0);
  const auto a = warm_up(first, stop), b = warm_up(second, stop);
  for (int64_t block = 1; block <= options.blocks; block++) {
    first.block_ms.push_back(a->block_ms(options.steps_per_block, stop));
    second.block_ms.push_back(b->block_ms(options.steps_per_block, stop));
    std::cout << fmt::format("block {}/{}: {:.2f} and {:.2f} ms per step", block, options.blocks, first.block_ms.back(),
                             second.block_ms.back())
              << std::endl;
  }
}

void compare(const CompareOptions& options) {
  if (!options.speed_only)
    fail_user(
        "compare measures speed and memory only: confirm that with --speed-only. For what the models learn, `scatterlm "
        "train` both and compare their validation losses");
  const auto sources = source_hash(SourceSet::kTraining);
  if (!options.json.empty()) bench::require_evidence(options.json, sources);
  const auto load = [&](const std::string& path) {
    auto config = load_config(path, options.sets);
    const auto numerics = set_up_execution(config.train);
    require_state_dtype(config.optim, numerics);
    check_kernel_limits(config.model, numerics);
    return Side{.path = path, .config = std::move(config), .numerics = numerics};
  };
  auto first = load(options.first), second = load(options.second);
  require_same_process(options, first.config, second.config);
  const bool on_gpu = first.numerics.device.is_cuda();
  const auto machine = on_gpu && !options.json.empty() ? bench::find_machine("") : bench::Machine{};

  std::cout << describe(first.numerics) << std::endl;
  measure(options, first, second);
  std::cout << '\n' << comparison_text(first, second) << std::flush;
  if (options.json.empty()) return;
  auto file = bench::evidence("compare", machine, command_of(options), sources, comparison_rows(first, second));
  file["device"] = describe(first.numerics);
  file.update(comparison_ratios(first, second));
  write_file_atomic(options.json, file.dump(1) + "\n");
}

}  // namespace

void add_compare(CLI::App& app, int&) {
  auto* command = app.add_subcommand("compare", "Train two models alternately and compare their speed and memory");
  auto options = std::make_shared<CompareOptions>();
  command->add_option("first", options->first, "Configuration file of the baseline")->required();
  command->add_option("second", options->second, "Configuration file of the model to compare with it")->required();
  command->add_flag("--speed-only", options->speed_only, "Speed and memory, from a few steps; nothing is saved");
  command->add_option("--blocks", options->blocks, "Timed blocks of each model; the models alternate")
      ->capture_default_str()
      ->check(in_range(1, 10000));
  command->add_option("--steps-per-block", options->steps_per_block, "Timed steps of a block, after one that is not")
      ->capture_default_str()
      ->check(in_range(1, 1000000));
  command->add_option("--set", options->sets, "Override a key in both: a.b=c; may be repeated")->allow_extra_args(false);
  command->add_option("--json", options->json, "Write an evidence file");
  command->footer("Example:\n  scatterlm compare configs/tiny_dense.yaml configs/tiny_moe.yaml --speed-only");
  command->callback([options] { compare(*options); });
}

}  // namespace scatterlm

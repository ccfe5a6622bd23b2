#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>

#include "app/command_line.h"
#include "app/commands.h"
#include "app/compare_options.h"
#include "app/failure.h"
#include "app/train_processes.h"
#include "app/training_run.h"
#include "lib/bench/evidence.h"
#include "lib/config/difference.h"
#include "lib/config/load.h"
#include "lib/io/checkpoint.h"
#include "lib/io/json.h"
#include "lib/report/loss_comparison.h"
#include "lib/train/kernel_limits.h"
#include "lib/train/speed_run.h"
#include "lib/util/escape.h"
#include "lib/util/file.h"
#include "lib/util/gpu.h"
#include "lib/util/log/log.h"
#include "lib/util/memory.h"
#include "lib/util/memory_meter.h"

namespace scatterlm {
namespace {

using nlohmann::ordered_json;

/// All models train in this process.
void require_same_process(const std::vector<Side>& sides) {
  const Side& first = sides.front();
  for (const auto& side : sides) {
    for (const auto& [key, of_first, of_side, on_resume] : differences(first.config, side.config)) {
      if (key == "train.device" || key == "train.threads" || key == "train.deterministic")
        fail_user("{} is {} in {} and {} in {}, but belongs to the whole process; --set {}=... sets it for all", key, of_first,
                  first.path, of_side, side.path, key);
    }
  }
}

/// Losses can be compared after the same tokens, in the same order and in the same steps, and on the same held-out text.
void require_same_tokens(const std::vector<Side>& sides, bool same_time) {
  const Side& first = sides.front();
  for (const auto& side : sides) {
    if (side.config.data.validation.empty())
      fail_user("{}: data.validation is missing, and compare is about the loss on it; --speed-only compares speed and memory",
                side.path);
    for (const auto& [key, of_first, of_side, on_resume] : differences(first.config, side.config)) {
      if (std::ranges::count(kKeysOfTokens, key) > 0)
        fail_user("{} is {} in {} and {} in {}: their losses are not those of the same tokens; --set {}=... sets it for all",
                  key, of_first, first.path, of_side, side.path, key);
    }
    const int64_t steps_of_first = total_steps(first.config.train), steps = total_steps(side.config.train);
    if (!same_time && steps != steps_of_first)
      fail_user("{} trains {} steps and {} trains {}; --tokens sets the length of all", first.path, steps_of_first, side.path,
                steps);
  }
}

/// The name of the configuration file, with a number if an earlier one has the same.
std::string unique_name(const std::vector<Side>& sides, const std::string& path) {
  const std::string stem = std::filesystem::path(path).stem();
  const auto taken =
      std::ranges::count_if(sides, [&](const Side& side) { return std::filesystem::path(side.path).stem() == stem; });
  return taken == 0 ? stem : fmt::format("{}-{}", stem, taken + 1);
}

std::vector<Side> load_sides(const CompareOptions& options) {
  std::vector<Side> sides;
  for (const auto& path : options.configs) {
    auto config = load_config(path, options.sets_of_all());
    const auto numerics = set_up_execution(config.train);
    require_dtypes(config, numerics);
    check_kernel_limits(config.model, numerics);
    sides.push_back({.name = unique_name(sides, path),
                     .path = path,
                     .config = std::move(config),
                     .numerics = numerics,
                     .minutes = options.minutes_of(sides.size())});
  }
  require_same_process(sides);
  for (const auto& side : sides)
    if (options.match) require_same_size(sides.front(), side, *options.match);
  return sides;
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

/// A B C A B C ..., so that a drift of the machine's speed meets all.
void measure_speed(const CompareOptions& options, std::vector<Side>& sides) {
  const StopRequest stop(/*max_minutes=*/0);
  std::vector<std::unique_ptr<SpeedRun>> runs;
  for (auto& side : sides) runs.push_back(warm_up(side, stop));
  for (int64_t block = 1; block <= options.blocks; block++) {
    std::string times;
    for (size_t i = 0; i < sides.size(); i++) {
      sides[i].block_ms.push_back(runs[i]->block_ms(options.steps_per_block, stop));
      times += fmt::format("{}{:.2f}", i == 0 ? "" : i + 1 < sides.size() ? ", " : " and ", sides[i].block_ms.back());
    }
    std::cout << fmt::format("block {}/{}: {} ms per step", block, options.blocks, times) << std::endl;
  }
}

void write_evidence(const CompareOptions& options, const bench::Machine& machine, const SourceHash& sources,
                    const std::vector<Side>& sides, ordered_json rows) {
  auto file = bench::evidence("compare", machine, options.command(), sources, std::move(rows));
  file["device"] = describe(sides.front().numerics);
  if (sides.size() == 2) file.update(comparison_ratios(sides[0], sides[1]));
  write_file_atomic(options.json, file.dump(1) + "\n");
}

// ---- losses

/// --set of a run: those of all and its own, its length, and evaluations and checkpoints ten times where the configuration has
/// none.
std::vector<std::string> sets_of_run(const CompareOptions& options, const Side& side, const std::vector<std::string>& own) {
  auto sets = options.sets_of_all();
  if (side.minutes > 0) {
    const double tok_s = comparison_row(side)["tok_s"], step = static_cast<double>(side.config.train.global_batch_tokens);
    const auto steps = std::max<int64_t>(1, static_cast<int64_t>(60 * side.minutes * tok_s / step));
    sets.insert(sets.end(), {"train.tokens=null", fmt::format("train.steps={}", steps)});
  }
  sets.insert(sets.end(), own.begin(), own.end());
  const auto config = load_config(side.path, sets);
  const int64_t tenth = std::max<int64_t>(1, total_steps(config.train) / 10);
  if (config.train.eval_interval == 0 && !config.data.validation.empty())
    sets.push_back(fmt::format("train.eval_interval={}", tenth));
  if (config.checkpoint.save_interval == 0) sets.push_back(fmt::format("checkpoint.save_interval={}", tenth));
  return sets;
}

void set_budget(const CompareOptions& options, Side& side, const std::vector<std::string>& own = {}) {
  side.config = load_config(side.path, sets_of_run(options, side, own));
}

std::vector<std::string> sweep_set(const CompareOptions& options, const std::string& value) {
  return value.empty() ? std::vector<std::string>{} : std::vector{options.sweep_key() + "=" + value};
}

/// For all runs; throws Error if a value of the sweep is wrong, or if the tokens are not the same.
void set_lengths(const CompareOptions& options, std::vector<Side>& sides) {
  for (auto& side : sides) {
    for (const auto& value : options.sweep_values()) {
      auto trial = side;
      set_budget(options, trial, sweep_set(options, value));
    }
    set_budget(options, side);
  }
  require_same_tokens(sides, !options.minutes.empty());
}

/// Takes over what an earlier call measured in this folder; false if there was none. Throws Error if that compared other models
/// or settings.
bool read_speed(const std::string& path, std::vector<Side>& sides) {
  if (!path_exists(path)) return false;
  const auto json = parse_json(read_file(path), path);
  const auto& rows = JsonFields{json, path}.list("rows");
  if (rows.size() != sides.size())
    fail_user("{}: compares {} configurations, not {}; give another --out", path, rows.size(), sides.size());
  for (size_t i = 0; i < sides.size(); i++) {
    const JsonFields row{rows[i], path};
    if (row.text("name") != sides[i].name)
      fail_user("{}: configuration {} is {}, not {}; give another --out", path, i + 1, row.text("name"), sides[i].name);
    for (const auto& ms : row.list("block_ms")) sides[i].block_ms.push_back(row.as_number(ms, "block_ms"));
    sides[i].peak_gib = row.number("peak_gib");
  }
  return true;
}

void require_same_settings(const std::string& path, const std::vector<Side>& sides) {
  const auto json = parse_json(read_file(path), path);
  for (size_t i = 0; i < sides.size(); i++) {
    const JsonFields row{json["rows"][i], path};
    for (const auto& [key, before, now, on_resume] : differences(parse_config(row.text("settings"), path), sides[i].config))
      fail_user("{}: {} was compared with {} {}, which is {} now; give another --out", path, sides[i].name, key, before, now);
  }
}

/// The folder of the first seed does not name it, so that the same command with more seeds continues.
std::string folder_of(const CompareOptions& options, const ComparedModel& model, const std::string& value, int64_t seed) {
  auto folder = model.side.name;
  if (!value.empty()) folder += fmt::format("_{}={}", options.sweep_key(), value);
  if (seed != model.side.config.train.seed) folder += fmt::format("_seed={}", seed);
  std::ranges::replace(folder, '/', '_');
  return folder;
}

LossComparison plan_runs(const CompareOptions& options, std::vector<Side> sides) {
  LossComparison comparison{.sweep = options.sweep_key(), .models = {}};
  for (auto& side : sides) {
    ComparedModel model{.side = std::move(side), .runs = {}};
    for (const auto& value : options.sweep_values()) {
      for (int64_t i = 0; i < options.seeds; i++) {
        const int64_t seed = model.side.config.train.seed + i;
        model.runs.push_back({.folder = folder_of(options, model, value, seed), .value = value, .seed = seed});
      }
    }
    comparison.models.push_back(std::move(model));
  }
  return comparison;
}

/// Takes over from an earlier call which runs failed.
void read_failures(const std::string& path, LossComparison& comparison) {
  const auto json = parse_json(read_file(path), path);
  for (size_t i = 0; i < comparison.models.size(); i++) {
    for (const auto& before : JsonFields{json["rows"][i], path}.list("runs")) {
      if (!before.contains("error") || before["error"].is_null()) continue;
      const JsonFields fields{before, path};
      auto& runs = comparison.models[i].runs;
      const auto run = std::ranges::find(runs, fields.text("folder"), &ComparedRun::folder);
      if (run != runs.end()) run->error = fields.text("error");
    }
  }
}

std::vector<std::string> sets_of_run(const CompareOptions& options, const ComparedModel& model, const ComparedRun& run) {
  auto own = sweep_set(options, run.value);
  own.push_back(fmt::format("train.seed={}", run.seed));
  return sets_of_run(options, model.side, own);
}

/// Whether the newest checkpoint is that of the last step. Where all have been removed, to free their space, the metrics tell:
/// they end with the evaluation after the last step.
bool is_complete(const Config& config, const std::string& folder) {
  if (const auto saved = list_checkpoints(folder); !saved.empty()) return saved.back() == total_steps(config.train);
  if (!path_exists(folder + "/metrics.jsonl")) return false;
  const auto curve = read_result(folder).curve;
  return !curve.empty() &&
         curve.back().tokens == static_cast<double>(total_steps(config.train) * config.train.global_batch_tokens);
}

/// The run as `scatterlm train` would make it, in this process.
TrainingEnd train_here(const std::string& name, const Config& config, const at::Device& device, const std::string& folder) {
  release_cached_memory(device);
  TrainOptions train_options;
  train_options.run_dir = folder;
  try {
    return {run_training(config, train_options), ""};
  } catch (const std::exception& error) {
    const auto failure = explain_failure(error, /*trains=*/true);
    log_error(name + ": " + failure.text);
    return {failure.code, failure.text};
  }
}

TrainingCommand training_command(const std::string& name, const std::string& path, const std::vector<std::string>& sets,
                                 const std::string& folder) {
  TrainingCommand command{.name = name, .arguments = {"train", path, "--run-dir", folder}};
  for (const auto& set : sets) command.arguments.insert(command.arguments.end(), {"--set", set});
  return command;
}

/// Value by value and seed by seed, so that a slow hour of the machine meets all models; what is complete or has failed is left
/// alone. A run that fails does not end the others; save() is called after each. Returns kExitDone, or kExitRestart if it was
/// asked to stop.
ExitCode train_all(const CompareOptions& options, LossComparison& comparison, const std::string& folder,
                   const std::function<void()>& save) {
  const size_t runs = comparison.models.front().runs.size();
  const auto device = comparison.models.front().side.numerics.device;
  const int64_t jobs = options.jobs > 0 ? options.jobs : std::max<int64_t>(1, std::ssize(gpus()));
  std::vector<TrainingCommand> commands;
  std::vector<ComparedRun*> runs_of_commands;
  const auto keep = [&](ComparedRun& run, const TrainingEnd& end) {
    if (end.code == kExitDone) return;
    run.error = escape_control(end.error);
    save();
  };
  for (size_t i = 0; i < runs; i++) {
    for (auto& model : comparison.models) {
      auto& run = model.runs[i];
      if (!run.error.empty()) continue;
      const auto run_dir = folder + "/" + run.folder, name = run_name(model.side.name, comparison.sweep, run.value, run.seed);
      const auto sets = sets_of_run(options, model, run);
      const auto config = load_config(model.side.path, sets);
      if (is_complete(config, run_dir)) continue;
      if (jobs > 1) {
        commands.push_back(training_command(name, model.side.path, sets, run_dir));
        runs_of_commands.push_back(&run);
        continue;
      }
      std::cout << fmt::format("\n{}: {}", run_dir, name) << std::endl;
      const auto end = train_here(name, config, device, run_dir);
      if (end.code == kExitRestart) return kExitRestart;
      keep(run, end);
    }
  }
  release_cached_memory(device);
  const auto ended = [&](size_t number, const TrainingEnd& end) { keep(*runs_of_commands[number], end); };
  if (const auto code = train_in_processes(commands, jobs, ended); code != kExitDone) return code;
  for (auto& model : comparison.models)
    for (auto& run : model.runs)
      if (run.error.empty()) run.result = read_result(folder + "/" + run.folder);
  return kExitDone;
}

ExitCode compare_losses(const CompareOptions& options, std::vector<Side> sides, const bench::Machine& machine,
                        const SourceHash& sources) {
  const std::string folder = options.folder(sides.front().config.run.dir, sides), path = folder + "/comparison.json";
  const bool measured = read_speed(path, sides);
  if (options.minutes.empty()) set_lengths(options, sides);  // mistakes show before minutes of measuring
  if (!measured) measure_speed(options, sides);
  if (!options.minutes.empty()) set_lengths(options, sides);
  if (measured) require_same_settings(path, sides);

  auto comparison = plan_runs(options, sides);
  if (measured && !options.retry_failed) read_failures(path, comparison);
  std::filesystem::create_directories(folder);
  const auto write = [&](bool complete) {
    auto json = loss_comparison(comparison, complete);
    json["command"] = options.command();
    json["device"] = describe(sides.front().numerics);
    write_file_atomic(path, json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
    return json;
  };
  if (!measured || options.retry_failed) write(false);
  if (const auto code = train_all(options, comparison, folder, [&] { write(false); }); code != kExitDone) return code;
  const auto json = write(true);
  std::cout << '\n' << loss_comparison_text(json) << '\n' << comparison_text(sides) << '\n' << path << std::endl;
  if (!options.json.empty()) write_evidence(options, machine, sources, sides, json["rows"]);
  if (const auto failed = failed_runs(json, path); !failed.empty())
    log_warning(fmt::format("the comparison leaves out {} of {} runs, which failed; --retry-failed trains them again",
                            failed.size(), comparison.models.size() * comparison.models.front().runs.size()));
  return kExitDone;
}

ExitCode compare(const CompareOptions& options) {
  options.check();
  const auto sources = source_hash(SourceSet::kTraining);
  if (!options.json.empty()) bench::require_evidence(options.json, sources);
  auto sides = load_sides(options);
  const bool on_gpu = sides.front().numerics.device.is_cuda();
  const auto machine = on_gpu && !options.json.empty() ? bench::find_machine("") : bench::Machine{};
  std::cout << describe(sides.front().numerics) << std::endl;
  if (!options.speed_only) return compare_losses(options, std::move(sides), machine, sources);
  measure_speed(options, sides);
  std::cout << '\n' << comparison_text(sides) << std::flush;
  if (options.json.empty()) return kExitDone;
  auto rows = ordered_json::array();
  for (const auto& side : sides) rows.push_back(comparison_row(side));
  write_evidence(options, machine, sources, sides, std::move(rows));
  return kExitDone;
}

}  // namespace

void add_compare(CLI::App& app, int& exit_code) {
  const auto [command, options] = define_compare(app);
  command->callback([options, &exit_code] { exit_code = compare(*options); });
}

}  // namespace scatterlm

#include "app/compare_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "app/command_line.h"
#include "lib/util/error.h"

namespace scatterlm {
namespace {

MatchedSize matched_size(const std::string& name) {
  if (name == "active_flops") return MatchedSize::kActiveFlops;
  if (name == "active_params") return MatchedSize::kActiveParameters;
  if (name == "total_params") return MatchedSize::kTotalParameters;
  fail_user("--match: got '{}', must be active_flops, active_params or total_params", name);
}

}  // namespace

void CompareOptions::check() const {
  if (configs.size() < 2) fail_user("compare needs at least two configuration files; the first one is the baseline");
  if (speed_only && (tokens > 0 || !minutes.empty() || seeds > 1 || !sweep.empty() || !out.empty() || retry_failed))
    fail_user(
        "--speed-only trains no runs, so --tokens, --minutes, --seeds, --sweep, --out and --retry-failed have no effect; leave "
        "them out");
  if (tokens > 0 && !minutes.empty()) fail_user("--tokens and --minutes both set the length of the runs; give one of them");
  if (minutes.size() > 1 && minutes.size() != configs.size())
    fail_user("--minutes has {} values for {} configurations; give one for all, or one for each", minutes.size(),
              configs.size());
  if (sweep.empty()) return;
  const auto values = sweep_values();
  if (sweep_key().empty() || values.empty() || std::ranges::count(values, "") > 0)
    fail_user("--sweep: got '{}', must be KEY=VALUE,VALUE,..., for example optim.lr=1e-3,2e-3", sweep);
  for (const auto& value : values)
    if (std::ranges::count(values, value) > 1) fail_user("--sweep: the value {} of {} is given twice", value, sweep_key());
  if (sweep_key() == "train.seed") fail_user("--sweep: runs with several seeds are made with --seeds");
  if (std::ranges::count(kKeysOfTokens, sweep_key()) > 0 || sweep_key() == "train.steps" || sweep_key() == "train.tokens")
    fail_user("--sweep: {} changes the tokens, and losses are compared after the same ones; --set {}=... sets it for all",
              sweep_key(), sweep_key());
}

double CompareOptions::minutes_of(size_t index) const {
  if (minutes.empty()) return 0;
  return minutes.size() == 1 ? minutes.front() : minutes.at(index);
}

std::vector<std::string> CompareOptions::sets_of_all() const {
  auto all = sets;
  if (tokens > 0) all.insert(all.end(), {"train.steps=null", fmt::format("train.tokens={:.0f}", tokens)});
  return all;
}

std::string CompareOptions::sweep_key() const {
  const auto equals = sweep.find('=');
  return equals == sweep.npos ? "" : sweep.substr(0, equals);
}

std::vector<std::string> CompareOptions::sweep_values() const {
  if (sweep.empty()) return {""};
  std::vector<std::string> values;
  std::istringstream list(sweep.substr(std::min(sweep.size(), sweep_key().size() + 1)));
  for (std::string value; std::getline(list, value, ',');) values.push_back(value);
  return values;
}

std::string CompareOptions::folder(const std::string& runs, const std::vector<Side>& sides) const {
  if (!out.empty()) return out;
  std::string folder = runs + "/compare";
  for (const auto& side : sides) folder += "-" + side.name;
  return folder;
}

std::string CompareOptions::command() const {
  auto text = fmt::format("scatterlm compare {}", fmt::join(configs, " "));
  if (speed_only) text += " --speed-only";
  if (tokens > 0) text += fmt::format(" --tokens {:.0f}", tokens);
  if (!minutes.empty()) text += fmt::format(" --minutes {:g}", fmt::join(minutes, ","));
  if (!sweep.empty()) text += " --sweep " + sweep;
  if (seeds > 1) text += fmt::format(" --seeds {}", seeds);
  text += fmt::format(" --blocks {} --steps-per-block {}", blocks, steps_per_block);
  for (const auto& set : sets) text += fmt::format(" --set {}", set);
  return text;
}

std::pair<CLI::App*, std::shared_ptr<CompareOptions>> define_compare(CLI::App& app) {
  auto* command = app.add_subcommand("compare", "Train models on the same tokens and compare loss, speed and memory");
  auto options = std::make_shared<CompareOptions>();
  command->add_option("configs", options->configs, "Configuration files; the first one is the baseline")->required();
  command
      ->add_option("--tokens", options->tokens, "Train every run on this many tokens, in place of the configuration's number")
      ->check(in_range(1, 1e16));
  command
      ->add_option(
          "--minutes", options->minutes,
          "Train every run on as many tokens as its model trains in this time, by the speed measured first: M for all, or "
          "M,M,... with one for each configuration")
      ->delimiter(',')
      ->check(in_range(1e-3, 1e9));
  command->add_option("--sweep", options->sweep,
                      "Train every model with each value of a key, and compare the best: a.b=c,d,e. "
                      "A value with which training fails, for example by divergence, is left out");
  command->add_option("--seeds", options->seeds, "Train with this many seeds, from train.seed on")
      ->capture_default_str()
      ->check(in_range(1, 1000));
  command
      ->add_option("--jobs", options->jobs,
                   "Train this many runs at a time, each in a process and on a GPU of its own; 0 = as many as there are GPUs")
      ->capture_default_str()
      ->check(in_range(0, 1024));
  command->add_option(
      "--out", options->out,
      "Folder for the runs and comparison.json; the same command continues there. Default: RUN.DIR/compare-NAMES");
  command->add_flag(
      "--retry-failed", options->retry_failed,
      "Train runs that failed in an earlier call again, from their newest checkpoint; without it they are left out");
  command->add_option_function<std::string>(
      "--match", [options = options.get()](const std::string& name) { options->match = matched_size(name); },
      "Refuse models whose active_flops, active_params or total_params differ by more than 2 %, and name the width that fits");
  command->add_flag("--speed-only", options->speed_only, "Speed and memory, from a few steps; nothing is saved");
  command->add_option("--blocks", options->blocks, "Timed blocks of each model; the models alternate")
      ->capture_default_str()
      ->check(in_range(1, 10000));
  command->add_option("--steps-per-block", options->steps_per_block, "Timed steps of a block, after one that is not")
      ->capture_default_str()
      ->check(in_range(1, 1000000));
  command->add_option("--set", options->sets, "Override a key in all: a.b=c; may be repeated")->allow_extra_args(false);
  command->add_option("--json", options->json, "Write an evidence file");
  command->footer(
      "Example:\n  scatterlm compare configs/tiny_dense.yaml configs/tiny_moe.yaml --sweep optim.lr=1e-3,2e-3,4e-3\n"
      "  scatterlm compare configs/tiny_dense.yaml configs/tiny_moe.yaml --speed-only");
  return {command, options};
}

}  // namespace scatterlm

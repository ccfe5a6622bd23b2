#include "app/command_line.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "lib/util/error.h"
#include "lib/util/text.h"

namespace scatterlm {
namespace {

std::vector<const CLI::App*> subcommands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

const CLI::App* find_subcommand(const CLI::App& app, const std::string& name) {
  for (const auto* command : subcommands(app)) {
    if (command->get_name() == name) return command;
  }
  return nullptr;
}

std::vector<std::string> subcommand_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* command : subcommands(app)) names.push_back(command->get_name());
  return names;
}

/// What others call a command, and what it is here.
struct CommandAlias {
  std::string_view other, ours;
};
constexpr CommandAlias kCommandAliases[] = {
    {"sample", "generate"}, {"infer", "generate"},  {"inference", "generate"}, {"pretrain", "train"},     {"run", "train"},
    {"evaluate", "eval"},   {"validate", "eval"},   {"test", "eval"},          {"prepare", "data"},       {"tokenize", "data"},
    {"benchmark", "bench"}, {"torchrun", "launch"}, {"tokenize", "prepare"},   {"preprocess", "prepare"}, {"check", "verify"},
};

/// The command of `names` that `word` probably means; empty if none is likely.
std::string likely_command(const std::vector<std::string>& names, const std::string& word) {
  const auto known = [&](const std::string& name) { return std::ranges::find(names, name) != names.end(); };
  for (const auto& [other, ours] : kCommandAliases) {
    if (other == word && known(std::string(ours))) return std::string(ours);
  }
  const auto distance = [&](const std::string& name) { return edit_distance(name, word); };
  const auto nearest = std::ranges::min_element(names, {}, distance);
  return distance(*nearest) <= 2 ? *nearest : "";
}

[[noreturn]] void fail_unknown(const CLI::App& app, const std::string& path, const std::string& word) {
  const auto names = subcommand_names(app);
  const auto likely = likely_command(names, word);
  fail_user("unknown command '{} {}'{} Commands: {}", path, word,
            likely.empty() ? "." : fmt::format(", did you mean '{}'?", likely), fmt::join(names, ", "));
}

/// The command as typed: "scatterlm data prepare".
std::string path_of(const CLI::App* app) {
  return app->get_parent() ? path_of(app->get_parent()) + " " + app->get_name() : app->get_name();
}

}  // namespace

void check_subcommands(const CLI::App& app, int argc, char** argv) {
  const CLI::App* command = &app;
  for (int i = 1; i <= argc && !subcommands(*command).empty(); i++) {
    const bool needs_one = command->get_require_subcommand_min() > 0;
    if (i == argc && !needs_one) return;
    if (i == argc) {
      fail_user("{} needs a command: {}; see {} --help", path_of(command), fmt::join(subcommand_names(*command), ", "),
                path_of(command));
    }
    if (argv[i][0] == '-') {
      if (command->get_option_no_throw(argv[i])) return;  // --help, --version
      fail_user("unknown option '{}'; see {} --help", argv[i], path_of(command));
    }
    const auto* next = find_subcommand(*command, argv[i]);
    if (!next && !needs_one) return;  // an argument
    if (!next) fail_unknown(*command, path_of(command), argv[i]);
    command = next;
  }
}

std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  // launch keeps what it does not know for the command that it starts.
  if (const auto extra = command->remaining(); !extra.empty() && !command->get_prefix_command()) {
    return fmt::format("unexpected argument '{}'; see {} --help", extra.front(), path_of(command));
  }
  return fmt::format("{}; see {} --help", error.what(), path_of(command));
}

CLI::Validator in_range(double low, double high) {
  const auto allowed = std::isinf(high) ? fmt::format("at least {}", low) : fmt::format("from {} to {}", low, high);
  const auto check = [=](const std::string& text) -> std::string {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    const bool good = !text.empty() && *end == '\0' && value >= low && value <= high && std::isfinite(value);
    return good ? "" : fmt::format("got '{}', must be {}", text, allowed);
  };
  return CLI::Validator(check, allowed);
}

void keep_options(CLI::App& command, std::shared_ptr<void> options) {
  command.preparse_callback([options = std::move(options)](size_t) {});
}

void add_threads(CLI::App& command, std::optional<int64_t>& threads) {
  command.add_option("--threads", threads, "CPU threads; 0 = all cores; by default train.threads of the training")
      ->check(in_range(0, 1024));
}

CLI::Validator at_least(double low) { return in_range(low, std::numeric_limits<double>::infinity()); }

}  // namespace scatterlm

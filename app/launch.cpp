#include "lib/distributed/launcher.h"

#include <CLI/CLI.hpp>

#include "app/command_line.h"
#include "app/commands.h"
#include "lib/util/error.h"
#include "lib/util/output.h"

namespace scatterlm {
namespace {

/// Checks the command that the ranks shall run here, once, instead of in every rank, and sets the timeouts. Returns false if it
/// asks for help, which is printed then.
bool check_command(std::vector<char*> argv, LaunchOptions& options) {
  CLI::App app;
  app.name("scatterlm");
  int unused = 0;
  add_train_check(app, options);
  add_doctor(app, unused);
  auto* doctor = app.get_subcommand("doctor");
  doctor->callback([doctor, &options] {
    if (doctor->get_subcommands().empty())
      fail_user(
          "scatterlm launch starts train, eval and doctor comm; doctor alone checks a machine, without ranks: scatterlm doctor");
    options.only_prints = true;
  });
  doctor->get_subcommand("comm")->callback([] {});
  add_eval(app, unused);
  app.get_subcommand("eval")->callback([&options] { options.only_prints = true; });
  try {
    app.parse(static_cast<int>(argv.size()), argv.data());
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) fail_user("{}", explain(app, error));
    app.exit(error);
    return false;
  }
  return true;
}

int launch_command(const CLI::App& app, LaunchOptions options, const std::vector<std::string>& arguments) {
  if (arguments.empty())
    fail_user("scatterlm launch needs a command to start, for example: scatterlm launch -n 2 train CONFIG");
  std::vector<std::string> words{"scatterlm"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  check_subcommands(app, static_cast<int>(argv.size()), argv.data());
  if (const auto& command = arguments.front(); command != "train" && command != "eval" && command != "doctor") {
    fail_user(
        "scatterlm launch starts train, eval and doctor; {} does not share its work among ranks, so run it alone: scatterlm {}",
        command, command);
  }
  if (!check_command(argv, options)) return kExitDone;
  options.arguments = arguments;
  const int code = launch(options);
  if (options.only_prints) require_printed();
  return code;
}

}  // namespace

void add_launch(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand(
      "launch", "Start train, eval or doctor as several ranks of this machine, one process per GPU or CPU share");
  auto options = std::make_shared<LaunchOptions>();
  command->add_option("-n,--nproc-per-node", options->ranks, "Number of ranks")->required()->check(in_range(1, 1024));
  command->add_option("--max-restarts", options->max_restarts, "Start all ranks again after a failure, at most this often")
      ->check(at_least(0));
  command->prefix_command();
  command->footer(
      "Example:\n  scatterlm launch -n 8 --max-restarts 3 train configs/quickstart.yaml\n"
      "On several machines torchrun (--no-python), srun or mpirun start the ranks.");
  command->callback([&app, command, options, &exit_code] { exit_code = launch_command(app, *options, command->remaining()); });
}

}  // namespace scatterlm

#include <CLI/CLI.hpp>
#include <iostream>

#include "app/commands.h"
#include "lib/config/load.h"

namespace scatterlm {
namespace {

struct ShowOptions {
  std::string config;
  std::vector<std::string> sets;
};

void add_show(CLI::App& config) {
  auto* command =
      config.add_subcommand("show", "Check a configuration and print it in full, every key with its value and meaning");
  auto options = std::make_shared<ShowOptions>();
  command->add_option("config", options->config, "Configuration file")->required();
  command->add_option("--set", options->sets, "Override a key: a.b=c; may be repeated")->allow_extra_args(false);
  command->footer("Example:\n  scatterlm config show configs/quickstart.yaml --set train.seed=7");
  command->callback([options] { std::cout << dump_config(load_config(options->config, options->sets)); });
}

void add_keys(CLI::App& config) {
  auto* command = config.add_subcommand("keys", "Print every key with its default, the values it takes and its meaning");
  command->footer("Example:\n  scatterlm config keys | grep -A2 model.moe");
  command->callback([] { std::cout << describe_keys(); });
}

}  // namespace

void add_config(CLI::App& app, int&) {
  auto* command = app.add_subcommand("config", "Check and explain configuration files");
  command->require_subcommand(1);
  command->footer("Example:\n  scatterlm config show configs/quickstart.yaml");
  add_show(*command);
  add_keys(*command);
}

}  // namespace scatterlm

// What stands on the command line of `train`.
#pragma once
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace scatterlm {

struct TrainOptions {
  std::string config, run_dir, init_from, resume = "auto";
  std::vector<std::string> sets, init_allow;
  bool dry_run = false;
};

/// Adds the subcommand. Its callback keeps the options alive.
std::pair<CLI::App*, std::shared_ptr<TrainOptions>> define_train(CLI::App& app);

}  // namespace scatterlm

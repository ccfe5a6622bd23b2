// What stands on the command line of `compare`.
#pragma once
#include <CLI/CLI.hpp>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/report/comparison.h"
#include "lib/report/width_match.h"

namespace scatterlm {

/// Keys that decide which tokens a model is trained and evaluated on; losses are compared after the same ones.
constexpr std::array<std::string_view, 7> kKeysOfTokens = {
    "data.train",       "data.raw_dtype", "data.validation", "train.seed", "train.sequence_length", "train.global_batch_tokens",
    "train.eval_tokens"};

struct CompareOptions {
  std::vector<std::string> configs, sets;
  std::string json, out, sweep;
  int64_t seeds = 1, jobs = 0, blocks = 8, steps_per_block = 5;
  double tokens = 0;
  std::vector<double> minutes;  ///< nothing, one for all, or one for each configuration
  bool speed_only = false, retry_failed = false;
  std::optional<MatchedSize> match;

  /// Throws Error for options that contradict each other.
  void check() const;
  /// Of configuration `index`; 0: --minutes was not given.
  double minutes_of(size_t index) const;
  /// --set and --tokens.
  std::vector<std::string> sets_of_all() const;
  std::string sweep_key() const;  ///< empty without --sweep
  /// In their order; a single empty one without --sweep.
  std::vector<std::string> sweep_values() const;
  /// Where the runs are kept: --out, or one of `runs` that is named after the models.
  std::string folder(const std::string& runs, const std::vector<Side>& sides) const;
  /// What another person types for the same figures.
  std::string command() const;
};

/// Adds the subcommand. Its callback keeps the options alive.
std::pair<CLI::App*, std::shared_ptr<CompareOptions>> define_compare(CLI::App& app);

}  // namespace scatterlm

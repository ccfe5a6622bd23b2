// What models learned from the same tokens, side by side.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lib/report/comparison.h"
#include "lib/report/loss_curve.h"

namespace scatterlm {

/// A training run of a comparison.
struct ComparedRun {
  std::string folder;  ///< in that of the comparison
  std::string value;   ///< of the swept key; empty without one
  int64_t seed = 0;
  std::string error = {};  ///< why it failed, in one line; empty if it did not
  RunResult result{};      ///< as far as it has come
};

/// "tiny_moe, optim.lr=1e-3, seed 1".
std::string run_name(const std::string& model, const std::string& sweep, const std::string& value, int64_t seed);

struct ComparedModel {
  Side side;
  std::vector<ComparedRun> runs;  ///< values in the order of the sweep, with the same seeds each
};

struct LossComparison {
  std::string sweep;  ///< the swept key; empty without one
  std::vector<ComparedModel> models;
};

/// The content of comparison.json: `sweep`, `complete` and `rows`. A row is that of comparison_row(), then `tokens` (of each
/// run), `settings` (the configuration as YAML) and `runs` (folder, value, seed, error, val_loss, val_bpb, load_max_mean,
/// dead_experts, nonfinite_steps; null where unknown). `error` says in one line why a run failed; figures are of runs that did
/// not. Once all runs are complete or have failed also, of the value with the lowest mean final validation loss over the seeds,
/// among the values with the fewest failed runs:
///
///     best                    that value; null without a sweep
///     failed                  number of its runs that failed
///     val_loss                mean over the seeds, with val_loss_min and val_loss_max
///     val_loss_above_first    minus that of the first model
///     val_bpb, load_max_mean, dead_experts   means over the seeds; null where unknown
///     curve                   mean validation loss and time in training steps [[tokens, loss, seconds], ...]
///     seconds                 of all training steps, mean over the seeds
///     trained_tok_s           tokens / seconds; below tok_s where routing has become less even than in the blocks
///     tokens_to_first_loss    to where the curve reaches the first model's val_loss, linearly interpolated; null if it does
///                             not; of the first model itself all of its tokens
///     seconds_to_first_loss   likewise
///     tokens_share            tokens_to_first_loss / tokens of the first model
///     seconds_share           seconds_to_first_loss / seconds of the first model
///     by_value                [{value, val_loss, failed}], val_loss null if all failed; null without a sweep
///
/// `ratio` and `conditions` of comparison_ratios() follow in each row but the first. Throws Error (exit code 1) if all runs of
/// a model failed; to end without a finite validation loss is to fail.
nlohmann::ordered_json loss_comparison(const LossComparison& comparison, bool complete);

/// "RUN: ERROR" of every run that failed, from the JSON of a comparison, complete or not. Throws Error naming `where`, the
/// file, for what is no such JSON.
std::vector<std::string> failed_runs(const nlohmann::json& comparison, const std::string& where);

/// Table, sweep, failed runs and conclusions in words, from the JSON of a complete comparison.
std::string loss_comparison_text(const nlohmann::ordered_json& comparison);

}  // namespace scatterlm

// Curves, figures and configurations of runs on one page that opens without a network.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace scatterlm {

/// What a run folder says of its run, finished or not. Keys: name, path, environment (text), config (its YAML), model (text),
/// total_parameters, active_parameters, flops_per_token, total_steps; of each reported step, null where it is not known: step,
/// tokens, seconds (in training steps so far), loss, val_loss, val_bpb, tok_s, mfu, mem_gib, grad_norm, lr, load_max_mean,
/// nonfinite_steps; tasks: {NAME: acc_norm of each step}; routers: [{name, load_max_mean}]. Of more than 4,000 steps, every
/// n-th and those with an evaluation are kept. Throws Error (exit code 2) if there is no run, or a line that is not one of
/// metrics.jsonl; the last one may be unfinished.
nlohmann::ordered_json run_curves(const std::string& run_dir);

/// The page. Throws Error as run_curves() does, and if this program was built without plotly.js.
std::string html_report(const std::vector<std::string>& run_dirs);

}  // namespace scatterlm

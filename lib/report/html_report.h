// Curves, figures and configurations of runs on one page that opens without a network.
#pragma once
#include <string>
#include <vector>

namespace scatterlm {

/// The page of these run folders, whose runs may be finished or not: the last line of a metrics.jsonl may be unfinished. The
/// folder of a comparison, or its comparison.json, stands for its table and for its runs with the best value of each model.
/// Throws Error (exit code 2) if a path is neither, if a run holds another line that is not one of metrics.jsonl, and if this
/// program was built without plotly.js.
std::string html_report(const std::vector<std::string>& paths);

}  // namespace scatterlm

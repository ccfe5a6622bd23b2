// Curves, figures and configurations of runs on one page that opens without a network.
#pragma once
#include <string>
#include <vector>

namespace scatterlm {

/// The page of these run folders, whose runs may be finished or not: the last line of a metrics.jsonl may be unfinished. Throws
/// Error (exit code 2) if one is no run folder or holds another line that is not one of metrics.jsonl, and if this program was
/// built without plotly.js.
std::string html_report(const std::vector<std::string>& run_dirs);

}  // namespace scatterlm

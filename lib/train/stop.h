// Requests to stop at the next step boundary: signals and the time budget.
#pragma once
#include <chrono>
#include <string>

namespace scatterlm {

class StopRequest {
 public:
  /// Installs the handlers and lets through the signals that were held back until now. Any number of signals asks once; only a
  /// second Ctrl-C (SIGINT) ends the process at once, without saving, with exit code 130. max_minutes 0 = no budget.
  explicit StopRequest(double max_minutes);

  /// Why to stop, empty if not asked to.
  std::string reason() const;

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double max_minutes_;
};

}  // namespace scatterlm

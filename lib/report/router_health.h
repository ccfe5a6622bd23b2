// Whether the routers of a run spread its tokens over their experts.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "lib/config/config.h"
#include "lib/train/step_report.h"

namespace scatterlm {

/// Watches the reports of a run. A router does not spread its tokens if it sends eight times the mean to one expert, nearly
/// every token to the same experts, or nothing to a quarter of them.
class RouterHealth {
 public:
  explicit RouterHealth(const Config& config);

  struct Message {
    bool warning;  ///< or good news
    std::string text;
  };
  /// A warning, once, when some router has not spread its tokens for 50 steps after the warm-up (during it most routers of a
  /// large model collapse, and recover): the first such layers, and the keys that help. Good news when all have done so again
  /// for 50 steps, after which the next collapse is news too.
  std::optional<Message> observe(const StepReport& report);

 private:
  RouterConfig router_;
  int64_t warmup_steps_;
  bool collapsed_ = false;        ///< it was said
  std::optional<int64_t> since_;  ///< step of the first report of the row that contradicts collapsed_
};

}  // namespace scatterlm

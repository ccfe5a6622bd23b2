// One line of `scatterlm doctor`.
#pragma once
#include <cstdint>
#include <string>

namespace scatterlm::doctor {

enum class Health {
  kOk,
  kWarning,  ///< a run works, but may be slow, or fail under conditions that the line names
  kFailed    ///< a run would fail
};

struct Finding {
  std::string subject;
  Health health = Health::kOk;
  std::string text;
  std::string advice = {};  ///< what to do; empty where all is well
};

/// What a run asks of its machine. Where nothing is known of it, what any run asks.
struct Needs {
  std::string folder = ".";     ///< for its checkpoints; need not exist yet
  double checkpoint_bytes = 0;  ///< of one
  int64_t num_checkpoints = 0;  ///< that are on disk at a time, those that are there already not counted
  double memory_bytes = 0;      ///< that all ranks of this machine have in main memory throughout the training
};

}  // namespace scatterlm::doctor

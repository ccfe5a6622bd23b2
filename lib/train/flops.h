// What a model costs in words, and what a GPU can do.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "lib/config/config.h"
#include "lib/nn/model_size.h"

namespace scatterlm {

/// "6.92B parameters, 1.28B active, 8.2B FLOPs per token"
std::string describe_model(const Config& config);

struct PeakFlops {
  double flops;            ///< per second
  std::string_view basis;  ///< what the number is, for the log
};

/// Dense bfloat16 peak of a GPU by the name that its driver gives; none where this file does not know it.
std::optional<PeakFlops> peak_bfloat16(std::string_view gpu_name);

}  // namespace scatterlm

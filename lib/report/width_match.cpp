#include "lib/report/width_match.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/nn/model_size.h"
#include "lib/util/error.h"
#include "lib/util/text.h"

namespace scatterlm {
namespace {

double size_of(const Config& config, MatchedSize size) {
  const auto parameters = nn::model_size(config.model);
  switch (size) {
    case MatchedSize::kActiveFlops: return nn::flops_per_token(config.model, config.train.sequence_length);
    case MatchedSize::kActiveParameters: return static_cast<double>(parameters.active);
    case MatchedSize::kTotalParameters: return static_cast<double>(parameters.total);
  }
  fail("unknown size to match");
}

const char* words(MatchedSize size) {
  return size == MatchedSize::kActiveFlops        ? "FLOPs per token"
         : size == MatchedSize::kActiveParameters ? "active parameters"
                                                  : "parameters";
}

/// The width that a proposal changes.
int64_t& width_of(Config& config) {
  const bool routed = config.model.layers.find("moe") != std::string::npos;
  return routed ? config.model.moe.moe_intermediate_size : config.model.dense.intermediate_size;
}

}  // namespace

void require_same_size(const Side& first, const Side& side, MatchedSize size) {
  const double target = size_of(first.config, size), now = size_of(side.config, size);
  if (std::abs(now - target) <= 0.02 * target) return;
  auto proposed = side.config;
  int64_t& width = width_of(proposed);
  const int64_t before = width;
  width *= 2;
  const double per_column = (size_of(proposed, size) - now) / static_cast<double>(before);  // sizes are linear in the width
  const double wanted = static_cast<double>(before) + (target - now) / per_column;
  width = std::max<int64_t>(8, 8 * std::llround(wanted / 8));
  const char* key =
      &width == &proposed.model.moe.moe_intermediate_size ? "model.moe.moe_intermediate_size" : "model.dense.intermediate_size";
  fail_user("--match: {} has {} {}, {} has {}, more than 2 % apart; '{}: {}' in place of {} would give {}", side.path,
            format_count(now), words(size), first.path, format_count(target), key, width, before,
            format_count(size_of(proposed, size)));
}

}  // namespace scatterlm

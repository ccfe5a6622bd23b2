// The pattern `model.layers`.
#pragma once
#include <string>
#include <vector>

#include "lib/config/model_config.h"

namespace scatterlm {

/// "gqa+dense, moa+moe*11" -> 12 layers; white space does not matter. Throws Error that names the bad term.
std::vector<LayerKind> parse_layers(const std::string& pattern);

}  // namespace scatterlm

#pragma once
#include <string>
#include <vector>

#include "lib/config/config.h"

namespace scatterlm {

/// A key whose value is not the same in two configurations, values as YAML.
struct Difference {
  std::string key;
  std::string first, second;
  OnResume on_resume;  ///< what it means where the first is that of a checkpoint
};

/// In the order of the configuration's keys.
std::vector<Difference> differences(const Config& first, const Config& second);

}  // namespace scatterlm

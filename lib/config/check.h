// What the list of keys cannot say: how keys depend on each other.
#pragma once
#include <string>
#include <vector>

#include "lib/config/settings.h"

namespace scatterlm {

/// A key or group without effect.
struct Ignored {
  std::string path;
  std::string cause;  ///< the key whose value takes the effect away
  std::string reason;

  bool covers(const std::string& key) const { return key == path || key.starts_with(path + "."); }
};

/// Keys that a run with this configuration never looks at. Setting one is an error, and a dump leaves them out.
std::vector<Ignored> ignored_keys(const Config& config);

/// Throws Error for the first contradiction, at the place of the setting that completed it; `origin` stands for keys that
/// nobody set.
void check_config(const Config& config, const Settings& settings, const std::string& origin);

}  // namespace scatterlm

// Evidence files: figures with where they come from (CONTRIBUTING.md, "Evidence").
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "lib/bench/machine.h"
#include "lib/util/version/version.h"

namespace scatterlm::bench {

/// Throws Error if the binary was built from files that git's index does not hold: its figures belong to no version.
void require_clean(const SourceHash& sources);

/// The whole file; null stands for what a CPU does not have.
nlohmann::ordered_json evidence(const std::string& bench, const Machine& machine, const std::string& command,
                                const SourceHash& sources, nlohmann::ordered_json rows);

}  // namespace scatterlm::bench

// Evidence files: figures with where they come from (docs/benchmarks.md).
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "lib/bench/machine.h"
#include "lib/util/version/version.h"

namespace scatterlm::bench {

/// Before minutes of measuring for the file `json`: throws Error if the binary was built from files that git's index does not
/// hold (its figures belong to no version) or if there is no such folder.
void require_evidence(const std::string& json, const SourceHash& sources);

/// The whole file; null stands for what a CPU does not have.
nlohmann::ordered_json evidence(const std::string& bench, const Machine& machine, const std::string& command,
                                const SourceHash& sources, nlohmann::ordered_json rows);

}  // namespace scatterlm::bench

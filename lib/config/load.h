// From files and --set options to a checked Config, and back to YAML.
#pragma once
#include <string>
#include <vector>

#include "lib/config/config.h"

namespace scatterlm {

/// Reads `path`, applies `sets` ("a.b=c", later wins, "a.b=null" takes a key back) and checks everything that needs no device
/// and no data. The number of layers and the name of the run are filled in. Throws Error (exit code 2), one line: `file:line:
/// key 'path': got ..., must be ...`, with `--set a.b=c` in place of file:line for a value from there.
Config load_config(const std::string& path, const std::vector<std::string>& sets = {});

/// The same from text; `origin` stands for the file name in messages.
Config parse_config(const std::string& text, const std::string& origin, const std::vector<std::string>& sets = {});

/// Every key with its value, as YAML that load_config reads back to the same Config. Keys that the run would ignore are left
/// out.
std::string dump_config(const Config& config);

/// Per key: path = default, type and allowed values, help. For `scatterlm config keys`.
std::string describe_keys();

/// Steps of the whole run. A budget in tokens is rounded down to whole steps.
int64_t total_steps(const TrainConfig& config);

}  // namespace scatterlm

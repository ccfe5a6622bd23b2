// From files and --set options to a checked Config, and back to YAML.
#pragma once
#include <string>
#include <vector>

#include "lib/config/config.h"

namespace scatterlm {

/// Reads `path`, applies `sets` ("a.b=c", later wins) and checks everything that needs no device and no data.
/// Throws Error (exit code 2), one line, `file:line: key 'path': value ...: what is allowed`.
Config load_config(const std::string& path, const std::vector<std::string>& sets = {});

/// The same from text; `origin` stands for the file name in messages.
Config parse_config(const std::string& text, const std::string& origin, const std::vector<std::string>& sets = {});

/// Every key with its value, as YAML that load_config reads back to the same Config (keys that the run would ignore are left out).
std::string dump_config(const Config& config);

/// One line per key: path, type, default, allowed values, help. For `scatterlm config keys`.
std::string describe_keys();

/// Steps of the whole run, from steps or tokens.
int64_t total_steps(const TrainConfig& config);

}  // namespace scatterlm

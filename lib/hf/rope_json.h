// The rotary embedding in config.json: `rope_theta` and `rope_scaling` (transformers 4) or `rope_parameters` (5).
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lib/config/model_config.h"
#include "lib/hf/family.h"

namespace scatterlm::hf {

/// A key of ours, the key of config.json that gives it, and its value.
struct JsonSetting {
  std::string path, key;
  nlohmann::json value;
};

/// `rope_parameters` counts where both are given. Throws Error "WHERE: ..." for types of scaling that lib/nn/rope_scaling.h
/// does not have.
std::vector<JsonSetting> read_rope(const nlohmann::json& config, const Family& family, const std::string& where);

/// Writes both forms: each version reads only its own.
void write_rope(const ModelConfig& model, const Family& family, nlohmann::ordered_json& config);

}  // namespace scatterlm::hf

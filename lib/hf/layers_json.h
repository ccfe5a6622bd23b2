// Kinds of layers in config.json: sliding windows, and which layers have experts.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "lib/config/model_config.h"
#include "lib/hf/family.h"

namespace scatterlm::hf {

struct JsonLayers {
  std::string pattern;    ///< as in model.layers
  nlohmann::json window;  ///< null: none
};

/// Throws Error "WHERE: ..." for lists of another length or of something else than layers, and for more layers than a model may
/// have.
JsonLayers read_layers(const nlohmann::json& config, const Family& family, const std::string& where);

void write_layers(const ModelConfig& model, const Family& family, nlohmann::ordered_json& config);

/// The kinds with equal neighbours joined: "gqa+dense, gqa+moe*3".
std::string layer_pattern(const std::vector<LayerKind>& kinds);

}  // namespace scatterlm::hf

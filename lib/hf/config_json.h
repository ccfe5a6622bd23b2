// config.json of a Hugging Face model <-> our configuration.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "lib/config/config.h"
#include "lib/hf/family.h"

namespace scatterlm::hf {

struct ConfigJson {
  const Family* family = nullptr;
  Config config;                     ///< checked; run.name, data.train and the training budget are placeholders
  std::vector<std::string> unknown;  ///< keys of config.json that nothing here knows
};

/// Throws Error "WHERE: ..." for text that is not the config.json of a known family, and for values that this program does not
/// take.
ConfigJson read_config_json(std::string_view text, const std::string& where);

/// The model as `family` writes it. What the family cannot hold is lost; check_holds() finds it.
nlohmann::ordered_json write_config_json(const Config& config, const Family& family, std::string_view dtype);

/// Takes from `imported`, the config.json that the weights once came with, what our configuration does not hold: bos_token_id,
/// pad_token_id, every eos_token_id if data.eot_token is still the first of them, and max_position_embeddings where `written`
/// has less.
void keep_imported(const nlohmann::json& imported, const Config& config, nlohmann::ordered_json& written);

/// Keys of the model whose value the family cannot hold: "model.router.score is sigmoid, would be softmax".
std::vector<std::string> cannot_hold(const Config& config, const Family& family);

/// The family that holds the model: the one named, otherwise `preferred` if it does, otherwise the first that does. Throws
/// Error "WHERE: ..." with the keys in the way, of the family named or of the one with the fewest.
const Family& choose_family(const Config& config, const std::string& named, const std::string& preferred,
                            const std::string& where);

}  // namespace scatterlm::hf

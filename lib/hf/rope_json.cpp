#include "lib/hf/rope_json.h"

#include <cmath>

#include "lib/io/json.h"
#include "lib/util/error.h"

namespace scatterlm::hf {
namespace {

using nlohmann::json;

constexpr const char* kScaling = "model.rope_scaling.";

/// Null where the key is absent or null.
json value_of(const json& object, const char* key) { return object.is_object() ? object.value(key, json()) : json(); }

std::string theta_path(const Family& family) {
  return family.attention == AttentionKind::kMoa ? "model.moa.rope_theta" : "model.attention.rope_theta";
}

/// YaRN's factor on queries and keys for one of its two scales.
double yarn_magnitude(double factor, double scale) { return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1; }

/// Collects the settings of one kind of scaling from its object.
struct RopeReader {
  const json& parameters;
  std::string key, where;
  std::vector<JsonSetting> settings;

  void add(const char* name, json value) {
    settings.push_back({std::string(kScaling) + name, key + "." + name, std::move(value)});
  }
  void require(const char* name) {
    const json value = value_of(parameters, name);
    if (value.is_null()) fail_user("{}: '{}.{}' is missing", where, key, name);
    add(name, value);
  }
  void optional(const char* name) {
    if (const json value = value_of(parameters, name); !value.is_null()) add(name, value);
  }

  void read_yarn(const json& config) {
    require("factor");
    const json length = value_of(parameters, "original_max_position_embeddings");
    add("original_max_position_embeddings", length.is_null() ? value_of(config, "max_position_embeddings") : length);
    optional("beta_fast");
    optional("beta_slow");
    optional("attention_factor");
    const json first = value_of(parameters, "mscale"), second = value_of(parameters, "mscale_all_dim");
    if (value_of(parameters, "attention_factor").is_null() && first.is_number() && second.is_number() && first != 0 &&
        second != 0) {
      const double factor = JsonFields{parameters, where}.number("factor");
      add("attention_factor", yarn_magnitude(factor, first.get<double>()) / yarn_magnitude(factor, second.get<double>()));
    }
    const json truncate = value_of(parameters, "truncate");
    if (!truncate.is_null() && truncate != true) fail_user("{}: '{}.truncate' must be true", where, key);
  }
};

}  // namespace

std::vector<JsonSetting> read_rope(const json& config, const Family& family, const std::string& where) {
  const char* key = value_of(config, "rope_parameters").is_null() ? "rope_scaling" : "rope_parameters";
  const json parameters = value_of(config, key);
  if (!parameters.is_null() && !parameters.is_object()) fail_user("{}: '{}' is not an object", where, key);
  RopeReader reader{parameters, key, where, {}};

  json theta = value_of(parameters, "rope_theta");
  if (theta.is_null()) theta = value_of(config, "rope_theta");
  if (theta.is_null()) theta = json::parse(family.rope_theta_absent);
  reader.settings.push_back({theta_path(family), "rope_theta", theta});

  for (const json& holder : {config, parameters}) {
    const json partial = value_of(holder, "partial_rotary_factor");
    if (!partial.is_null() && partial != 1) fail_user("{}: 'partial_rotary_factor' must be 1", where);
  }
  json type = value_of(parameters, "rope_type");
  if (type.is_null()) type = value_of(parameters, "type");  // older files
  if (type.is_null() && parameters.is_object() && !parameters.empty() && !parameters.contains("rope_theta"))
    fail_user("{}: '{}' has no 'rope_type'", where, key);
  if (type.is_null() || type == "default") return reader.settings;
  if (type == "linear") {
    reader.require("factor");
  } else if (type == "llama3") {
    for (const char* name : {"factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"})
      reader.require(name);
  } else if (type == "yarn") {
    reader.read_yarn(config);
  } else {
    fail_user("{}: '{}.rope_type' is {}, must be one of default, linear, llama3, yarn", where, key,
              type.is_string() ? quote(type.get<std::string>()) : "no text");
  }
  reader.add("type", type);
  return reader.settings;
}

void write_rope(const ModelConfig& model, const Family& family, nlohmann::ordered_json& config) {
  const double theta = family.attention == AttentionKind::kMoa ? model.moa.rope_theta : model.attention.rope_theta;
  const RopeScalingConfig& rope = model.rope_scaling;
  nlohmann::ordered_json scaling;
  if (rope.type != RopeScaling::kNone) scaling = {{"rope_type", enum_name(rope.type)}, {"factor", rope.factor}};
  if (rope.type == RopeScaling::kLlama3 || rope.type == RopeScaling::kYarn)
    scaling["original_max_position_embeddings"] = rope.original_max_position_embeddings;
  if (rope.type == RopeScaling::kLlama3) {
    scaling["low_freq_factor"] = rope.low_freq_factor;
    scaling["high_freq_factor"] = rope.high_freq_factor;
  }
  if (rope.type == RopeScaling::kYarn) {
    scaling["beta_fast"] = rope.beta_fast;
    scaling["beta_slow"] = rope.beta_slow;
    if (rope.attention_factor) scaling["attention_factor"] = *rope.attention_factor;
  }
  config["rope_theta"] = theta;
  config["rope_scaling"] = scaling;
  auto parameters = scaling.is_null() ? nlohmann::ordered_json{{"rope_type", "default"}} : scaling;
  parameters["rope_theta"] = theta;
  config["rope_parameters"] = parameters;
}

}  // namespace scatterlm::hf

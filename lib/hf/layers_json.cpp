#include "lib/hf/layers_json.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/io/json.h"
#include "lib/util/error.h"

namespace scatterlm::hf {
namespace {

using nlohmann::json;

constexpr const char* kSliding = "sliding_attention";
constexpr const char* kFull = "full_attention";

json key_value(const json& config, const char* key, json absent) {
  const auto found = config.find(key);
  return found == config.end() || found->is_null() ? std::move(absent) : *found;
}

/// config.json's values that decide about the layers.
struct LayersReader {
  const json& config;
  const Family& family;
  JsonFields fields;
  int64_t count;

  LayersReader(const json& config, const Family& family, const std::string& where)
      : config(config), family(family), fields{config, where}, count(fields.count("num_hidden_layers")) {
    if (count < 1 || count > kMaxLayers)
      fail_user("{}: 'num_hidden_layers' is {}, must be an integer from 1 to {}", where, count, kMaxLayers);
  }

  json window() const {
    if (family.windows == Windows::kNone) return {};
    if (family.windows == Windows::kAllLayers) return config.value("sliding_window", json::parse(family.window_absent));
    return key_value(config, "use_sliding_window", false) == true ? config.value("sliding_window", json(4096))
                                                                  : json();  // a null of the file means none
  }

  /// Whether layer `i` has the window, in a family with a list of types.
  bool is_sliding(int64_t i) const {
    const auto found = config.find("layer_types");
    if (found == config.end() || found->is_null())
      return i >= fields.as_count(key_value(config, "max_window_layers", 28), "max_window_layers");
    const json& types = *found;
    if (!types.is_array() || std::ssize(types) != count)
      fail_user("{}: 'layer_types' is not a list of {} layers", fields.where, count);
    const json& type = types[static_cast<size_t>(i)];
    if (type != kSliding && type != kFull)
      fail_user("{}: 'layer_types' holds something else than \"{}\" and \"{}\"", fields.where, kFull, kSliding);
    return type == kSliding;
  }

  /// Indices of layers without experts, in a family that lists them.
  std::vector<int64_t> dense_layers() const {
    std::vector<int64_t> dense;
    const json list = key_value(config, "mlp_only_layers", json::array());
    if (!list.is_array()) fail_user("{}: 'mlp_only_layers' is not a list", fields.where);
    for (const json& index : list) dense.push_back(fields.as_count(index, "mlp_only_layers"));
    const int64_t step = fields.as_count(key_value(config, "decoder_sparse_step", 1), "decoder_sparse_step");
    if (step < 1) fail_user("{}: 'decoder_sparse_step' is 0, must be from 1 on", fields.where);
    for (int64_t i = 0; i < count; i++) {
      if ((i + 1) % step != 0) dense.push_back(i);
    }
    std::ranges::sort(dense);
    return dense;
  }
};

}  // namespace

std::string layer_pattern(const std::vector<LayerKind>& kinds) {
  std::string pattern;
  for (size_t i = 0; i < kinds.size();) {
    size_t end = i;
    while (end < kinds.size() && kinds[end] == kinds[i]) end++;
    pattern += fmt::format("{}{}+{}", i == 0 ? "" : ", ", kAttentionKinds[static_cast<int>(kinds[i].attention)].name,
                           kMlpKinds[static_cast<int>(kinds[i].mlp)].name);
    if (end - i > 1) pattern += fmt::format("*{}", end - i);
    i = end;
  }
  return pattern;
}

JsonLayers read_layers(const json& config, const Family& family, const std::string& where) {
  const LayersReader reader(config, family, where);
  const json window = reader.window();
  const auto dense = family.mlp_layers == MlpLayers::kMixed ? reader.dense_layers() : std::vector<int64_t>();
  const MlpKind mlp = family.mlp_layers == MlpLayers::kDense ? MlpKind::kDense : MlpKind::kMoe;
  std::vector<LayerKind> kinds;
  for (int64_t i = 0; i < reader.count; i++) {
    const bool sliding = !window.is_null() && (family.windows == Windows::kAllLayers || reader.is_sliding(i));
    kinds.push_back({.attention = sliding ? AttentionKind::kSwa : family.attention,
                     .mlp = std::ranges::binary_search(dense, i) ? MlpKind::kDense : mlp});
  }
  const bool any = std::ranges::any_of(kinds, [](LayerKind kind) { return kind.attention == AttentionKind::kSwa; });
  return {layer_pattern(kinds), any ? window : json()};
}

void write_layers(const ModelConfig& model, const Family& family, nlohmann::ordered_json& config) {
  const auto kinds = model.layer_kinds();
  const auto is_sliding = [](LayerKind kind) { return kind.attention == AttentionKind::kSwa; };
  const bool any = std::ranges::any_of(kinds, is_sliding);
  if (family.windows != Windows::kNone)
    config["sliding_window"] = any ? nlohmann::ordered_json(model.attention.window) : nlohmann::ordered_json();
  if (family.windows == Windows::kLayerTypes) {
    config["use_sliding_window"] = any;
    config["max_window_layers"] = std::ranges::find_if(kinds, is_sliding) - kinds.begin();
    auto& types = config["layer_types"] = nlohmann::ordered_json::array();
    for (const LayerKind kind : kinds) types.push_back(is_sliding(kind) ? kSliding : kFull);
  }
  if (family.mlp_layers == MlpLayers::kMixed) {
    config["decoder_sparse_step"] = 1;
    auto& dense = config["mlp_only_layers"] = nlohmann::ordered_json::array();
    for (size_t i = 0; i < kinds.size(); i++) {
      if (kinds[i].mlp == MlpKind::kDense) dense.push_back(i);
    }
  }
}

}  // namespace scatterlm::hf

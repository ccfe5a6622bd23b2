#include "lib/hf/config_json.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "lib/config/check.h"
#include "lib/config/difference.h"
#include "lib/config/load.h"
#include "lib/config/reader.h"
#include "lib/hf/layers_json.h"
#include "lib/hf/rope_json.h"
#include "lib/io/json.h"
#include "lib/util/error.h"

namespace scatterlm::hf {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

/// Keys that say nothing about what the model computes, and those of the losses of transformers' own training.
constexpr std::string_view kSilentKeys[] = {"_name_or_path",
                                            "architectures",
                                            "model_type",
                                            "transformers_version",
                                            "torch_dtype",
                                            "dtype",
                                            "use_cache",
                                            "bos_token_id",
                                            "eos_token_id",
                                            "pad_token_id",
                                            "attention_dropout",
                                            "router_jitter_noise",
                                            "aux_loss_coef",
                                            "router_aux_loss_coef",
                                            "output_router_logits",
                                            "pretraining_tp",
                                            "sliding_window",
                                            "layer_types",
                                            "max_window_layers",
                                            "use_sliding_window",
                                            "decoder_sparse_step",
                                            "mlp_only_layers",
                                            "rope_theta",
                                            "rope_scaling",
                                            "rope_parameters",
                                            "head_dim",
                                            "num_attention_heads",
                                            "rotary_dim",
                                            "intermediate_size",
                                            "partial_rotary_factor",
                                            "_attn_implementation_autoset",
                                            "layers_block_type",
                                            "num_local_experts",
                                            "num_experts",
                                            "position_embedding_type"};

/// The key under either of its two names.
const json* find_value(const json& config, const std::string& key) {
  auto found = config.find(key);
  if (found == config.end() && key == "num_experts") found = config.find("num_local_experts");  // transformers 5 saves this one
  if (found == config.end() && key == "num_local_experts") found = config.find("num_experts");
  return found == config.end() || found->is_null() ? nullptr : &*found;
}

/// The token that ends a document: the first where there are several; null without one in the vocabulary.
json first_end_of_text(const json& config) {
  const json* token = find_value(config, "eos_token_id");
  if (token && token->is_array()) token = token->empty() ? nullptr : &token->front();
  const json* vocabulary = find_value(config, "vocab_size");
  const bool known = token && token->is_number_unsigned() && vocabulary && vocabulary->is_number() && *token < *vocabulary;
  return known ? *token : json();
}

/// Settings out of config.json, each with the place "WHERE: 'key'".
class SettingsReader {
 public:
  SettingsReader(const json& config, const Family& family, const std::string& where)
      : config_(config), family_(family), where_(where) {}

  Settings read() {
    for (const Constant& constant : family_.ours) set_yaml(constant.key, "", constant.value);
    for (const SameKey& key : family_.keys) set(key.ours, key.theirs, value_of(key));
    for (const auto& [path, key, value] : read_rope(config_, family_, where_)) set(path, key, value);
    const auto [pattern, window] = read_layers(config_, family_, where_);
    set_yaml("model.layers", "", "\"" + pattern + "\"");
    if (!window.is_null()) set("model.attention.window", "sliding_window", window);
    for (const Constant& constant : family_.theirs) require(constant);
    read_head_dim();
    read_activation();
    read_end_of_text();
    return std::move(settings_);
  }

  const std::set<std::string>& read_keys() const { return known_; }

 private:
  json value_of(const SameKey& key) {
    if (const json* value = find_value(config_, key.theirs)) {
      if (key.zero == Zero::kRefused && *value == 0)
        fail_user("{}: '{}' is 0, a {} model needs it above 0", where_, key.theirs, family_.model_type);
      return *value;
    }
    if (!key.absent) fail_user("{}: '{}' is missing", where_, key.theirs);
    if (key.absent[0] != '=') return json::parse(key.absent);
    const json* other = find_value(config_, key.absent + 1);
    return other ? *other : json();
  }

  void require(const Constant& constant) {
    known_.insert(constant.key);
    const json* value = find_value(config_, constant.key);
    if (value && *value != json::parse(constant.value))
      fail_user("{}: '{}' is {}, of {} only {} is supported", where_, constant.key, one_line(value->dump()), family_.model_type,
                constant.value);
  }

  /// The width of one head, where no key has it.
  json derived_head_dim() const {
    const json *hidden = find_value(config_, "hidden_size"), *heads = find_value(config_, "num_attention_heads");
    const bool whole = hidden && heads && hidden->is_number_unsigned() && heads->is_number_unsigned() && *heads != 0;
    if (!whole) fail_user("{}: 'hidden_size' and 'num_attention_heads' are not counts from 1 on", where_);
    if (hidden->get<uint64_t>() % heads->get<uint64_t>() != 0)
      fail_user("{}: 'hidden_size' is no multiple of 'num_attention_heads'", where_);
    return hidden->get<uint64_t>() / heads->get<uint64_t>();
  }

  void read_head_dim() {
    const char* group = family_.attention == AttentionKind::kMoa ? "model.moa.head_dim" : "model.attention.head_dim";
    if (family_.head_dim) known_.insert(family_.head_dim);
    const json* given = family_.head_dim ? find_value(config_, family_.head_dim) : nullptr;
    const bool derived = !given && *family_.head_dim_absent == '\0';
    const json* other = family_.head_dim ? nullptr : find_value(config_, "head_dim");
    if (other && *other != derived_head_dim())
      fail_user("{}: 'head_dim' is {}, must be {}, 'hidden_size' by 'num_attention_heads'", where_, one_line(other->dump()),
                derived_head_dim().dump());
    set(group, family_.head_dim ? family_.head_dim : "hidden_size",
        given     ? *given
        : derived ? derived_head_dim()
                  : json::parse(family_.head_dim_absent));
  }

  void read_activation() {
    known_.insert(family_.activation);
    const json* name = find_value(config_, family_.activation);
    for (const auto& [theirs, ours] : kActivationNames) {
      if (name ? *name != theirs : ours != Activation::kSwiglu) continue;
      for (const char* path : {"model.dense.activation", "model.moe.activation"})
        set_yaml(path, family_.activation, enum_name(ours));
      return;
    }
    fail_user("{}: '{}' is {}, must be silu, gelu_pytorch_tanh or relu", where_, family_.activation, one_line(name->dump()));
  }

  void read_end_of_text() {
    if (const json token = first_end_of_text(config_); !token.is_null()) set("data.eot_token", "eos_token_id", token);
  }

  void set(const std::string& path, const std::string& key, const json& value) {
    if (value.is_structured()) fail_user("{}: '{}' is a list or an object, must be one value", where_, key);
    set_yaml(path, key, value.dump());
  }
  /// `key` is empty where no single key of config.json gives the value.
  void set_yaml(const std::string& path, const std::string& key, const std::string& yaml) {
    known_.insert(key);
    const std::string place = key.empty() ? where_ : fmt::format("{}: '{}'", where_, key);
    settings_[path] = {.path = path, .source = {.name = place}, .mark = YAML::Mark::null_mark(), .value = YAML::Load(yaml)};
  }

  const json& config_;
  const Family& family_;
  const std::string& where_;
  Settings settings_;
  std::set<std::string> known_;
};

/// A configuration that says the same in one form: what only training reads has its default, and what follows is written out.
Config canonical(Config config) {
  const Config defaults;
  ModelConfig& model = config.model;
  RouterConfig& router = model.router;
  if (router.balance == Balance::kNone) router.balance = Balance::kAux;
  router.aux_loss_coef = defaults.model.router.aux_loss_coef;
  router.z_loss_coef = defaults.model.router.z_loss_coef;
  router.rounding = defaults.model.router.rounding;
  router.routed_scaling_factor = 1;  // export multiplies it into the experts
  if (router.score == RouterScore::kSoftmax && router.norm_topk_prob) router.topk_before_softmax = false;  // the same gates
  model.initializer_range = defaults.model.initializer_range;
  if (!model.attention.multiplier) model.attention.multiplier = 1 / std::sqrt(static_cast<double>(model.attention.head_dim));
  RopeScalingConfig& rope = model.rope_scaling;
  if (rope.type == RopeScaling::kYarn && !rope.attention_factor) rope.attention_factor = 0.1 * std::log(rope.factor) + 1;
  model.layers = layer_pattern(model.layer_kinds());
  return config;
}

/// The value of a key as JSON; null for "auto" and names.
ordered_json value_of_ours(const std::vector<KeyInfo>& keys, const char* path) {
  const KeyInfo* key = find_key(keys, path);
  if (!key) fail("[write_config_json] no key is named {}", path);
  return ordered_json::parse(key->value, nullptr, /*allow_exceptions=*/false);
}

Config checked(const Settings& settings, const std::string& where) {
  Config config;
  Reader reader(settings);
  config.visit(reader);
  config.run.name = "imported";
  config.data.train = {{.path = "data/train.bin"}};
  config.train.steps = 1000;
  const int64_t length = config.train.sequence_length;
  config.train.global_batch_tokens = length * std::max<int64_t>(1, TrainConfig().global_batch_tokens / length);
  // The dump leaves out what the layers ignore, as a file must.
  return parse_config(dump_config(config), where + ", as a configuration of this program");
}

}  // namespace

ConfigJson read_config_json(std::string_view text, const std::string& where) {
  const json config = parse_json(text, where);
  if (!config.is_object()) fail_user("{}: not an object of keys", where);
  const Family& family = find_family(JsonFields{config, where}.text("model_type"), where);
  if (config.contains("quantization_config"))
    fail_user("{}: 'quantization_config': quantised weights are not supported", where);
  SettingsReader reader(config, family, where);
  ConfigJson result{.family = &family, .config = checked(reader.read(), where), .unknown = {}};
  for (const auto& [key, value] : config.items()) {
    if (!reader.read_keys().count(key) && std::ranges::find(kSilentKeys, key) == std::end(kSilentKeys))
      result.unknown.push_back(key);
  }
  return result;
}

ordered_json write_config_json(const Config& config, const Family& family, std::string_view dtype) {
  const ModelConfig& model = config.model;
  ordered_json out{{"architectures", {family.architecture}}, {"model_type", family.model_type}};
  const auto keys = list_keys(canonical(config));
  for (const SameKey& key : family.keys) {
    const auto value = value_of_ours(keys, key.ours);
    if (key.zero == Zero::kRefused && value == 0)
      continue;  // a model whose layers do not use it; for others the difference shows
    out[key.theirs] = key.zero == Zero::kNull && value == 0 ? ordered_json() : value;
  }
  out["initializer_range"] = model.initializer_range;
  for (const Constant& constant : family.theirs) out[constant.key] = ordered_json::parse(constant.value);
  const bool moa = family.attention == AttentionKind::kMoa;
  if (family.head_dim) out[family.head_dim] = moa ? model.moa.head_dim : model.attention.head_dim;
  const auto kinds = model.layer_kinds();
  const bool experts = std::ranges::any_of(kinds, [](LayerKind kind) { return kind.mlp == MlpKind::kMoe; });
  const Activation activation = experts ? model.moe.activation : model.dense.activation;
  for (const auto& [theirs, ours] : kActivationNames) {
    if (ours == activation) out[family.activation] = theirs;
  }
  write_layers(model, family, out);
  write_rope(model, family, out);
  out["bos_token_id"] = nullptr;
  out["eos_token_id"] = config.data.eot_token < 0 ? ordered_json() : ordered_json(config.data.eot_token);
  out["pad_token_id"] = nullptr;
  out["dtype"] = dtype;        // transformers 5
  out["torch_dtype"] = dtype;  // transformers 4
  out["use_cache"] = true;
  return out;
}

void keep_imported(const json& imported, const Config& config, ordered_json& written) {
  const auto keep = [&](const char* key) {
    if (imported.contains(key))
      written[key] = imported[key];
    else
      written.erase(key);  // where it is absent a family has a value of its own
  };
  keep("bos_token_id");
  keep("pad_token_id");
  const json end = first_end_of_text(imported);
  if (end.is_null() ? config.data.eot_token < 0 : end == config.data.eot_token) keep("eos_token_id");
  const json* length = find_value(imported, "max_position_embeddings");
  if (length && length->is_number_unsigned() && *length > config.train.sequence_length) keep("max_position_embeddings");
}

std::vector<std::string> cannot_hold(const Config& config, const Family& family) {
  const Config ours = canonical(config);
  const auto written = write_config_json(config, family, "float32").dump();
  std::vector<std::string> reasons;
  Config theirs;
  try {
    theirs = canonical(read_config_json(written, "config.json").config);
  } catch (const Error& error) {  // sizes that the family derives from others
    return {error.what()};
  }
  const auto ignored = ignored_keys(ours);
  for (const auto& [key, held, lost, on_resume] : differences(ours, theirs)) {
    const bool bias = key.ends_with(".output_bias") && held == "false";  // zeros are written
    const bool unused = std::ranges::any_of(ignored, [&, &key = key](const Ignored& other) { return other.covers(key); });
    if (key.starts_with("model.") && !bias && !unused) reasons.push_back(fmt::format("{} is {}, would be {}", key, held, lost));
  }
  return reasons;
}

const Family& choose_family(const Config& config, const std::string& named, const std::string& preferred,
                            const std::string& where) {
  const Family* nearest = nullptr;
  std::vector<std::string> in_the_way;
  const auto holds = [&](const Family& family) {
    const auto reasons = cannot_hold(config, family);
    if (!nearest || reasons.size() < in_the_way.size()) {
      nearest = &family;
      in_the_way = reasons;
    }
    return reasons.empty();
  };
  if (!named.empty()) {
    const Family& family = find_family(named, "--family");
    if (holds(family)) return family;
  } else {
    for (const Family& family : families()) {
      if (family.model_type == preferred && holds(family)) return family;
    }
    for (const Family& family : families()) {
      if (holds(family)) return family;
    }
  }
  fail_user(
      "{}: {} cannot hold this model: {}", where,
      named.empty() ? fmt::format("none of the families that export knows; the nearest, {},", nearest->model_type) : named,
      fmt::join(in_the_way, "; "));
}

}  // namespace scatterlm::hf

// What the model families of Hugging Face's transformers call the keys and tensors of a model: one table per family.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/config/model_config.h"

namespace scatterlm::hf {

/// What a 0 of ours means to them.
enum class Zero { kZero, kNull, kRefused };

/// A key of config.json with the meaning of one of ours.
struct SameKey {
  const char* theirs;
  const char* ours;    ///< path: "model.hidden_size"
  const char* absent;  ///< value where config.json lacks the key or has null; "=KEY": that of another one; null: an error
  Zero zero = Zero::kZero;
};

/// A key of config.json or ours, and its value as YAML.
struct Constant {
  const char* key;
  const char* value;
};

/// A tensor of ours and the tensors of theirs that it holds one after the other in memory; in the order of the experts, with
/// all tensors of one together, where their names have "{e}". Names of layers are those behind "layers.N.".
struct TensorRule {
  const char* ours;
  std::vector<const char*> theirs;
};

enum class MlpLayers { kDense, kMoe, kMixed };  ///< mixed: by decoder_sparse_step and mlp_only_layers
enum class Windows { kNone, kAllLayers, kLayerTypes };

struct Family {
  std::string_view model_type, architecture;
  AttentionKind attention = AttentionKind::kGqa;  ///< of layers without a window
  MlpLayers mlp_layers = MlpLayers::kDense;
  Windows windows = Windows::kNone;
  const char* window_absent = "null";       ///< sliding_window where config.json lacks it
  const char* head_dim = "head_dim";        ///< key; null: hidden_size / num_attention_heads
  const char* head_dim_absent = "";         ///< where config.json lacks it; empty: hidden_size / num_attention_heads
  const char* rope_theta_absent = "10000";  ///< likewise
  const char* activation = "hidden_act";    ///< key
  std::vector<SameKey> keys;
  std::vector<Constant> theirs;  ///< written, and refused with another value
  std::vector<Constant> ours;    ///< what the architecture has without a key
  std::vector<TensorRule> tensors;
};

/// In the order in which export tries them.
std::span<const Family> families();

/// Throws Error "WHERE: ..." for a model type that is not among them.
const Family& find_family(std::string_view model_type, const std::string& where);

/// Names of activations in config.json.
struct ActivationName {
  const char* theirs;
  Activation ours;
};
inline constexpr ActivationName kActivationNames[] = {
    {"silu", Activation::kSwiglu}, {"gelu_pytorch_tanh", Activation::kGeglu}, {"relu", Activation::kReglu}};

}  // namespace scatterlm::hf

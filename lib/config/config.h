// Every key of a configuration file: name, default, range and help stand here once. Reading, --set, the dump, `config keys`
// and "unknown key, did you mean" are visitors over these lists. Key names are Hugging Face's where it has one.
//
// A visitor has
//   v.key(name, field, help)                 any field;  Field = bool | int64_t | double | std::string | an enum of this file |
//   v.key(name, field, help, Range{lo, hi})  numbers         std::vector<int64_t|double|BlendEntry>
//   v.group(name, struct)                    a nested struct
#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace scatterlm {

/// Closed interval of allowed values.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
};

enum class Activation { kSwiglu, kGeglu, kReglu, kRelu2, kGelu };
enum class QkNorm { kNone, kHead, kFull };
enum class RouterScore { kSoftmax, kSigmoid };
enum class Balance { kAux, kBias, kNone };
enum class Schedule { kCosine, kLinear, kConstant, kWsd };
enum class TrainDtype { kAuto, kFloat32, kBfloat16 };
enum class StateDtype { kFloat32, kBfloat16 };
enum class DeviceChoice { kAuto, kCpu, kCuda };
enum class Toggle { kAuto, kTrue, kFalse };
enum class TokenWidth { kAuto, kUint16, kUint32 };
enum class AttentionKind { kGqa, kMoa };
enum class MlpKind { kDense, kMoe };

/// YAML spellings, indexed by the enum's value.
template <class E>
struct EnumNames;
#define SCATTERLM_ENUM(E, ...) \
  template <>                  \
  struct EnumNames<E> {        \
    static constexpr const char* values[] = {__VA_ARGS__}; \
  }
SCATTERLM_ENUM(Activation, "swiglu", "geglu", "reglu", "relu2", "gelu");
SCATTERLM_ENUM(QkNorm, "none", "head", "full");
SCATTERLM_ENUM(RouterScore, "softmax", "sigmoid");
SCATTERLM_ENUM(Balance, "aux", "bias", "none");
SCATTERLM_ENUM(Schedule, "cosine", "linear", "constant", "wsd");
SCATTERLM_ENUM(TrainDtype, "auto", "float32", "bfloat16");
SCATTERLM_ENUM(StateDtype, "float32", "bfloat16");
SCATTERLM_ENUM(DeviceChoice, "auto", "cpu", "cuda");
SCATTERLM_ENUM(Toggle, "auto", "true", "false");
SCATTERLM_ENUM(TokenWidth, "auto", "uint16", "uint32");
SCATTERLM_ENUM(AttentionKind, "gqa", "moa");
SCATTERLM_ENUM(MlpKind, "dense", "moe");
#undef SCATTERLM_ENUM

template <class E>
const char* enum_name(E value) {
  return EnumNames<E>::values[static_cast<int>(value)];
}

struct AttentionConfig {
  int64_t num_attention_heads = 4;
  int64_t num_key_value_heads = 4;
  int64_t head_dim = 32;
  double rope_theta = 10000;
  QkNorm qk_norm = QkNorm::kNone;
  bool bias = false;

  template <class V>
  void visit(V& v) {
    v.key("num_attention_heads", num_attention_heads, "query heads", Range{1, 1024});
    v.key("num_key_value_heads", num_key_value_heads, "key-value heads; divides num_attention_heads", Range{1, 1024});
    v.key("head_dim", head_dim, "width of one head; even", Range{2, 512});
    v.key("rope_theta", rope_theta, "base of the rotary embedding", Range{1, 1e12});
    v.key("qk_norm", qk_norm, "RMSNorm of queries and keys: per head, or over the whole projection");
    v.key("bias", bias, "bias on the q, k, v and output projections");
  }
};

struct MoaConfig {
  int64_t num_experts = 8;
  int64_t num_experts_per_tok = 2;
  int64_t num_key_value_heads = 2;
  int64_t head_dim = 32;
  double rope_theta = 10000;
  QkNorm qk_norm = QkNorm::kNone;

  template <class V>
  void visit(V& v) {
    v.key("num_experts", num_experts, "attention experts, each with its own query and output projection", Range{1, 4096});
    v.key("num_experts_per_tok", num_experts_per_tok, "experts of one token (top-k)", Range{1, 64});
    v.key("num_key_value_heads", num_key_value_heads,
          "key-value heads, shared by all experts; query heads = this * num_experts_per_tok", Range{1, 1024});
    v.key("head_dim", head_dim, "width of one head; even", Range{2, 512});
    v.key("rope_theta", rope_theta, "base of the rotary embedding", Range{1, 1e12});
    v.key("qk_norm", qk_norm, "RMSNorm of queries and keys: per head, or over the whole projection of one expert");
  }
};

struct DenseConfig {
  int64_t intermediate_size = 512;
  Activation activation = Activation::kSwiglu;

  template <class V>
  void visit(V& v) {
    v.key("intermediate_size", intermediate_size, "width of the MLP", Range{1, 1 << 20});
    v.key("activation", activation, "swiglu, geglu and reglu are gated; relu2 and gelu are not");
  }
};

struct MoeConfig {
  int64_t num_experts = 8;
  int64_t num_experts_per_tok = 2;
  int64_t moe_intermediate_size = 128;
  int64_t shared_intermediate_size = 0;
  Activation activation = Activation::kSwiglu;

  template <class V>
  void visit(V& v) {
    v.key("num_experts", num_experts, "MLP experts", Range{1, 4096});
    v.key("num_experts_per_tok", num_experts_per_tok, "experts of one token (top-k)", Range{1, 64});
    v.key("moe_intermediate_size", moe_intermediate_size, "width of one expert", Range{1, 1 << 20});
    v.key("shared_intermediate_size", shared_intermediate_size, "width of the expert that sees every token; 0 = none",
          Range{0, 1 << 20});
    v.key("activation", activation, "swiglu, geglu and reglu are gated; relu2 and gelu are not");
  }
};

/// reference: section "Router" of CONTRIBUTING.md gives the formulas.
struct RouterConfig {
  RouterScore score = RouterScore::kSoftmax;
  bool topk_before_softmax = false;
  bool norm_topk_prob = true;
  double routed_scaling_factor = 1.0;
  Balance balance = Balance::kAux;
  double aux_loss_coef = 0.01;
  double z_loss_coef = 0.001;
  double bias_update_rate = 0.001;

  template <class V>
  void visit(V& v) {
    v.key("score", score, "scores of the experts from the logits");
    v.key("topk_before_softmax", topk_before_softmax, "choose on the logits, then softmax over the chosen (needs score: softmax)");
    v.key("norm_topk_prob", norm_topk_prob, "gates of one token sum to 1");
    v.key("routed_scaling_factor", routed_scaling_factor, "factor on the gates", Range{0, 1000});
    v.key("balance", balance, "load balancing: Switch auxiliary loss, selection bias without a loss, or none");
    v.key("aux_loss_coef", aux_loss_coef, "coefficient of the auxiliary loss, which is 1 at perfect balance (balance: aux)",
          Range{0, 100});
    v.key("z_loss_coef", z_loss_coef, "coefficient of the mean squared logsumexp of the router logits", Range{0, 100});
    v.key("bias_update_rate", bias_update_rate, "step of the selection bias after each optimiser step (balance: bias)",
          Range{0, 1});
  }
};

/// Kinds of one layer.
struct LayerKind {
  AttentionKind attention = AttentionKind::kGqa;
  MlpKind mlp = MlpKind::kDense;
};

struct ModelConfig {
  int64_t vocab_size = 257;
  int64_t hidden_size = 128;
  int64_t num_hidden_layers = 4;
  std::string layers = "gqa+moe*4";
  double rms_norm_eps = 1e-5;
  double initializer_range = 0.02;
  bool tie_word_embeddings = true;
  AttentionConfig attention;
  MoaConfig moa;
  DenseConfig dense;
  MoeConfig moe;
  RouterConfig router;

  /// `layers` parsed: one entry per layer, num_hidden_layers of them. Throws Error on a bad pattern.
  std::vector<LayerKind> layer_kinds() const;

  template <class V>
  void visit(V& v) {
    v.key("vocab_size", vocab_size, "rows of the embedding; every token must be below it", Range{2, 1 << 24});
    v.key("hidden_size", hidden_size, "model width", Range{1, 1 << 20});
    v.key("num_hidden_layers", num_hidden_layers, "layers", Range{1, 4096});
    v.key("layers", layers, "kinds of the layers, attention+mlp: gqa or moa, dense or moe; `*n` repeats, `,` joins");
    v.key("rms_norm_eps", rms_norm_eps, "epsilon of every RMSNorm", Range{0, 1});
    v.key("initializer_range", initializer_range,
          "standard deviation of initial weights; projections into the residual stream get it / sqrt(2 * layers)", Range{0, 10});
    v.key("tie_word_embeddings", tie_word_embeddings, "the output head is the embedding");
    v.group("attention", attention);
    v.group("moa", moa);
    v.group("dense", dense);
    v.group("moe", moe);
    v.group("router", router);
  }
};

/// One source of a blend.
struct BlendEntry {
  std::string path;
  double weight = 1;

  template <class V>
  void visit(V& v) {
    v.key("path", path, "token file, shard pattern or Megatron prefix");
    v.key("weight", weight, "share of the samples, relative to the other entries", Range{0, 1e12});
  }
};

struct DataConfig {
  std::vector<BlendEntry> train;       // YAML: one path, a list of paths, or a list of {path, weight}
  std::vector<BlendEntry> validation;  // likewise
  TokenWidth raw_dtype = TokenWidth::kAuto;
  int64_t eot_token = -1;
  bool intra_document_masking = false;
  std::string tokenizer = "bytes";

  template <class V>
  void visit(V& v) {
    v.key("train", train, "token files to train on: a path, a list of paths, or a list of {path, weight}");
    v.key("validation", validation, "token files held out for evaluation");
    v.key("raw_dtype", raw_dtype, "width of tokens in files without a header");
    v.key("eot_token", eot_token, "token between documents; -1 = none", Range{-1, 1 << 24});
    v.key("intra_document_masking", intra_document_masking, "attention stays inside a document (needs boundaries)");
    v.key("tokenizer", tokenizer, "how text becomes tokens in generate: bytes");
  }
};

struct TrainConfig {
  int64_t seed = 1234;
  int64_t steps = 0;
  int64_t tokens = 0;
  int64_t sequence_length = 256;
  int64_t global_batch_tokens = 4096;
  int64_t micro_batch_size = 0;
  TrainDtype dtype = TrainDtype::kAuto;
  DeviceChoice device = DeviceChoice::kAuto;
  Toggle deterministic = Toggle::kAuto;
  int64_t threads = 0;
  int64_t eval_interval = 0;
  int64_t eval_tokens = 0;
  int64_t max_nonfinite_steps = 10;
  double max_minutes = 0;

  template <class V>
  void visit(V& v) {
    v.key("seed", seed, "seed of initial weights and sample order", Range{0, 9e15});
    v.key("steps", steps, "optimiser steps to train; or give tokens", Range{0, 1e12});
    v.key("tokens", tokens, "tokens to train; or give steps", Range{0, 1e16});
    v.key("sequence_length", sequence_length, "tokens of one sequence", Range{1, 1 << 24});
    v.key("global_batch_tokens", global_batch_tokens, "tokens of one optimiser step, over all ranks and micro-batches",
          Range{1, 1e12});
    v.key("micro_batch_size", micro_batch_size, "sequences of one forward pass; 0 = the whole batch of a rank", Range{0, 1 << 20});
    v.key("dtype", dtype, "weights and activations; auto: bfloat16 on a GPU, float32 on a CPU");
    v.key("device", device, "auto: a GPU if there is one");
    v.key("deterministic", deterministic, "same seed, same bits; auto: true on a CPU, false on a GPU");
    v.key("threads", threads, "CPU threads; 0 = all cores", Range{0, 1024});
    v.key("eval_interval", eval_interval, "steps between evaluations; 0 = only at the end", Range{0, 1e12});
    v.key("eval_tokens", eval_tokens, "tokens of one evaluation; 0 = the whole validation set", Range{0, 1e15});
    v.key("max_nonfinite_steps", max_nonfinite_steps, "stop after this many steps in a row with a loss or gradient that is not finite",
          Range{1, 1e9});
    v.key("max_minutes", max_minutes, "save and stop with exit code 75 after this time; 0 = no limit", Range{0, 1e9});
  }
};

struct OptimConfig {
  double lr = 1e-3;
  std::vector<double> betas = {0.9, 0.95};
  double eps = 1e-8;
  double weight_decay = 0.1;
  bool decay_embeddings = false;
  double clip_grad_norm = 1.0;
  Schedule schedule = Schedule::kCosine;
  int64_t warmup_steps = 0;
  int64_t decay_steps = 0;
  double min_lr_ratio = 0.1;
  StateDtype state_dtype = StateDtype::kFloat32;

  template <class V>
  void visit(V& v) {
    v.key("lr", lr, "peak learning rate", Range{0, 1e3});
    v.key("betas", betas, "AdamW's two decay rates", Range{0, 1});
    v.key("eps", eps, "AdamW's epsilon", Range{0, 1});
    v.key("weight_decay", weight_decay, "decoupled weight decay of matrices; norms and biases have none", Range{0, 10});
    v.key("decay_embeddings", decay_embeddings, "embeddings decay as well");
    v.key("clip_grad_norm", clip_grad_norm, "global gradient norm is scaled down to this; 0 = no clipping", Range{0, 1e9});
    v.key("schedule", schedule, "learning rate after the warm-up; wsd is constant, then linear over decay_steps");
    v.key("warmup_steps", warmup_steps, "steps of linear warm-up", Range{0, 1e12});
    v.key("decay_steps", decay_steps, "length of the final decay (schedule: wsd)", Range{0, 1e12});
    v.key("min_lr_ratio", min_lr_ratio, "final learning rate as a share of the peak", Range{0, 1});
    v.key("state_dtype", state_dtype, "moments and master weights; bfloat16 keeps no master copy (needs train.dtype: bfloat16)");
  }
};

struct CheckpointConfig {
  int64_t save_interval = 0;
  int64_t keep_last = 2;
  int64_t keep_every = 0;

  template <class V>
  void visit(V& v) {
    v.key("save_interval", save_interval, "steps between checkpoints; 0 = only at the end", Range{0, 1e12});
    v.key("keep_last", keep_last, "newest checkpoints to keep", Range{1, 1e6});
    v.key("keep_every", keep_every, "also keep those whose step is a multiple of this; 0 = none", Range{0, 1e12});
  }
};

struct RunConfig {
  std::string name = "";
  std::string dir = "runs";

  template <class V>
  void visit(V& v) {
    v.key("name", name, "folder of the run inside dir; empty = name of the configuration file");
    v.key("dir", dir, "where runs are kept");
  }
};

struct LogConfig {
  int64_t interval = 10;
  bool tensorboard = true;

  template <class V>
  void visit(V& v) {
    v.key("interval", interval, "steps between console lines and metrics", Range{1, 1e9});
    v.key("tensorboard", tensorboard, "write TensorBoard event files");
  }
};

struct Config {
  RunConfig run;
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimConfig optim;
  CheckpointConfig checkpoint;
  LogConfig log;

  template <class V>
  void visit(V& v) {
    v.group("run", run);
    v.group("model", model);
    v.group("data", data);
    v.group("train", train);
    v.group("optim", optim);
    v.group("checkpoint", checkpoint);
    v.group("log", log);
  }
};

/// True for the activations whose up projection has two halves, gate first.
constexpr bool is_gated(Activation a) {
  return a == Activation::kSwiglu || a == Activation::kGeglu || a == Activation::kReglu;
}

}  // namespace scatterlm

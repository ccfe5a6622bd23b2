#include "lib/config/check.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "lib/config/layers.h"
#include "lib/config/load.h"
#include "lib/util/error.h"

namespace scatterlm {
namespace {

class Checker {
 public:
  Checker(const Config& config, const Settings& settings, const std::string& origin)
      : config_(config), settings_(settings), origin_(origin) {}

  void run() const {
    check_layers();
    if (uses("model.attention")) check_attention();
    if (uses("model.moa")) check_moa();
    check_rope_scaling();
    if (uses("model.moe")) check_top_k("model.moe", config_.model.moe.num_experts_per_tok, config_.model.moe.num_experts);
    if (uses("model.router")) check_router();
    check_run();
    check_data();
    check_budget();
    check_batch();
    check_optim();
    check_log();
    check_ignored();
  }

 private:
  /// `keys` are those whose values contradict; the error stands at the one set last.
  void require(bool holds, std::initializer_list<const char*> keys, const std::string& text) const {
    if (holds) return;
    const Setting* last = nullptr;
    for (const char* key : keys) {
      const auto found = settings_.find(key);
      if (found != settings_.end() && (!last || found->second.is_after(*last))) last = &found->second;
    }
    fail_user("{}: {}", last ? last->place() : origin_, text);
  }

  bool uses(const std::string& key) const {
    return std::none_of(ignored_.begin(), ignored_.end(), [&](const Ignored& ignored) { return ignored.covers(key); });
  }

  void check_layers() const {
    const size_t length = parse_layers(config_.model.layers).size();
    require(std::cmp_equal(length, config_.model.num_hidden_layers), {"model.layers", "model.num_hidden_layers"},
            fmt::format("'model.layers: {}' has {} layers, 'model.num_hidden_layers: {}' must be the same or left out",
                        one_line(config_.model.layers), length, config_.model.num_hidden_layers));
  }

  void check_attention() const {
    const AttentionConfig& attention = config_.model.attention;
    check_head_dim("model.attention.head_dim", attention.head_dim);
    require(
        attention.num_attention_heads % attention.num_key_value_heads == 0,
        {"model.attention.num_attention_heads", "model.attention.num_key_value_heads"},
        fmt::format("'model.attention.num_attention_heads: {}' must be a multiple of 'model.attention.num_key_value_heads: {}'",
                    attention.num_attention_heads, attention.num_key_value_heads));
    require(!attention.bias || !attention.qkv_bias, {"model.attention.bias", "model.attention.qkv_bias"},
            "'model.attention.bias: true' already has what 'model.attention.qkv_bias: true' asks for; remove one of them");
  }

  void check_rope_scaling() const {
    const RopeScalingConfig& rope = config_.model.rope_scaling;
    require(rope.type != RopeScaling::kLlama3 || rope.low_freq_factor < rope.high_freq_factor,
            {"model.rope_scaling.low_freq_factor", "model.rope_scaling.high_freq_factor"},
            fmt::format("'model.rope_scaling.low_freq_factor: {}' must be below 'model.rope_scaling.high_freq_factor: {}'",
                        rope.low_freq_factor, rope.high_freq_factor));
    require(rope.type != RopeScaling::kYarn || rope.beta_slow < rope.beta_fast,
            {"model.rope_scaling.beta_slow", "model.rope_scaling.beta_fast"},
            fmt::format("'model.rope_scaling.beta_slow: {}' must be below 'model.rope_scaling.beta_fast: {}'", rope.beta_slow,
                        rope.beta_fast));
  }

  void check_moa() const {
    check_head_dim("model.moa.head_dim", config_.model.moa.head_dim);
    check_top_k("model.moa", config_.model.moa.num_experts_per_tok, config_.model.moa.num_experts);
  }

  void check_head_dim(const char* key, int64_t head_dim) const {
    require(head_dim % 2 == 0, {key}, fmt::format("'{}: {}' must be even: rotary embedding turns pairs", key, head_dim));
  }

  void check_top_k(const std::string& group, int64_t chosen, int64_t experts) const {
    const std::string chosen_key = group + ".num_experts_per_tok";
    const std::string experts_key = group + ".num_experts";
    require(chosen <= experts, {chosen_key.c_str(), experts_key.c_str()},
            fmt::format("'{}: {}' must not be above '{}: {}'", chosen_key, chosen, experts_key, experts));
  }

  void check_router() const {
    const RouterConfig& router = config_.model.router;
    if (!router.topk_before_softmax) return;
    require(router.score == RouterScore::kSoftmax, {"model.router.topk_before_softmax", "model.router.score"},
            "'model.router.topk_before_softmax: true' needs 'model.router.score: softmax'");
    require(router.norm_topk_prob, {"model.router.topk_before_softmax", "model.router.norm_topk_prob"},
            "'model.router.topk_before_softmax: true' needs 'model.router.norm_topk_prob: true': these gates always sum to 1");
  }

  void check_run() const {
    const std::string& name = config_.run.name;
    require(!name.empty() && name != "." && name != ".." && name.find('/') == name.npos, {"run.name"},
            fmt::format("'run.name: {}' must be the name of one folder, without '/'", one_line(name)));
    require(!config_.run.dir.empty(), {"run.dir"}, "'run.dir' must not be empty, for example: runs");
  }

  void check_data() const {
    const DataConfig& data = config_.data;
    require(!data.train.empty(), {"data.train"}, "'data.train' must name token files, for example: data/headers/train.bin");
    check_blend("data.train", data.train);
    check_blend("data.validation", data.validation);
    for (const BlendEntry& entry : data.validation) {
      require(entry.weight == 1, {"data.validation"}, "'data.validation' takes no weights: every token counts once");
    }
    for (const std::string& task : config_.train.eval_tasks)
      require(!task.empty(), {"train.eval_tasks"}, "'train.eval_tasks': every entry needs a path that is not empty");
    const int64_t vocab_size = config_.model.vocab_size;
    require(data.eot_token < vocab_size, {"data.eot_token", "model.vocab_size"},
            fmt::format("'data.eot_token: {}' must be below 'model.vocab_size: {}'", data.eot_token, vocab_size));
    require(!data.tokenizer.empty(), {"data.tokenizer"}, "'data.tokenizer' must be bytes, or a tokenizer's file or folder");
    require(data.tokenizer != "bytes" || vocab_size >= 256, {"data.tokenizer", "model.vocab_size"},
            fmt::format("'data.tokenizer: bytes' needs at least 256 tokens, got 'model.vocab_size: {}'", vocab_size));
  }

  void check_blend(const char* key, const std::vector<BlendEntry>& blend) const {
    for (const BlendEntry& entry : blend) {
      require(!entry.path.empty(), {key}, fmt::format("'{}': every entry needs a path that is not empty", key));
    }
  }

  void check_budget() const {
    const TrainConfig& train = config_.train;
    require(train.steps > 0 || train.tokens > 0, {"train.steps", "train.tokens"},
            "'train.steps' or 'train.tokens' must be above 0: one of them says how long to train");
    require(train.steps == 0 || train.tokens == 0, {"train.steps", "train.tokens"},
            fmt::format("'train.steps: {}' and 'train.tokens: {}' exclude each other, set one of them to 0", train.steps,
                        train.tokens));
    require(train.tokens == 0 || train.tokens >= train.global_batch_tokens, {"train.tokens", "train.global_batch_tokens"},
            fmt::format("'train.tokens: {}' must be at least one step, 'train.global_batch_tokens: {}'", train.tokens,
                        train.global_batch_tokens));
  }

  void check_batch() const {
    const TrainConfig& train = config_.train;
    require(train.global_batch_tokens % train.sequence_length == 0, {"train.global_batch_tokens", "train.sequence_length"},
            fmt::format("'train.global_batch_tokens: {}' must be a multiple of 'train.sequence_length: {}'",
                        train.global_batch_tokens, train.sequence_length));
    const int64_t sequences = train.global_batch_tokens / train.sequence_length;
    require(train.micro_batch_size == 0 || sequences % train.micro_batch_size == 0,
            {"train.micro_batch_size", "train.global_batch_tokens", "train.sequence_length"},
            fmt::format("'train.micro_batch_size: {}' must divide the {} sequences of 'train.global_batch_tokens: {}'",
                        train.micro_batch_size, sequences, train.global_batch_tokens));
  }

  void check_optim() const {
    const OptimConfig& optim = config_.optim;
    require(optim.betas.size() == 2 && optim.betas[0] < 1 && optim.betas[1] < 1, {"optim.betas"},
            fmt::format("'optim.betas: {}' must be two numbers from 0 to below 1", value_text(optim.betas)));
    require(optim.momentum < 1, {"optim.momentum"}, fmt::format("'optim.momentum: {}' must be below 1", optim.momentum));
    require(optim.state_dtype == DataType::kFloat32 || config_.train.dtype != TrainDtype::kFloat32,
            {"optim.state_dtype", "train.dtype"}, "'optim.state_dtype: bfloat16' needs 'train.dtype: bfloat16', got float32");
    require(config_.train.grad_dtype == DataType::kFloat32 || config_.train.dtype != TrainDtype::kFloat32,
            {"train.grad_dtype", "train.dtype"}, "'train.grad_dtype: bfloat16' needs 'train.dtype: bfloat16', got float32");
    const int64_t steps = total_steps(config_.train);
    const bool is_wsd = optim.schedule == Schedule::kWsd;
    require(!is_wsd || optim.decay_steps > 0, {"optim.schedule", "optim.decay_steps"},
            "'optim.schedule: wsd' needs 'optim.decay_steps' above 0");
    const int64_t decay_steps = is_wsd ? optim.decay_steps : 0;
    require(optim.warmup_steps + decay_steps <= steps,
            {"optim.warmup_steps", "optim.decay_steps", "train.steps", "train.tokens", "train.global_batch_tokens"},
            is_wsd ? fmt::format("'optim.warmup_steps: {}' and 'optim.decay_steps: {}' must fit into the {} steps of the run",
                                 optim.warmup_steps, decay_steps, steps)
                   : fmt::format("'optim.warmup_steps: {}' must fit into the {} steps of the run", optim.warmup_steps, steps));
  }

  void check_log() const {
    const int64_t traced = config_.log.trace_step, steps = total_steps(config_.train);
    require(traced == 0 || traced >= 3, {"log.trace_step"},
            fmt::format("'log.trace_step: {}' must be 0 or from 3 on: two steps before it prepare the trace", traced));
    require(traced <= steps, {"log.trace_step", "train.steps", "train.tokens", "train.global_batch_tokens"},
            fmt::format("'log.trace_step: {}' must be one of the {} steps of the run", traced, steps));
  }

  void check_ignored() const {
    for (const auto& [path, setting] : settings_) {
      for (const Ignored& ignored : ignored_) {
        if (!ignored.covers(path) || setting.is_taken_back()) continue;
        fail_user("{}: key '{}' has no effect: {}; remove it, or add --set {}=null", setting.place(), path, ignored.reason,
                  ignored.path);
      }
    }
  }

  const Config& config_;
  const Settings& settings_;
  const std::string& origin_;
  const std::vector<Ignored> ignored_ = ignored_keys(config_);
};

}  // namespace

void check_config(const Config& config, const Settings& settings, const std::string& origin) {
  Checker(config, settings, origin).run();
}

}  // namespace scatterlm

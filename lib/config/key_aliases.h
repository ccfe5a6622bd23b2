// Names that people bring from other trainers, for the advice after "unknown key".
#pragma once
#include <string_view>

namespace scatterlm {

struct KeyAlias {
  std::string_view other;  ///< what other trainers call it
  std::string_view ours;   ///< last part of the key here
};

constexpr KeyAlias kKeyAliases[] = {
    {"num_layers", "num_hidden_layers"},
    {"n_layer", "num_hidden_layers"},
    {"n_layers", "num_hidden_layers"},
    {"layer_pattern", "layers"},
    {"d_model", "hidden_size"},
    {"n_embd", "hidden_size"},
    {"n_vocab", "vocab_size"},
    {"norm_eps", "rms_norm_eps"},
    {"layer_norm_eps", "rms_norm_eps"},
    {"init_std", "initializer_range"},
    {"tie_embeddings", "tie_word_embeddings"},
    {"n_head", "num_attention_heads"},
    {"n_heads", "num_attention_heads"},
    {"num_heads", "num_attention_heads"},
    {"n_kv_heads", "num_key_value_heads"},
    {"num_kv_heads", "num_key_value_heads"},
    {"num_query_groups", "num_key_value_heads"},
    {"kv_channels", "head_dim"},
    {"d_head", "head_dim"},
    {"attention_bias", "bias"},
    {"sliding_window", "window"},
    {"d_ff", "intermediate_size"},
    {"ffn_hidden_size", "intermediate_size"},
    {"moe_ffn_hidden_size", "moe_intermediate_size"},
    {"expert_size", "moe_intermediate_size"},
    {"shared_expert_intermediate_size", "shared_intermediate_size"},
    {"hidden_act", "activation"},
    {"n_experts", "num_experts"},
    {"num_local_experts", "num_experts"},
    {"top_k", "num_experts_per_tok"},
    {"topk", "num_experts_per_tok"},
    {"num_experts_per_token", "num_experts_per_tok"},
    {"moe_router_topk", "num_experts_per_tok"},
    {"scoring_func", "score"},
    {"router_aux_loss_coef", "aux_loss_coef"},
    {"moe_aux_loss_coeff", "aux_loss_coef"},
    {"router_z_loss_coef", "z_loss_coef"},
    {"moe_z_loss_coeff", "z_loss_coef"},
    {"train_data", "train"},
    {"data_path", "train"},
    {"valid_data", "validation"},
    {"val", "validation"},
    {"eos_token_id", "eot_token"},
    {"random_seed", "seed"},
    {"max_steps", "steps"},
    {"train_iters", "steps"},
    {"max_tokens", "tokens"},
    {"seq_len", "sequence_length"},
    {"seq_length", "sequence_length"},
    {"max_seq_len", "sequence_length"},
    {"block_size", "sequence_length"},
    {"context_length", "sequence_length"},
    {"batch_size", "global_batch_tokens"},
    {"global_batch_size", "global_batch_tokens"},
    {"total_batch_size", "global_batch_tokens"},
    {"per_device_train_batch_size", "micro_batch_size"},
    {"gradient_checkpointing", "recompute"},
    {"activation_checkpointing", "recompute"},
    {"recompute_granularity", "recompute"},
    {"precision", "dtype"},
    {"torch_dtype", "dtype"},
    {"eval_every", "eval_interval"},
    {"val_interval", "eval_interval"},
    {"tasks", "eval_tasks"},
    {"learning_rate", "lr"},
    {"max_lr", "lr"},
    {"min_lr", "min_lr_ratio"},
    {"adam_epsilon", "eps"},
    {"grad_clip", "clip_grad_norm"},
    {"max_grad_norm", "clip_grad_norm"},
    {"lr_scheduler_type", "schedule"},
    {"lr_decay_style", "schedule"},
    {"warmup_iters", "warmup_steps"},
    {"lr_warmup_iters", "warmup_steps"},
    {"save_every", "save_interval"},
    {"save_steps", "save_interval"},
    {"save_total_limit", "keep_last"},
    {"logging_steps", "interval"},
    {"log_interval", "interval"},
    {"output_dir", "dir"},
    {"out_dir", "dir"},
};

struct Absent {
  std::string_view name;
  std::string_view reason;
};

constexpr std::string_view kWholeModel = "not supported: every rank holds the whole model";
constexpr std::string_view kNumberOfRanks = "it is the number of ranks: scatterlm launch -n N";
constexpr std::string_view kFollowsFromBatch =
    "it follows from train.global_batch_tokens, train.micro_batch_size and the number of ranks";

constexpr Absent kAbsent[] = {
    {"tensor_parallel", kWholeModel},
    {"tensor_parallel_size", kWholeModel},
    {"tensor_model_parallel_size", kWholeModel},
    {"tp_size", kWholeModel},
    {"tp", kWholeModel},
    {"pipeline_parallel", kWholeModel},
    {"pipeline_parallel_size", kWholeModel},
    {"pipeline_model_parallel_size", kWholeModel},
    {"pp_size", kWholeModel},
    {"pp", kWholeModel},
    {"expert_parallel", kWholeModel},
    {"expert_parallel_size", kWholeModel},
    {"expert_model_parallel_size", kWholeModel},
    {"ep_size", kWholeModel},
    {"ep", kWholeModel},
    {"context_parallel", kWholeModel},
    {"context_parallel_size", kWholeModel},
    {"cp_size", kWholeModel},
    {"sequence_parallel", kWholeModel},
    {"data_parallel_size", kNumberOfRanks},
    {"dp_size", kNumberOfRanks},
    {"gradient_accumulation_steps", kFollowsFromBatch},
    {"grad_accum_steps", kFollowsFromBatch},
    {"capacity_factor", "no token is ever dropped"},
    {"moe_expert_capacity_factor", "no token is ever dropped"},
    {"dropout", "not supported"},
    {"attention_dropout", "not supported"},
};

}  // namespace scatterlm

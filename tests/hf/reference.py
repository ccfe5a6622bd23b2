"""Tiny random models of transformers, the reference for import and export: sizes that are odd on purpose.

    python tests/hf/reference.py FAMILY FOLDER        writes one, for a look at it
"""
import sys

import torch
import transformers

# Plain loops, whatever the sizes; version 5 takes products that want multiples of 16 bytes.
EAGER = {"attn_implementation": "eager"}
if int(transformers.__version__.split(".")[0]) >= 5:
    EAGER["experts_implementation"] = "eager"
VOCABULARY = 263
LENGTH = 40  # of the sequences that are compared; windows and the original length of scaled rotary embeddings are shorter

SIZES = {"vocab_size": VOCABULARY, "hidden_size": 36, "num_hidden_layers": 3, "max_position_embeddings": 64, "bos_token_id": None,
         "eos_token_id": 262, "pad_token_id": None, "initializer_range": 0.05}
THREE_HEADS = {"num_attention_heads": 3, "num_key_value_heads": 1}  # of width 12
WIDE_HEADS = {**THREE_HEADS, "head_dim": 14}
GROUPS = {"num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 10}
ALL_EXPERTS = {"num_experts_per_tok": 3}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
GRANITE = {"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.3, "logits_scaling": 6.0}
QWEN_MOE = {"intermediate_size": 22, "moe_intermediate_size": 10, "num_experts": 5}

# name: model type and what differs from SIZES.
CASES = {
    "llama": ("llama", {**WIDE_HEADS, "intermediate_size": 22}),
    "llama_bias": ("llama", {**GROUPS, "intermediate_size": 22, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    "llama_llama3": ("llama", {**WIDE_HEADS, "intermediate_size": 22, "rope_theta": 5e5, "rope_scaling": LLAMA3}),
    "llama_linear": ("llama", {**WIDE_HEADS, "intermediate_size": 22, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    "llama_gelu": ("llama", {**WIDE_HEADS, "intermediate_size": 22, "hidden_act": "gelu_pytorch_tanh"}),
    "mistral": ("mistral", {**WIDE_HEADS, "intermediate_size": 22, "sliding_window": None}),
    "mistral_window": ("mistral", {**GROUPS, "intermediate_size": 22, "sliding_window": 7}),
    "qwen3": ("qwen3", {**WIDE_HEADS, "intermediate_size": 22}),
    "qwen3_window": ("qwen3", {**WIDE_HEADS, "intermediate_size": 22, "use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1}),
    "qwen3_yarn": ("qwen3", {**WIDE_HEADS, "intermediate_size": 22, "rope_scaling": YARN}),
    "mixtral": ("mixtral", {**WIDE_HEADS, "intermediate_size": 22, "num_local_experts": 5, "num_experts_per_tok": 2}),
    "mixtral_all": ("mixtral", {**GROUPS, "intermediate_size": 22, "num_local_experts": 3, **ALL_EXPERTS}),
    "olmoe": ("olmoe", {**THREE_HEADS, "intermediate_size": 22, "num_experts": 5, "num_experts_per_tok": 2}),
    "olmoe_clip": ("olmoe", {**THREE_HEADS, "intermediate_size": 22, "num_experts": 3, **ALL_EXPERTS, "clip_qkv": 0.6, "norm_topk_prob": True}),
    "qwen2_moe": ("qwen2_moe", {**THREE_HEADS, **QWEN_MOE, "num_experts_per_tok": 2, "shared_expert_intermediate_size": 14,
                                "decoder_sparse_step": 2}),
    "qwen3_moe": ("qwen3_moe", {**WIDE_HEADS, **QWEN_MOE, "num_experts_per_tok": 2, "norm_topk_prob": True, "mlp_only_layers": [0]}),
    "qwen3_moe_sum": ("qwen3_moe", {**GROUPS, **QWEN_MOE, "num_experts_per_tok": 4}),
    "granitemoe": ("granitemoe", {**THREE_HEADS, "intermediate_size": 22, "num_local_experts": 5, "num_experts_per_tok": 2, **GRANITE}),
    "granitemoeshared": ("granitemoeshared", {**THREE_HEADS, "intermediate_size": 22, "num_local_experts": 3, **ALL_EXPERTS, **GRANITE,
                                              "shared_intermediate_size": 14, "tie_word_embeddings": True}),
    "jetmoe": ("jetmoe", {"num_key_value_heads": 3, "kv_channels": 10, "intermediate_size": 22, "num_local_experts": 5,
                          "num_experts_per_tok": 2, "activation_function": "silu"}),
    "jetmoe_all": ("jetmoe", {"num_key_value_heads": 2, "kv_channels": 10, "intermediate_size": 22, "num_local_experts": 3, **ALL_EXPERTS,
                              "tie_word_embeddings": False}),
}


def make(name, dtype=torch.float32):
    """The model of a case. No parameter is left at a value that would hide it: norms differ from 1, biases from 0."""
    model_type, changes = CASES[name]
    config = transformers.AutoConfig.for_model(model_type, **{**SIZES, **changes})
    model = transformers.AutoModelForCausalLM.from_config(config, **EAGER).eval()
    generator = torch.Generator().manual_seed(len(name))
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            parameter.normal_(0, 0.2, generator=generator)
            if "norm" in parameter_name:
                parameter += 1
    return model.to(dtype)


def token_ids():
    return torch.randint(VOCABULARY, (2, LENGTH), generator=torch.Generator().manual_seed(0))


def logits(model, ids):
    with torch.no_grad():
        return model(input_ids=ids, use_cache=False).logits.float()


if __name__ == "__main__":
    make(sys.argv[1]).save_pretrained(sys.argv[2])

"""Times training steps of OLMoE-1B-7B in Hugging Face's model with the experts of a peer, in a process of its own; run.py starts it.

    python tests/bench/peers/olmoe.py grouped_mm|scattermoe|sonicmoe [DIR]

DIR is a clone of the peer; grouped_mm is transformers' own. As for scatterlm in run.py: bfloat16 weights, gradients and AdamW state, 4 x 4096
random tokens per step, cross-entropy. The model is compiled by torch.compile, around the experts of SonicMoE. Prints one JSON line: the mean of
6 steps after 3.
"""
import json
import sys
import time

import torch
from transformers import AutoModelForCausalLM, OlmoeConfig
from transformers.models.olmoe.modeling_olmoe import OlmoeExperts

from layer import PEERS

SIZES = {"vocab_size": 50304, "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 16,
         "num_experts": 64, "num_experts_per_tok": 8, "intermediate_size": 1024, "max_position_embeddings": 4096}
WARM_UP, STEPS = 3, 6


def use_experts_of(peer):
    """Replaces the experts of the model. The order of gate and up rows differs between peers, which changes no shape and no time."""
    experts = PEERS[peer]

    def forward(self, hidden_states, top_k_index, top_k_weights):
        ids, gates = (top_k_index.int(), top_k_weights.float()) if peer == "sonicmoe" else (top_k_index, top_k_weights)
        return experts(hidden_states, self.gate_up_proj, self.down_proj, ids, gates)

    OlmoeExperts.forward = torch.compiler.disable(forward) if peer == "sonicmoe" else forward


def make_model(device, sizes):
    config = OlmoeConfig(**sizes, norm_topk_prob=False, tie_word_embeddings=False, use_cache=False)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa", experts_implementation="grouped_mm")


def main():
    peer, *folder = sys.argv[1:]
    sys.path[:0] = folder
    if peer != "grouped_mm":
        use_experts_of(peer)
    torch.manual_seed(0)
    model = make_model("cuda", SIZES)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(SIZES["vocab_size"], (4, 4096), device="cuda")
    compiled = torch.compile(model)

    def step():
        loss = compiled(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    start = time.monotonic()
    for _ in range(STEPS):
        loss = step()
    torch.cuda.synchronize()
    step_ms = 1e3 * (time.monotonic() - start) / STEPS
    print(json.dumps({"step_ms": step_ms, "tok_s": tokens.numel() / step_ms * 1e3, "peak_gib": torch.cuda.max_memory_allocated() / (1 << 30),
                      "parameters": sum(parameter.numel() for parameter in model.parameters()), "loss": loss.item()}))


if __name__ == "__main__":
    main()

"""A small MoE transformer and its training step in plain PyTorch, as one would write it without special kernels.

    python tests/bench/pytorch_baseline.py [--steps 30] [--threads 2]

Same model and step as tests/bench/cpu_speed.py trains with scatterlm; prints one JSON line {"step_ms": [...], "loss": ...}.
"""
import argparse
import dataclasses
import json
import time

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass
class Config:
    vocab_size: int = 257
    layers: int = 4
    hidden: int = 128
    heads: int = 4
    experts: int = 8
    top_k: int = 2
    expert_width: int = 128
    batch: int = 16
    sequence: int = 256
    aux_loss_coef: float = 0.01
    z_loss_coef: float = 0.001


def rotate(x_BHSP, cos_SP, sin_SP):
    first, second = x_BHSP.chunk(2, dim=-1)
    return x_BHSP * cos_SP + torch.cat((-second, first), dim=-1) * sin_SP


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.hidden, 3 * config.hidden, bias=False)
        self.out = nn.Linear(config.hidden, config.hidden, bias=False)
        width = config.hidden // config.heads
        frequency = 10000 ** (-torch.arange(0, width, 2) / width)
        angle_SP = torch.outer(torch.arange(config.sequence), frequency).repeat(1, 2)
        self.register_buffer("cos", angle_SP.cos(), persistent=False)
        self.register_buffer("sin", angle_SP.sin(), persistent=False)

    def forward(self, x_BSD):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x_BSD).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(rotate(q, self.cos, self.sin), rotate(k, self.cos, self.sin), v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


class Expert(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.up = nn.Linear(config.hidden, 2 * config.expert_width, bias=False)
        self.down = nn.Linear(config.expert_width, config.hidden, bias=False)

    def forward(self, x):
        gate, up = self.up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class MoE(nn.Module):
    """Returns the output and the two auxiliary losses."""

    def __init__(self, config):
        super().__init__()
        self.top_k = config.top_k
        self.router = nn.Linear(config.hidden, config.experts, bias=False)
        self.experts = nn.ModuleList(Expert(config) for _ in range(config.experts))

    def forward(self, x_BSD):
        x_TD = x_BSD.flatten(0, 1)
        logits_TE = self.router(x_TD)
        probs_TE = logits_TE.softmax(-1)
        gates_TK, ids_TK = probs_TE.topk(self.top_k)
        gates_TK = gates_TK / gates_TK.sum(-1, keepdim=True)
        y_TD = torch.zeros_like(x_TD)
        for e, expert in enumerate(self.experts):
            token, slot = (ids_TK == e).nonzero(as_tuple=True)
            y_TD.index_add_(0, token, expert(x_TD[token]) * gates_TK[token, slot, None])
        share_E = F.one_hot(ids_TK, len(self.experts)).sum((0, 1)) / ids_TK.numel()
        aux = len(self.experts) * (share_E * probs_TE.mean(0)).sum()
        z = logits_TE.logsumexp(-1).square().mean()
        return y_TD.view_as(x_BSD), aux, z


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm1, self.attention = nn.RMSNorm(config.hidden, 1e-5), Attention(config)
        self.norm2, self.moe = nn.RMSNorm(config.hidden, 1e-5), MoE(config)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        y, aux, z = self.moe(self.norm2(x))
        return x + y, aux, z


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.hidden)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.hidden, 1e-5)
        for weight in self.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)

    def forward(self, input_BS, target_BS):
        """(cross entropy, the loss to minimise)."""
        x = self.embedding(input_BS)
        balance = 0.0
        for layer in self.layers:
            x, aux, z = layer(x)
            balance = balance + (self.config.aux_loss_coef * aux + self.config.z_loss_coef * z) / len(self.layers)
        logits = F.linear(self.norm(x), self.embedding.weight)
        loss = F.cross_entropy(logits.flatten(0, 1), target_BS.flatten())
        return loss, loss + balance


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1234)
    config = Config()
    model = Model(config)
    decay = [p for p in model.parameters() if p.dim() == 2]
    no_decay = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.95), fused=True)
    step_ms = []
    for _ in range(arguments.steps):
        tokens = torch.randint(256, (config.batch, config.sequence + 1))
        start = time.perf_counter()
        loss, objective = model(tokens[:, :-1], tokens[:, 1:])
        objective.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss = loss.item()
        step_ms.append(1000 * (time.perf_counter() - start))
    print(json.dumps({"step_ms": [round(ms, 2) for ms in step_ms], "loss": loss}))


if __name__ == "__main__":
    main()

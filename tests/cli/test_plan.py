"""`scatterlm plan`: text and JSON agree, and no data and no GPU are needed."""
import json
import re

import pytest


def gib(text, label):
    value, unit = re.search(rf"^  {label} +([\d.]+) (GiB|MiB|KiB|B)$", text, flags=re.MULTILINE).groups()
    return float(value) * {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "B": 1}[unit]


def test_the_text_is_that_of_the_json(scatterlm, tmp_path):
    out = tmp_path / "plan.json"
    text = scatterlm("plan", "configs/dense_124m.yaml", "--set", "data.train=none.bin", "--gpus", 8, "--gpu", "a100", "--tokens", "1e10",
                     "--mfu", 0.5, "--json", out, check=True).stdout
    plan = json.loads(out.read_text())
    for label, key in (("weights", "weights"), ("gradients, with buffers to exchange them", "gradients"), ("optimiser state", "optimizer"),
                       ("activations of 32 x 1024 tokens", "activations"), ("output head, or the backward pass of a layer", "head"), ("all", "memory")):
        assert gib(text, label) == pytest.approx(plan[key], rel=0.006), label
    assert plan["memory"] == sum(plan[key] for key in ("weights", "gradients", "optimizer", "activations", "head"))
    assert plan["tokens"] == 1e10 and plan["gpus"] == 8 and plan["mfu"] == 0.5
    assert plan["tokens_per_second"] == pytest.approx(8 * 0.5 * plan["peak_flops"] / plan["flops_per_token"])
    assert plan["hours"] == pytest.approx(1e10 / plan["tokens_per_second"] / 3600)
    assert f"largest train.micro_batch_size that fits: {plan['largest_micro_batch_size']}\n" in text
    largest = plan["largest_micro_batch_size_by_recompute"]
    assert f"with train.recompute none: {largest['none']}, norms: {largest['norms']}, layer: {largest['layer']}\n" in text
    assert largest["none"] == plan["largest_micro_batch_size"]
    assert "10B tokens at 50 % MFU of 312 TFLOP/s (data sheet)" in text


def test_what_cannot_be_planned(scatterlm):
    for arguments, message in [(("--gpu", "v100"), "--gpu: got 'v100', must be one of h200, h100, a100, b200, rtx4090"),
                               (("--gpus", 7), "train.global_batch_tokens 262144 is 256 sequences, which 7 ranks cannot share equally")]:
        result = scatterlm("plan", "configs/dense_124m.yaml", *arguments)
        assert result.returncode == 2 and message in result.stderr and result.stderr.count("\n") == 1, result.stderr

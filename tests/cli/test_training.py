"""What a training run computes: micro-batches, golden losses, precision."""
import json
import pathlib

import pytest

from conftest import read_metrics

GOLDEN = pathlib.Path(__file__).with_name("golden_losses.json")


def losses(scatterlm, config, run, *options, env=None):
    scatterlm("train", config, "--run-dir", run, *options, check=True, env=env)
    return [line["loss"] for line in read_metrics(run)]


def test_micro_batches_see_the_same_tokens(scatterlm, tiny_config, runs):
    """Aux loss off: the same losses up to rounding. On: the reported aux loss of the first step is the same, because it is computed
    over the whole step; afterwards its gradient differs (it uses the load seen so far) and so do the weights, slightly."""
    rows = {}
    for aux in (0, 0.01):
        for micro in (8, 4, 2):
            run = runs / f"{aux}-{micro}"
            losses(scatterlm, tiny_config, run, "--set", f"train.micro_batch_size={micro}", "--set", f"model.router.aux_loss_coef={aux}")
            rows[aux, micro] = read_metrics(run)
    for micro in (4, 2):
        for one, other in zip(rows[0, 8], rows[0, micro]):
            assert abs(one["loss"] - other["loss"]) < 2e-5
            assert abs(one["aux_loss"] - other["aux_loss"]) < 1e-3
        first, other = rows[0.01, 8][0], rows[0.01, micro][0]
        assert abs(first["loss"] - other["loss"]) < 2e-6
        assert abs(first["aux_loss"] - other["aux_loss"]) < 2e-6
        assert abs(first["z_loss"] - other["z_loss"]) < 2e-5
        assert abs(rows[0.01, 8][-1]["loss"] - rows[0.01, micro][-1]["loss"]) < 2e-2


def test_bfloat16_trains_on_the_cpu(scatterlm, tiny_config, runs):
    exact = losses(scatterlm, tiny_config, runs / "fp32")
    rounded = losses(scatterlm, tiny_config, runs / "bf16", "--set", "train.dtype=bfloat16")
    no_master = losses(scatterlm, tiny_config, runs / "state", "--set", "train.dtype=bfloat16", "--set", "optim.state_dtype=bfloat16")
    assert rounded != exact
    assert abs(rounded[-1] - exact[-1]) < 0.05
    assert no_master[-1] < no_master[0] - 0.5


def test_the_run_keeps_its_resolved_configuration(scatterlm, tiny_config, runs):
    scatterlm("train", tiny_config, "--set", "optim.lr=0.002", check=True)
    resolved = (runs / "tiny/config.yaml").read_text()
    assert "lr: 0.002" in resolved
    assert (runs / "tiny/step_00000020/config.yaml").read_text() == resolved
    shown = scatterlm("config", "show", runs / "tiny/config.yaml", check=True).stdout
    assert shown == scatterlm("config", "show", tiny_config, "--set", "optim.lr=0.002", check=True).stdout


def test_a_dry_run_writes_nothing(scatterlm, tiny_config, runs):
    result = scatterlm("train", tiny_config, "--dry-run", check=True)
    assert "parameters" in result.stdout
    assert not runs.exists()


def test_golden_losses(scatterlm, tiny_config, runs):
    """Recorded by `python tests/cli/record_golden.py`; CONTRIBUTING says when that is right."""
    golden = json.loads(GOLDEN.read_text())
    plain = losses(scatterlm, tiny_config, runs / "plain")
    assert max(abs(a - b) for a, b in zip(plain, golden["losses"], strict=True)) < 1e-5
    exact = losses(scatterlm, tiny_config, runs / "exact", env=golden["environment"])
    assert exact == golden["losses"]


def test_token_rounding_trains(scatterlm, tiny_config, runs):
    options = ["--set", "train.global_batch_tokens=512", "--set", "train.steps=40"]
    plain = losses(scatterlm, tiny_config, runs / "plain", *options)
    rounding = [*options, "--set", "model.router.rounding=nearest"]
    result = scatterlm("train", tiny_config, "--run-dir", runs / "rounded", *rounding, "--set", "model.moe.num_experts=6", check=True)
    assert "model.router.rounding: nearest with 171 rows per expert" in result.stderr
    result = scatterlm("train", tiny_config, "--run-dir", runs / "wide", *rounding, check=True)
    assert "rows per expert" not in result.stderr  # 256 are two tiles
    rows = read_metrics(runs / "rounded")
    attention, mlp = zip(*(row["routers"] for row in rows))
    assert sum(router["drop"] for router in mlp) > 0 and sum(router["fill"] for router in mlp) > 0
    assert all(router["drop"] == router["fill"] == 0 for router in attention)
    assert rows[-1]["loss"] < rows[0]["loss"] - 0.5
    assert abs(read_metrics(runs / "wide")[-1]["loss"] - plain[-1]) < 0.1

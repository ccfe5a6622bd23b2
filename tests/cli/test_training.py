"""What a training run computes: micro-batches, golden losses, precision."""
import json
import os
import pathlib
import pty
import re
import subprocess

import pytest

from conftest import ROOT, read_metrics

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
    bf16_gradients = losses(scatterlm, tiny_config, runs / "grads", "--set", "train.dtype=bfloat16", "--set", "train.grad_dtype=bfloat16")
    assert rounded != exact
    assert bf16_gradients != rounded
    assert abs(bf16_gradients[-1] - exact[-1]) < 0.05
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


def test_a_dry_run_says_how_much_of_everything(scatterlm, tiny_config):
    lines = scatterlm("train", tiny_config, "--set", "train.steps=1000", "--dry-run", check=True).stdout.splitlines()
    said = dict(line.split("] ", 1)[1].split(": ", 1) for line in lines)
    assert list(said) == ["data", "device", "model", "memory", "steps"]
    assert said["model"].endswith(" FLOPs per token") and " active, " in said["model"]
    assert said["memory"].startswith("weights ") and "per rank (parallel.zero: 1, 1 rank)" in said["memory"]
    assert said["steps"] == "1000 of 256 tokens, 256k tokens in all"


def test_a_dry_run_takes_no_memory_whatever_the_model(binary, tiny_data, tmp_path):
    """Nor time: 7 billion parameters would be 125 GB. The rest of the resident set is LibTorch itself."""
    command = [str(binary), "train", "configs/olmoe_1b_7b.yaml", "--dry-run", "--run-dir", str(tmp_path / "run"), "--set",
               f"data.train={tiny_data}/train.bin", "--set", "data.validation=null", "--set", "train.sequence_length=64"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    output, error = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, error
    assert "model: 6.92B parameters, 1.28B active" in output and "steps: " in output
    assert "memory: weights " in output
    assert usage.ru_maxrss < 2 << 20  # KiB
    assert usage.ru_utime + usage.ru_stime < 20


def test_a_dry_run_checks_data_and_the_checkpoint(scatterlm, tiny_config, runs):
    missing = scatterlm("train", tiny_config, "--dry-run", "--set", "data.train=nothere.bin")
    assert (missing.returncode, missing.stderr) == (2, "scatterlm: error: nothere.bin: cannot open: No such file or directory\n")
    scatterlm("train", tiny_config, check=True)
    assert "] resume: " in scatterlm("train", tiny_config, "--dry-run", check=True).stdout
    other = scatterlm("train", tiny_config, "--dry-run", "--set", "model.hidden_size=64")
    assert other.returncode == 2 and "model.hidden_size is 32 in the checkpoint and 64 in this configuration" in other.stderr


def test_a_batch_too_large_for_memory_names_keys(scatterlm, tiny_config, runs):
    """One activation of a terabyte, which no machine gives: what comes before it is small."""
    result = scatterlm("train", tiny_config, "--set", "model.dense.intermediate_size=131072", "--set", "train.global_batch_tokens=1048576",
                       "--set", "model.layers=gqa+dense", "--set", "model.moe=null", "--set", "model.moa=null",
                       env={"ASAN_OPTIONS": "allocator_may_return_null=1"})  # a build with sanitizers would abort
    assert result.returncode == 2, result.stderr
    lines = [line for line in result.stderr.splitlines() if "AddressSanitizer" not in line]  # which then warns of the size
    assert len(lines) == 1 and re.fullmatch(r"scatterlm: error: out of memory: tried to allocate [\d.]+ TiB in the memory of this machine; activations "
                                            r"shrink with train.micro_batch_size .*", lines[0]), result.stderr
    assert not list(runs.glob("tiny/step_*"))


def test_a_terminal_has_a_live_line_and_a_pipe_has_none(scatterlm, binary, tiny_config):
    many = ["--set", "train.steps=300", "--set", "log.interval=300", "--set", "train.eval_interval=0"]
    reader, writer = pty.openpty()
    process = subprocess.Popen([str(binary), "train", str(tiny_config), *many, "--run-dir", str(tiny_config.parent / "terminal")], cwd=ROOT,
                               stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    shown = b""
    try:
        while chunk := os.read(reader, 4096):
            shown += chunk
    except OSError:  # how the end of a terminal looks
        pass
    assert process.wait(60) == 0
    os.close(reader)
    text = shown.decode()
    assert "\rtraining 0/300\x1b[K" in text
    steps = [int(step) for step in re.findall(r"\rtraining (\d+)/300 \| [^|]* tok/s \| eta [^\r]*\x1b\[K", text)]
    assert steps and steps == sorted(set(steps))
    assert not re.search(r"training \d+/", text.split("step 300/300")[1])
    piped = scatterlm("train", tiny_config, *many, check=True).stdout
    assert "training" not in piped and "\r" not in piped and "\x1b" not in piped


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

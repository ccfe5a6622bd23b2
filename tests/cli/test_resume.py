"""A run that was killed and continued ends in the same bits as one that ran through."""
import json
import signal
import subprocess
import time

import pytest

from conftest import ROOT, read_metrics

STEPS = 40
RUN = ["--set", f"train.steps={STEPS}", "--set", "checkpoint.save_interval=10", "--set", "checkpoint.keep_last=9"]
# 24k tokens in windows of 32 are about 950 samples: with 8 of them a step the epoch ends near step 118.
VARIANTS = {
    "plain": [],
    "accumulation": ["--set", "train.micro_batch_size=2"],
    "asynchronous saves": ["--set", "checkpoint.async=true"],
    "bias balancing": ["--set", "model.router.balance=bias"],
    "documents": ["--set", "data.intra_document_masking=true"],
    "epoch end": ["--set", "train.global_batch_tokens=1024", "--set", "train.sequence_length=64"],
}
TIMES = {"step_ms", "tok_s", "mem_gib", "save_stall_ms"}


def start(binary, config, *options):
    # A SIGHUP that these tests inherit as ignored, from nohup, would stay so.
    return subprocess.Popen([str(binary), "train", str(config), *RUN, *options], cwd=ROOT, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))


def wait_for(path, process):
    deadline = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None and time.monotonic() < deadline, f"no {path}: {process.communicate()}"
        time.sleep(0.002)


def numbers(run):
    """Metrics without what a clock measured."""
    return [{key: value for key, value in line.items() if key not in TIMES} for line in read_metrics(run)]


def assert_same_end(one, other):
    name = f"step_{STEPS:08d}"
    for file in ("rank_00000.safetensors", "state.json"):
        assert (one / name / file).read_bytes() == (other / name / file).read_bytes(), file
    assert numbers(one) == numbers(other)
    assert [line["step"] for line in read_metrics(other)] == list(range(1, STEPS + 1))


@pytest.mark.parametrize("variant", VARIANTS)
def test_kill_and_resume_end_in_the_same_bits(scatterlm, binary, tiny_config, runs, variant):
    options = VARIANTS[variant]
    scatterlm("train", tiny_config, *RUN, *options, "--run-dir", runs / "whole", check=True)
    for step in (10, 20):  # killed twice, at no particular moment after a checkpoint
        process = start(binary, tiny_config, *options, "--run-dir", str(runs / "killed"))
        wait_for(runs / "killed" / f"step_{step:08d}", process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL and not (runs / "killed" / f"step_{STEPS:08d}").exists()
    resumed = scatterlm("train", tiny_config, *RUN, *options, "--run-dir", runs / "killed", check=True)
    assert "resume" in resumed.stdout
    assert_same_end(runs / "whole", runs / "killed")
    if variant == "epoch end":
        state = json.loads((runs / "whole" / f"step_{STEPS:08d}" / "state.json").read_text())
        windows = 24_000 // 64
        assert state["data_position"] > 1.5 * windows


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_a_signal_saves_and_exits_with_75(scatterlm, binary, tiny_config, runs, number):
    scatterlm("train", tiny_config, *RUN, "--run-dir", runs / "whole", check=True)
    process = start(binary, tiny_config, "--run-dir", str(runs / "stopped"))
    wait_for(runs / "stopped" / "metrics.jsonl", process)
    for _ in range(3 if number == signal.SIGHUP else 1):  # a terminal that closes may send several
        process.send_signal(number)
        time.sleep(0.002)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 75, error
    assert "the same command continues" in error
    scatterlm("train", tiny_config, *RUN, "--run-dir", runs / "stopped", check=True)
    assert_same_end(runs / "whole", runs / "stopped")


def test_the_time_budget_saves_and_exits_with_75(scatterlm, tiny_config, runs):
    budget = ["--set", "train.max_minutes=1e-5"]
    result = scatterlm("train", tiny_config, *RUN, *budget)
    assert result.returncode == 75, result.stderr
    assert (runs / "tiny/step_00000001/manifest.json").exists()
    assert scatterlm("train", tiny_config, *RUN, *budget).returncode == 75
    assert (runs / "tiny/step_00000002/manifest.json").exists()


def test_a_damaged_newest_checkpoint_is_passed_over_with_a_warning(scatterlm, tiny_config, runs):
    scatterlm("train", tiny_config, "--run-dir", runs / "whole", "--set", "train.steps=30", check=True)
    scatterlm("train", tiny_config, "--run-dir", runs / "damaged", "--set", "train.steps=20", "--set", "optim.schedule=constant", check=True)
    rank = runs / "damaged/step_00000020/rank_00000.safetensors"
    rank.write_bytes(rank.read_bytes()[:-1])
    result = scatterlm("train", tiny_config, "--run-dir", runs / "damaged", "--set", "train.steps=30", "--set", "optim.schedule=constant", check=True)
    assert "warning" in result.stderr and "step_00000020" in result.stderr
    assert f"step_00000020: set aside as {runs}/damaged/rejected_step_00000020" in result.stderr
    assert sorted(path.name for path in (runs / "damaged").glob("*step*")) == ["rejected_step_00000020", "step_00000020", "step_00000030"]
    assert [line["step"] for line in read_metrics(runs / "damaged")] == list(range(1, 31))


def test_a_run_folder_is_never_overwritten(scatterlm, tiny_config, runs):
    scatterlm("train", tiny_config, check=True)
    result = scatterlm("train", tiny_config, "--resume", "none")
    assert result.returncode == 2
    assert f"{runs}/tiny: holds a checkpoint of step 20, so --resume none cannot start from step 0 here" in result.stderr


def test_nohup_keeps_a_run_going(scatterlm, binary, tiny_config, runs):
    process = subprocess.Popen(["nohup", binary, "train", tiny_config, *map(str, RUN)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               stdin=subprocess.DEVNULL, text=True)
    wait_for(runs / "tiny" / "metrics.jsonl", process)
    process.send_signal(signal.SIGHUP)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 0, error


def test_a_folder_has_one_run_at_a_time(scatterlm, binary, tiny_config, runs):
    process = start(binary, tiny_config, "--run-dir", str(runs / "run"), "--set", "train.steps=1000000")
    wait_for(runs / "run" / "metrics.jsonl", process)
    second = scatterlm("train", tiny_config, "--run-dir", runs / "run", "--set", "optim.lr=1.0e-3", "--set", "checkpoint.lock_timeout_s=0")
    assert second.returncode == 2
    assert second.stderr == (f"scatterlm: error: {runs}/run: another process trains in this folder; wait until it ends, or give another "
                             "--run-dir\n")
    assert len(read_metrics(runs / "run")) > 1
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 75, error
    steps = [line["step"] for line in read_metrics(runs / "run")]
    assert steps == list(range(1, len(steps) + 1))


def test_a_fork_starts_from_the_named_checkpoint(scatterlm, tiny_config, runs):
    scatterlm("train", tiny_config, check=True)
    scatterlm("train", tiny_config, "--resume", runs / "tiny/step_00000010", "--run-dir", runs / "fork", check=True)
    assert [line["step"] for line in read_metrics(runs / "fork")] == list(range(11, 21))
    assert (runs / "fork/step_00000020/rank_00000.safetensors").read_bytes() == (
        runs / "tiny/step_00000020/rank_00000.safetensors").read_bytes()


@pytest.mark.parametrize("change, difference", [
    ("train.global_batch_tokens=512", "train.global_batch_tokens is 256 in the checkpoint and 512 in this configuration"),
    ("model.hidden_size=64", "model.hidden_size is 32 in the checkpoint and 64 in this configuration"),
    ("model.attention.rope_theta=500", "model.attention.rope_theta is 10000 in the checkpoint and 500 in this configuration"),
    ("model.moe.activation=relu2", "model.moe.activation is swiglu in the checkpoint and relu2 in this configuration"),
])
def test_another_architecture_is_refused_by_its_first_difference(scatterlm, tiny_config, change, difference):
    scatterlm("train", tiny_config, check=True)
    result = scatterlm("train", tiny_config, "--set", "train.steps=30", "--set", change)
    assert result.returncode == 2 and difference in result.stderr


def test_a_changed_learning_rate_is_said(scatterlm, tiny_config):
    scatterlm("train", tiny_config, check=True)
    result = scatterlm("train", tiny_config, "--set", "train.steps=30", "--set", "optim.lr=0.001", check=True)
    assert "optim.lr was 0.003 up to this checkpoint and is 0.001 from here" in result.stderr


def test_what_changes_no_result_may_change(scatterlm, tiny_config):
    scatterlm("train", tiny_config, check=True)
    changes = ["log.interval=5", "train.eval_interval=7", "checkpoint.async=true", "parallel.zero=2"]
    result = scatterlm("train", tiny_config, "--set", "optim.schedule=constant", *[word for change in changes for word in ("--set", change)],
                       "--set", "train.steps=30", check=True)
    warned = [line.split("warning: ")[1].split()[0] for line in result.stderr.splitlines() if "up to this checkpoint" in line]
    assert warned == ["train.steps", "optim.schedule"]


def test_a_shard_more_is_refused_unless_allowed(scatterlm, tiny_config, tmp_path, tiny_data):
    """The order of samples is a permutation over all files: another one would repeat some and leave out others."""
    shard = (tiny_data / "train.bin").read_bytes()
    (tmp_path / "t_0.bin").write_bytes(shard)
    train = ["train", tiny_config, "--set", f"data.train={tmp_path}/t_*.bin", "--set", "optim.schedule=constant"]
    scatterlm(*train, "--set", "train.steps=10", check=True)
    (tmp_path / "t_1.bin").write_bytes(shard)
    for dry in ([], ["--dry-run"]):
        refused = scatterlm(*train, *dry)
        assert refused.returncode == 2 and refused.stderr.count("error:") == 1
        assert "the files of data.train have changed since this checkpoint: with t_1.bin (" in refused.stderr.splitlines()[-1]
    allowed = scatterlm(*train, "--set", "data.allow_change=true", check=True)
    assert "warning: the files of data.train have changed since this checkpoint: with t_1.bin (" in allowed.stderr
    assert scatterlm(*train, "--set", "train.steps=21", check=True).stderr.count("warning") == 1  # train.steps; the data are its own

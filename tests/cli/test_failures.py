"""A run either goes on or ends: whatever happens to one rank, all are gone in bounded time, the message names it, and the same
command goes on to the same bits."""
import fcntl
import os
import re
import signal
import time

import pytest

from conftest import TINY_CONFIG
from job import Job

SIGNAL_LIMIT = 10  # seconds from a killed rank to all processes gone
TIMEOUT = 3
OPTIONS = ["--set", "train.steps=200", "--set", "checkpoint.save_interval=20", "--set", "log.interval=5"]
DEADLINES = ["--set", f"parallel.timeout_s={TIMEOUT}", "--set", f"parallel.start_timeout_s={TIMEOUT}"]


def start(binary, config, run, *options, launch=()):
    """Two ranks."""
    return Job(binary, 2, "train", config, "--run-dir", run, *OPTIONS, *options, launch=launch)


def wait_for(job, path):
    job.wait_until(path.exists, path.name, 60)


def final(run):
    return [(run / "step_00000200" / f"rank_{rank:05d}.safetensors").read_bytes() for rank in (0, 1)]


@pytest.fixture(scope="module")
def whole(binary, tmp_path_factory, tiny_data):
    """The weights of an undisturbed run of two ranks."""
    folder = tmp_path_factory.mktemp("whole")
    config = folder / "tiny.yaml"
    config.write_text(TINY_CONFIG.format(runs=folder, data=tiny_data))
    code, error, _ = start(binary, config, folder / "whole").end(120)
    assert code == 0, error
    return final(folder / "whole")


MOMENTS = {
    "at start": None,
    "in the first steps": "metrics.jsonl",
    "mid-run": "step_00000020",
    "while saving": ".tmp_step_00000040",
    "while saving beside": ".tmp_step_00000040",
}


def how_to_save(moment):
    return ["--set", f"checkpoint.async={str(moment == 'while saving beside').lower()}"]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_rank_ends_the_run_and_the_same_command_goes_on(binary, tiny_config, runs, whole, moment, rank):
    job = start(binary, tiny_config, runs / "run", *how_to_save(moment))
    pids = job.rank_pids()
    if MOMENTS[moment]:
        wait_for(job, runs / "run" / MOMENTS[moment])
    os.kill(pids[rank], signal.SIGKILL)
    code, error, seconds = job.end(60)
    assert code == 1 and seconds < SIGNAL_LIMIT, error
    assert f"rank {rank} was ended by a signal: Killed" in error
    if moment != "at start":
        assert re.search(rf"rank {1 - rank}: rank {rank} is gone: it was killed or has crashed; rank 0: step \d+, \w+ collective \d+", error)
    code, error, _ = start(binary, tiny_config, runs / "run").end(120)
    assert code == 0, error
    assert final(runs / "run") == whole


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_stopped_rank_ends_the_run_after_the_timeout(binary, tiny_config, runs, moment, rank):
    job = start(binary, tiny_config, runs / "run", *DEADLINES, *how_to_save(moment))
    pids = job.rank_pids()
    if MOMENTS[moment]:
        wait_for(job, runs / "run" / MOMENTS[moment])
    os.kill(pids[rank], signal.SIGSTOP)
    code, error, seconds = job.end(60)
    assert code == 1 and seconds < TIMEOUT + 10, (seconds, error)
    if moment == "at start" and "did not come" in error:  # it had not met the other one
        assert re.search(rf"1 of 2 ranks .* did not come within {TIMEOUT} s .*: {rank}$", error, re.MULTILINE)
        assert re.search(rf"rank {rank} (did not end by itself|has been stopped for \d+ s): killed", error)
    else:
        assert f"rank {1 - rank}: rank {rank} is stopped, without a heartbeat for" in error
        assert f"rank {1 - rank}: rank {rank} is stopped: killed" in error


def test_a_rank_that_fails_says_why_and_where_all_ranks_were(binary, tiny_config, runs):
    (runs / "run").mkdir(parents=True)
    (runs / "run" / "step_00000020").write_text("a file where the checkpoint should be")
    code, error, seconds = start(binary, tiny_config, runs / "run").end(60)
    assert code == 2, error  # trying again would not help
    assert "rank 0: this rank fails; rank 0: step 20, after collective" in error
    assert "step_00000020: cannot write: Not a directory" in error


def test_restarts_go_on_from_the_last_checkpoint(binary, tiny_config, runs, whole):
    """Also those of a run that was to begin from scratch: what it has saved since then counts."""
    job = start(binary, tiny_config, runs / "run", "--resume", "none", launch=("--max-restarts", "2"))
    for step in (20, 100):
        job.pids = {}
        pids = job.rank_pids()
        wait_for(job, runs / "run" / f"step_{step:08d}")
        os.kill(pids[1], signal.SIGKILL)
        while os.path.exists(f"/proc/{pids[1]}"):
            time.sleep(0.01)
        while os.path.exists(f"/proc/{pids[0]}"):
            time.sleep(0.01)
    code, error, _ = job.end(120)
    assert code == 0, error
    assert "restart 1 of 2" in error and "restart 2 of 2" in error
    assert final(runs / "run") == whole


def test_a_mistake_of_the_user_is_not_tried_again(scatterlm, tiny_config):
    result = scatterlm("launch", "-n", 2, "--max-restarts", 3, "train", tiny_config, "--set", "data.train=nothere.bin")
    assert result.returncode == 2
    assert re.fullmatch(r"\[[01]\] scatterlm: error: rank [01]: nothere.bin: cannot open: No such file or directory\n", result.stderr)


def test_a_mistake_that_one_rank_finds_is_all_that_is_said(scatterlm, tiny_config, runs):
    (runs / "run").mkdir(parents=True)
    with open(runs / "run/.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = scatterlm("launch", "-n", 2, "train", tiny_config, "--run-dir", runs / "run", "--set", "checkpoint.lock_timeout_s=0")
    assert result.returncode == 2
    assert re.fullmatch(r"\[0\] scatterlm: error: rank 0: .*another process trains in this folder.*\n", result.stderr)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_launcher_saves_and_exits_with_75(binary, tiny_config, runs, whole, number):
    job = start(binary, tiny_config, runs / "run")
    job.rank_pids()
    wait_for(job, runs / "run" / "metrics.jsonl")
    job.process.send_signal(number)
    code, error, _ = job.end(60)
    assert code == 75, error
    assert "the same command continues" in error
    code, error, _ = start(binary, tiny_config, runs / "run").end(120)
    assert code == 0, error
    assert final(runs / "run") == whole


def test_a_signal_while_the_ranks_start_is_no_failure(binary, tiny_config, runs):
    for numbers in ([signal.SIGTERM], [signal.SIGHUP, signal.SIGTERM]):
        job = start(binary, tiny_config, runs / "run")
        job.rank_pids()
        for number in numbers:
            job.process.send_signal(number)
        code, error, _ = job.end(60)
        assert code == 75 and "error" not in error, error
        assert "the same command continues" in error


def test_ranks_go_on_from_what_a_run_saves_while_they_wait_for_its_end(binary, tiny_config, runs):
    endless = ["--set", "train.steps=1000000", "--set", "checkpoint.save_interval=100000"]
    first = start(binary, tiny_config, runs / "run", *endless)
    first.rank_pids()
    wait_for(first, runs / "run" / "metrics.jsonl")
    second = start(binary, tiny_config, runs / "run", *endless)
    second.rank_pids()
    time.sleep(1.5)  # rank 1 would have looked for a checkpoint by now
    first.process.send_signal(signal.SIGTERM)
    assert first.end(60)[0] == 75
    saved = max((runs / "run").glob("step_*"))
    second.wait_until(lambda: "resume: " + str(saved) in second.printed(second.out), "checkpoint to go on from", 60)
    second.process.send_signal(signal.SIGTERM)
    code, error, _ = second.end(60)
    assert code == 75, error


def test_a_signal_to_one_rank_stops_all_at_the_same_step(binary, tiny_config, runs):
    job = start(binary, tiny_config, runs / "run")
    pids = job.rank_pids()
    wait_for(job, runs / "run" / "metrics.jsonl")
    os.kill(pids[1], signal.SIGTERM)
    code, error, _ = job.end(60)
    assert code == 75, error
    assert "rank 0: another rank was asked to stop: saved step" in error


def test_a_killed_launcher_takes_its_ranks_along(binary, tiny_config, runs):
    job = start(binary, tiny_config, runs / "run")
    job.rank_pids()
    wait_for(job, runs / "run" / "metrics.jsonl")
    job.process.kill()
    job.process.wait()
    deadline = time.monotonic() + SIGNAL_LIMIT
    while any(os.path.exists(f"/proc/{pid}") for pid in job.pids.values()):
        assert time.monotonic() < deadline
        time.sleep(0.01)

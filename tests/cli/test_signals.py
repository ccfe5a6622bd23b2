"""Signals ask a run to save and end, however often and to whichever of its processes; nothing but a second Ctrl-C loses steps."""
import os
import signal
import subprocess
import time

import pytest

from conftest import read_metrics
from job import Job, read_or_nothing

ENDLESS = ["--set", "train.steps=1000000", "--set", "checkpoint.save_interval=100000"]
LONG_STEPS = ["--set", "train.global_batch_tokens=1048576"]
TIMEOUT = 1
STOP_AT_EXIT = """
#include <signal.h>
#include <stdlib.h>
__attribute__((destructor)) static void stop(void) { if (getenv("RANK") && atoi(getenv("RANK")) == 1) raise(SIGSTOP); }
"""


@pytest.fixture
def start(binary, tiny_config, runs):
    """start(ranks, *options, env=...) -> a running Job in runs/run."""
    jobs = []

    def start(ranks, *options, env=None, launch=()):
        jobs.append(Job(binary, ranks, "train", tiny_config, "--run-dir", runs / "run", *options, env=env, launch=launch))
        return jobs[-1]

    yield start
    for job in jobs:
        job.kill()


def check_saved(job, run, limit=60):
    code, error, _ = job.end(limit)
    assert code == 75 and "the same command continues" in error, error
    assert list(run.glob("step_*/manifest.json")), error


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_signal_to_every_process_twice_saves(start, runs, number, ranks):
    """As a control group and a launcher that forwards send it."""
    job = start(ranks, *ENDLESS)
    pids = [job.process.pid, *job.rank_pids().values()]
    job.wait_until((runs / "run/metrics.jsonl").exists, "first step", 60)
    for _ in range(2):
        for pid in pids:
            os.kill(pid, number)
        time.sleep(0.003)
    check_saved(job, runs / "run")


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_second_interrupt_ends_at_once_and_says_so(start, runs, ranks):
    job = start(ranks, *ENDLESS, *LONG_STEPS)
    job.rank_pids()
    job.wait_until(lambda: "model: " in job.printed(job.out), "model", 60)
    job.process.send_signal(signal.SIGINT)
    time.sleep(0.7)
    job.process.send_signal(signal.SIGINT)
    code, error, _ = job.end(10)
    assert code == 130 and error == "scatterlm: error: interrupted a second time: ends without saving\n"
    assert not list((runs / "run").glob("step_*"))


def test_a_signal_while_the_program_is_loaded_saves(start, runs):
    job = start(1, *ENDLESS)
    environ = f"/proc/{job.process.pid}/environ"
    job.wait_until(lambda: "GOMP_SPINCOUNT=" in read_or_nothing(environ), "start of the program's own code", 30)
    job.process.send_signal(signal.SIGTERM)
    check_saved(job, runs / "run")


def test_a_signal_to_ranks_that_are_loaded_saves(start, runs):
    job = start(2, *ENDLESS)
    for pid in job.rank_pids().values():
        os.kill(pid, signal.SIGTERM)
    check_saved(job, runs / "run")


def test_stopped_ranks_wake_up_to_save(start, runs):
    job = start(2, *ENDLESS)
    pids = job.rank_pids()
    job.wait_until((runs / "run/metrics.jsonl").exists, "first step", 60)
    for pid in pids.values():
        os.kill(pid, signal.SIGSTOP)
    job.process.send_signal(signal.SIGTERM)
    check_saved(job, runs / "run")


def test_ranks_that_are_all_stopped_are_killed(start, runs):
    job = start(2, *ENDLESS, "--set", f"parallel.timeout_s={TIMEOUT}")
    pids = job.rank_pids()
    job.wait_until((runs / "run/metrics.jsonl").exists, "first step", 60)
    for pid in pids.values():
        os.kill(pid, signal.SIGSTOP)
    code, error, _ = job.end(30)
    assert code == 1 and f"rank 0 has been stopped for {TIMEOUT + 5} s: killed" in error, error


def test_a_rank_that_is_stopped_while_the_processes_end_is_killed(start, runs, tmp_path):
    (tmp_path / "stop.c").write_text(STOP_AT_EXIT)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "stop.so", tmp_path / "stop.c"], check=True)
    job = start(2, "--set", f"parallel.timeout_s={TIMEOUT}", "--set", "checkpoint.timeout_s=1", "--set", "checkpoint.lock_timeout_s=0", env={"LD_PRELOAD": str(tmp_path / "stop.so")}, launch=["--max-restarts", 0])
    job.rank_pids()
    code, error, _ = job.end(60)
    assert code == 1 and f"rank 1 did not end within {TIMEOUT + 1} s (parallel.timeout_s + checkpoint.timeout_s) after rank 0: killed" in error, error
    assert [line["step"] for line in read_metrics(runs / "run")] == list(range(1, 21))

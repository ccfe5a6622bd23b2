"""A launcher on each of two machines. CPU ranks work on one alone, so both are this machine, which the launchers do not know; how ranks
of different machines watch each other is in tests/distributed/bridge_test.cpp."""
import os
import pathlib
import re
import signal
import time

import pytest

from conftest import TINY_CONFIG
from job import Job
from two_machines import Machines, launch_options

STEPS = 200
OPTIONS = ["--set", f"train.steps={STEPS}", "--set", "checkpoint.save_interval=20", "--set", "log.interval=5"]


def start(binary, config, run, *options, launch=(), env=lambda node: {}):
    """Two ranks, one a launcher."""
    return Machines(lambda node, port: Job(binary, 1, "train", config, "--run-dir", run, *OPTIONS, *options,
                                           launch=launch_options(node, port, *launch), env=env(node)))


def wait_for(machines, path):
    machines.jobs[0].wait_until(path.exists, path.name, 60)


def final(run):
    return [(run / f"step_{STEPS:08d}" / f"rank_{rank:05d}.safetensors").read_bytes() for rank in (0, 1)]


@pytest.fixture(scope="module")
def whole(binary, tmp_path_factory, tiny_data):
    folder = tmp_path_factory.mktemp("whole")
    config = folder / "tiny.yaml"
    config.write_text(TINY_CONFIG.format(runs=folder, data=tiny_data))
    with start(binary, config, folder / "whole") as machines:
        codes, errors, _ = machines.end(120)
    assert codes == [0, 0], errors
    return final(folder / "whole")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_ends_both_launchers(binary, tiny_config, runs, rank):
    with start(binary, tiny_config, runs / "run") as machines:
        pids = machines.rank_pids()
        wait_for(machines, runs / "run" / "step_00000020")
        os.kill(pids[rank], signal.SIGKILL)
        codes, errors, seconds = machines.end(60)
    assert codes[rank] == 1 and codes[1 - rank] == 70 and seconds < 10, (codes, seconds, errors)
    assert f"rank {rank} was ended by a signal: Killed" in errors[rank]
    assert f"rank {1 - rank}: rank {rank} is gone: it was killed or has crashed" in errors[1 - rank]


def test_a_rank_that_cannot_end_by_itself_is_killed_by_its_launcher(binary, tiny_config, runs):
    """Stopped, while the other machine's is killed: nobody is left to say so but the launchers, whose connections come up beside the
    run and may take a second longer than its start: c10d asks a name server."""
    with start(binary, tiny_config, runs / "run", "--set", "train.steps=1000000", "--set", "checkpoint.save_interval=100000") as machines:
        pids = machines.rank_pids()
        wait_for(machines, runs / "run" / "metrics.jsonl")
        time.sleep(4)
        os.kill(pids[1], signal.SIGSTOP)
        os.kill(pids[0], signal.SIGKILL)
        codes, errors, seconds = machines.end(60)
    assert codes == [1, 70] and seconds < 10, (codes, seconds, errors)
    assert "rank 1 did not end by itself: killed; the run had ended: rank 0 was ended by a signal: Killed" in errors[1]


def test_a_killed_launcher_ends_the_other(binary, tiny_config, runs):
    for node in (0, 1):
        with start(binary, tiny_config, runs / f"run{node}") as machines:
            pids = machines.rank_pids()
            wait_for(machines, runs / f"run{node}" / "step_00000020")
            machines.jobs[node].process.kill()
            code, error, seconds = machines.jobs[1 - node].end(60)
            assert code == 70 and seconds < 15, (code, seconds, error)
            assert f"rank {1 - node}: rank {node} is gone: it was killed or has crashed" in error
            assert not pathlib.Path(f"/proc/{pids[1 - node]}").exists()


def test_restarts_go_on_from_the_last_checkpoint(binary, tiny_config, runs, whole):
    with start(binary, tiny_config, runs / "run", launch=("--max-restarts", 2)) as machines:
        for rank, step in ((1, 20), (0, 100)):
            for job in machines.jobs:
                job.pids = {}
            pids = machines.rank_pids()
            wait_for(machines, runs / "run" / f"step_{step:08d}")
            os.kill(pids[rank], signal.SIGKILL)
            gone_by = time.monotonic() + 30
            while any(os.path.exists(f"/proc/{pid}") for pid in pids.values()):
                assert time.monotonic() < gone_by, pids
                time.sleep(0.01)
        codes, errors, _ = machines.end(120)
    assert codes == [0, 0], errors
    assert all("restart 1 of 2" in error and "restart 2 of 2" in error for error in errors)
    assert final(runs / "run") == whole


def test_a_signal_to_one_launcher_stops_both_at_the_same_step(binary, tiny_config, runs, whole):
    with start(binary, tiny_config, runs / "run") as machines:
        machines.rank_pids()
        wait_for(machines, runs / "run" / "metrics.jsonl")
        machines.jobs[1].process.send_signal(signal.SIGTERM)
        codes, errors, _ = machines.end(60)
    assert codes == [75, 75], errors
    with start(binary, tiny_config, runs / "run") as machines:
        codes, errors, _ = machines.end(60)
    assert codes == [0, 0], errors
    assert final(runs / "run") == whole


@pytest.mark.parametrize("node", [0, 1])
def test_a_machine_that_never_comes_is_named_in_time(binary, tiny_config, free_port, node):
    """Not even its launcher."""
    with Job(binary, 1, "train", tiny_config, "--set", "parallel.start_timeout_s=2", launch=launch_options(node, free_port)) as job:
        code, error, seconds = job.end(60)
    assert seconds < 15, (code, seconds, error)
    if node == 0:
        assert code == 1
        assert "rank 0: 1 of 2 ranks (started by scatterlm launch) did not come within 2 s (parallel.start_timeout_s): 1" in error
    else:
        assert code in (1, 70)
        assert re.search(rf"the launcher at 127.0.0.1:{free_port} (within 2 s|does not answer within 4 s) \(parallel.start_timeout_s", error)


def test_a_job_does_not_notice_strangers_at_its_port(scatterlm, binary, tiny_config, runs):
    with start(binary, tiny_config, runs / "run", "--set", "train.steps=1000000", "--set", "checkpoint.save_interval=100000") as machines:
        machines.rank_pids()
        wait_for(machines, runs / "run" / "metrics.jsonl")
        port = machines.port
        for options, message in ((launch_options(1, port), f"127.0.0.1:{port} has a rank 1 already, process "),
                                 (launch_options(2, port, nodes=3), f"rank 2 is of 3 ranks, those that meet at 127.0.0.1:{port} are 2; ")):
            stranger = scatterlm("launch", "-n", 1, *options, "train", tiny_config, "--set", "train.global_batch_tokens=192",
                                 "--run-dir", runs / "other")
            assert stranger.returncode == 2 and message in stranger.stderr
            assert stranger.stderr.count("\n") == 1 and "another --master-port or MASTER_PORT" in stranger.stderr
        time.sleep(1)  # launchers look for news every 100 ms
        machines.jobs[0].process.send_signal(signal.SIGTERM)
        codes, errors, _ = machines.end(60)
    assert codes == [75, 75], errors


def test_a_machine_without_an_address_is_said(scatterlm, tiny_config):
    result = scatterlm("launch", "-n", 1, "--nnodes", 2, "--node-rank", 1, "--master-addr", "nowhere.invalid", "--master-port", 29400,
                       "train", tiny_config, "--set", "parallel.start_timeout_s=1")
    assert result.returncode == 2
    assert "nowhere.invalid, where the ranks are to meet (--master-addr, MASTER_ADDR): " in result.stderr
    assert result.stderr.count("\n") == 1


def test_cpu_ranks_on_several_machines_are_refused(binary, tiny_config, runs):
    with start(binary, tiny_config, runs / "run", launch=("--max-restarts", 3),
               env=lambda node: {"NCCL_HOSTID": f"machine{node}"}) as machines:
        codes, errors, seconds = machines.end(60)
    assert codes == [2, 2] and seconds < 15, (codes, seconds, errors)
    for error in errors:
        assert "the 2 ranks are on 2 machines, and CPU ranks work on one alone: start them all on one, or use GPUs" in error
        assert "restart" not in error

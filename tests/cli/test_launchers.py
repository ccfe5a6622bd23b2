"""However ranks are started, they find each other, or say in bounded time what is missing or different."""
import contextlib
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import time

import pytest

from conftest import ROOT, read_metrics, write_token_file
from job import Job

TORCHRUN = ROOT / ".venv/bin/torchrun"


def rank_environment(rank, world, port):
    return {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def start_ranks(binary, environments, arguments, folders=(ROOT, ROOT)):
    """One process per environment, as a launcher would start it."""
    return [subprocess.Popen([str(binary), "train", *map(str, arguments[rank])], cwd=folders[rank], text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, env={**os.environ, **environment})
            for rank, environment in enumerate(environments)]


def check_two_ranks(run):
    """A complete run of two ranks."""
    assert [line["step"] for line in read_metrics(run)] == list(range(1, 21))
    assert len(list((run / "step_00000020").glob("rank_*.safetensors"))) == 2


SLURM = {"SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_JOB_NODELIST": "localhost", "SLURM_JOB_ID": "17"}
OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}


@pytest.mark.parametrize("launcher", ["torchrun", "mpirun", "mpiexec", "srun"])
def test_variables(binary, tiny_config, runs, free_port, launcher):
    """What each launcher sets, without the launcher."""
    environments = [{
        "torchrun": rank_environment(rank, 2, free_port),
        "mpirun": {**OPEN_MPI, "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
                   "PMIX_NAMESPACE": str(free_port)},
        "mpiexec": {"PMI_RANK": str(rank), "PMI_SIZE": "2", "MPI_LOCALRANKID": str(rank), "MPI_LOCALNRANKS": "2",
                    "MASTER_PORT": str(free_port)},
        "srun": {**SLURM, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "MASTER_PORT": str(free_port)},
    }[launcher] for rank in (0, 1)]
    for process in start_ranks(binary, environments, [[tiny_config, "--run-dir", runs / "run"]] * 2):
        _, error = process.communicate(timeout=60)
        assert process.returncode == 0, error
    check_two_ranks(runs / "run")


@pytest.mark.parametrize("store", ["of the agent", "of rank 0"])
def test_torchrun(binary, tiny_config, runs, free_port, store):
    if not TORCHRUN.exists():
        pytest.skip("this LibTorch came without torchrun")
    result = subprocess.run([TORCHRUN, "--no-python", "--nproc-per-node", "2", "--master-port", str(free_port), binary, "train",
                             tiny_config, "--run-dir", runs / "run"], capture_output=True, text=True, timeout=120,
                            env={**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "0" if store == "of the agent" else "1"})
    assert result.returncode == 0, result.stderr
    check_two_ranks(runs / "run")


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun on this machine")
def test_mpirun(binary, tiny_config, runs):
    result = subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", binary, "train", tiny_config,
                             "--run-dir", runs / "run"], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    check_two_ranks(runs / "run")


def torchrun_on_two_nodes(binary, config, run, port, *options):
    """The agents of two nodes, both of this machine, which they do not know; each starts one rank."""
    if not TORCHRUN.exists():
        pytest.skip("this LibTorch came without torchrun")
    return [Job(binary, 1, "train", config, "--run-dir", run, *options,
                foreign=[TORCHRUN, "--no-python", "--nnodes", 2, "--node-rank", node, "--nproc-per-node", 1, "--master-addr",
                         "127.0.0.1", "--master-port", port]) for node in (0, 1)]


def test_torchrun_on_two_nodes(binary, tiny_config, runs, free_port):
    with contextlib.ExitStack() as stack:
        for job in [stack.enter_context(job) for job in torchrun_on_two_nodes(binary, tiny_config, runs / "run", free_port)]:
            code, error, _ = job.end(120)
            assert code == 0, error
    check_two_ranks(runs / "run")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_ends_the_agents_of_both_nodes(binary, tiny_config, runs, free_port, rank):
    endless = ["--set", "train.steps=1000000", "--set", "checkpoint.save_interval=100000"]
    with contextlib.ExitStack() as stack:
        jobs = [stack.enter_context(job) for job in torchrun_on_two_nodes(binary, tiny_config, runs / "run", free_port, *endless)]
        jobs[0].wait_until((runs / "run/metrics.jsonl").exists, "first step", 60)
        children = pathlib.Path(f"/proc/{jobs[rank].process.pid}/task/{jobs[rank].process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)
        ends = [job.end(60) for job in jobs]
    assert all(code != 0 and seconds < 15 for code, _, seconds in ends), ends
    assert f"rank {1 - rank}: rank {rank} is gone: it was killed or has crashed" in ends[1 - rank][1]


def test_cpu_ranks_on_several_machines_are_refused(binary, tiny_config, runs, free_port):
    environments = [{**rank_environment(rank, 2, free_port), "NCCL_HOSTID": f"machine{rank}"} for rank in (0, 1)]
    for process in start_ranks(binary, environments, [[tiny_config, "--run-dir", runs / "run"]] * 2):
        _, error = process.communicate(timeout=60)
        assert process.returncode == 2
        assert "the 2 ranks are on 2 machines, and CPU ranks work on one alone: start them all on one, or use GPUs" in error


def variable(pid, name):
    return re.search(rf"\0{name}=(\w+)\0", "\0" + pathlib.Path(f"/proc/{pid}/environ").read_text() + "\0")[1]


def test_a_job_does_not_notice_ranks_of_others_at_its_port(scatterlm, binary, tiny_config, runs):
    endless = ["--run-dir", runs / "run", "--set", "train.steps=1000000", "--set", "checkpoint.save_interval=100000"]
    with Job(binary, 2, "train", tiny_config, *endless) as job:
        pids = job.rank_pids()
        job.wait_until((runs / "run/metrics.jsonl").exists, "first step", 60)
        port, token = int(variable(pids[0], "MASTER_PORT")), variable(pids[0], "SCATTERLM_JOB_TOKEN")
        for rank, world, given, message in ((1, 2, token, f"127.0.0.1:{port} has a rank 1 already, process "),
                                            (2, 3, token, f"rank 2 is of 3 ranks, those that meet at 127.0.0.1:{port} are 2; "),
                                            (1, 2, "", f"rank 1 is of another job than those that meet at 127.0.0.1:{port} (SCATTERLM_JOB_TOKEN); "),
                                            (1, 2, "0" * 32, f"rank 1 is of another job than those that meet at 127.0.0.1:{port} ")):
            stranger = scatterlm("train", tiny_config, "--set", "train.global_batch_tokens=192", "--run-dir", runs / "other",
                                 env={**rank_environment(rank, world, port), "TORCHELASTIC_USE_AGENT_STORE": "True", "SCATTERLM_JOB_TOKEN": given})
            assert stranger.returncode == 2 and message in stranger.stderr, stranger.stderr
            assert stranger.stderr.count("\n") == 1 and "another job with another MASTER_PORT" in stranger.stderr
        job.process.send_signal(signal.SIGTERM)
        code, error, _ = job.end(60)
    assert code == 75, error


def listening_port(pid):
    """The first TCP port at which the process listens, and the address, as in /proc/net/tcp; nothing if there is none."""
    sockets = set()
    with contextlib.suppress(OSError):
        for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                sockets.add(os.readlink(fd))
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                address, port = words[1].split(":")
                return address, int(port, 16)
    return None


LOOPBACK = "0100007F"
VALIDATE, SET, WAIT = b"\x00", b"\x01", b"\x05"


def molest(port):
    """Connections that say nothing, rubbish, half a message, or a length that nothing follows."""
    connections = []
    for words in (b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), VALIDATE, VALIDATE + b"\x12\x34\x56\x78", b"\xff" * 64,
                  VALIDATE + (0x3C85F7CE).to_bytes(4, "little") + SET + (1 << 62).to_bytes(8, "little"),
                  VALIDATE + (0x3C85F7CE).to_bytes(4, "little") + WAIT + (1 << 62).to_bytes(8, "little") + b"\1"):
        with contextlib.suppress(OSError):  # the store may be gone, or refuse the rest
            connections.append(socket.create_connection(("127.0.0.1", port), timeout=5))
            connections[-1].sendall(words)
    return connections


@pytest.mark.parametrize("keeper", ["launcher", "rank 0"])
def test_strangers_at_the_port_neither_stop_nor_stall_a_job(binary, tiny_config, runs, free_port, keeper):
    options = ["train", tiny_config, "--run-dir", runs / "run", "--set", "train.steps=200", "--set", "checkpoint.save_interval=1000"]
    if keeper == "launcher":
        processes = [subprocess.Popen([binary, "launch", "-n", "2", *options], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)]
    else:
        processes = start_ranks(binary, [rank_environment(rank, 2, free_port) for rank in (0, 1)], [options[1:]] * 2)
    connections = []
    try:
        deadline = time.monotonic() + 60
        while not (runs / "run/metrics.jsonl").exists():  # from the first moment on
            assert time.monotonic() < deadline and processes[0].poll() is None
            if found := listening_port(processes[0].pid):
                assert found[0] == LOOPBACK
                if len(connections) < 80:
                    connections += molest(found[1])
            time.sleep(0.01)
        assert len(connections) >= 8
        for process in processes:
            _, error = process.communicate(timeout=60)
            assert process.returncode == 0 and error == "", error
    finally:
        for process in processes:
            process.kill()
            process.communicate()
        for connection in connections:
            connection.close()
    assert len(read_metrics(runs / "run")) == 200


@pytest.mark.parametrize("command", ["launch -n 2 train", "train"])
@pytest.mark.parametrize("files", [8, 14])
def test_a_limit_of_open_files_is_said(binary, tiny_config, free_port, command, files):
    result = subprocess.run([binary, *command.split(), tiny_config], cwd=ROOT, capture_output=True, text=True,
                            env={**os.environ, **(rank_environment(0, 2, free_port) if command == "train" else {})},
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)))
    assert result.returncode == 1 and result.stderr.count("\n") == 1, result.stderr
    assert f"; raise the limit of open files (ulimit -n: {files})" in result.stderr and "MASTER_PORT" not in result.stderr


def test_an_address_that_does_not_exist_is_said(scatterlm, tiny_config):
    result = scatterlm("train", tiny_config, "--set", "parallel.start_timeout_s=1",
                       env={**rank_environment(1, 2, 29400), "MASTER_ADDR": "nowhere.invalid"})
    assert result.returncode == 2
    assert "nowhere.invalid, where the ranks are to meet (MASTER_ADDR): " in result.stderr
    assert result.stderr.count("\n") == 1


def test_ranks_with_another_configuration_are_refused(binary, tiny_config, free_port):
    environments = [rank_environment(rank, 2, free_port) for rank in (0, 1)]
    processes = start_ranks(binary, environments, [[tiny_config], [tiny_config, "--set", "train.seed=7"]])
    for process in processes:
        _, error = process.communicate(timeout=60)
        assert process.returncode == 2
        assert "rank 1 differs from rank 0: 'train.seed = 7' against 'train.seed = 1234'" in error


def test_ranks_with_other_data_are_refused(binary, tiny_config, tiny_data, tmp_path, free_port):
    """Machines whose local copies differ: every rank would draw from a permutation of its own."""
    for rank, tokens in ((0, 2000), (1, 2001)):
        (tmp_path / str(rank)).mkdir()
        write_token_file(tmp_path / str(rank) / "train.bin", [1] * tokens)
    environments = [rank_environment(rank, 2, free_port) for rank in (0, 1)]
    options = [[tiny_config, "--set", "data.train=train.bin", "--run-dir", tmp_path / "run"]] * 2
    processes = start_ranks(binary, environments, options, folders=[tmp_path / "0", tmp_path / "1"])
    for process in processes:
        _, error = process.communicate(timeout=60)
        assert process.returncode == 2
        assert "rank 1 differs from rank 0: 'data.train[0] = train.bin (2001 tokens, hash " in error


def test_a_rank_that_never_starts_is_named(scatterlm, tiny_config, free_port):
    result = scatterlm("train", tiny_config, "--set", "parallel.start_timeout_s=1", env=rank_environment(1, 2, free_port))
    assert result.returncode in (1, 70)
    assert re.search(rf"rank 0 at 127.0.0.1:{free_port} (within 1 s|does not answer within 3 s) \(parallel.start_timeout_s", result.stderr)
    result = scatterlm("train", tiny_config, "--set", "parallel.start_timeout_s=1", "--set", "train.global_batch_tokens=192",
                       env=rank_environment(0, 3, free_port))
    assert result.returncode == 1
    assert "2 of 3 ranks (started by torchrun) did not come within 1 s (parallel.start_timeout_s): 1, 2" in result.stderr


def connections(port):
    """To this port of this machine."""
    lines = [line.split() for table in ("tcp", "tcp6") for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]]
    return sum(line[1].endswith(f":{port:04X}") and line[3] == "01" for line in lines)  # local address, established


@pytest.mark.parametrize("connected", [1, 2])
def test_rank_0_that_stops_while_ranks_meet_is_named(binary, tiny_config, free_port, connected):
    """No launcher and no watchdog is there yet. Rank 1 connects to the stopped rank 0, or already waits for rank 2."""
    def start(rank):
        arguments = [tiny_config, "--set", "parallel.start_timeout_s=2", "--set", "train.global_batch_tokens=192"]
        return start_ranks(binary, [rank_environment(rank, 3, free_port)], [arguments])[0]

    ranks = [start(0)] if connected == 1 else [start(0), start(1)]
    try:
        deadline = time.monotonic() + 30
        while connections(free_port) < connected:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        ranks[0].send_signal(signal.SIGSTOP)
        ranks[1:] = ranks[1:] or [start(1)]
        _, error = ranks[1].communicate(timeout=20)
        assert ranks[1].returncode == 70, error
        assert f"rank 1: rank 0 at 127.0.0.1:{free_port} does not answer within 4 s (parallel.start_timeout_s, and 2)" in error
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


def test_ranks_that_do_not_share_the_run_folder_are_refused(scatterlm, binary, tiny_config, tmp_path, free_port):
    scatterlm("train", tiny_config, "--run-dir", "run", cwd=tmp_path, check=True)
    (tmp_path / "elsewhere").mkdir()
    environments = [rank_environment(rank, 2, free_port) for rank in (0, 1)]
    arguments = [[tiny_config, "--run-dir", "run", "--set", "train.steps=30"]] * 2
    processes = start_ranks(binary, environments, arguments, [tmp_path, tmp_path / "elsewhere"])
    errors = [process.communicate(timeout=60)[1] for process in processes]
    assert processes[1].returncode == 2 and processes[0].returncode in (2, 70)
    assert "rank 1 does not see run/step_00000020, from which rank 0 resumes; run.dir must be one folder for all ranks" in errors[1]

"""Two groups of this host as two machines, each with a launcher of its own: part `nodes` of scale_on_gpus.py, and tests of failures.

NCCL takes groups with different NCCL_HOSTID for different machines: between them it uses sockets, here those of the loopback device."""
import contextlib
import os
import re
import signal
import socket
import time

from job import JobError, read_metrics


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def launch_options(node, port, *more, nodes=2):
    return ["--nnodes", nodes, "--node-rank", node, "--master-addr", "127.0.0.1", "--master-port", port, *more]


def gpu_environment(node, gpus):
    """Half of the GPUs that this process sees."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpus)))).split(",")[:gpus]
    half = gpus // 2
    return {"NCCL_HOSTID": f"machine{node}", "NCCL_SOCKET_IFNAME": "lo",
            "CUDA_VISIBLE_DEVICES": ",".join(visible[node * half:(node + 1) * half])}


class Machines(contextlib.ExitStack):
    """The jobs of both machines; `start(node, port)` starts one."""

    def __init__(self, start):
        super().__init__()
        self.port = free_port()
        self.jobs = [self.enter_context(start(node, self.port)) for node in (0, 1)]

    def rank_pids(self):
        return {rank: pid for job in self.jobs for rank, pid in job.rank_pids().items()}

    def end(self, limit):
        """([exit code of each launcher], [its stderr], seconds) when both launchers and all known ranks are gone."""
        start = time.monotonic()
        ends = [job.end(limit) for job in self.jobs]
        return [code for code, _, _ in ends], [error for _, error, _ in ends], time.monotonic() - start


def rows(bench, differences, rates, reached):
    """Of part `nodes`: the same losses as on one machine, with and without launchers; failures; how fast through sockets."""
    half = bench.gpus // 2

    def start(config, *sets):
        """Both machines' jobs, which train in one folder, and that folder."""
        run = bench.folder / f"run{next(bench.runs)}"
        return Machines(lambda node, port: bench.start(half, config, *sets, run=run, launch=launch_options(node, port),
                                                       env=gpu_environment(node, bench.gpus))[0]), run

    def start_alone(node, local, port, run, sets):
        """A rank without a launcher; rank 0 keeps the store."""
        env = {"RANK": node * half + local, "WORLD_SIZE": bench.gpus, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": half,
               "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        return bench.start(1, "quickstart", *sets, run=run,
                           env={**gpu_environment(node, bench.gpus), **{key: str(value) for key, value in env.items()}})[0]

    def finish(jobs):
        for job in jobs:
            code, _, _ = job.end(120)
            if code != 0:
                raise JobError(f"exit code {code}\n{job.last_words()}")

    sets = ["optim.lr=1.0e-3", "train.steps=50", "log.interval=1", "checkpoint.save_interval=25", "train.dtype=float32"]
    reference, _ = bench.finish(bench.gpus, "quickstart", *sets)

    def row(how, run):
        metrics = read_metrics(run)
        return {"machines": 2, "gpus": bench.gpus, "started": how, "steps": len(metrics), "last_loss": metrics[-1]["loss"],
                **differences(f"two machines, {how}", "float32", metrics, reference)}

    for zero in (1, 2):
        machines, run = start("quickstart", *sets, f"parallel.zero={zero}")
        with machines:
            finish(machines.jobs)
        yield row(f"launch, zero {zero}", run)
    run, port = bench.folder / f"run{next(bench.runs)}", free_port()
    with contextlib.ExitStack() as stack:
        finish([stack.enter_context(start_alone(node, local, port, run, sets)) for node in (0, 1) for local in range(half)])
    yield row("by hand", run)

    for number, guilty in (("SIGKILL", 0), ("SIGKILL", bench.gpus - 1), ("SIGSTOP", bench.gpus - 1)):
        yield failure(start, number, guilty, lambda run: reached(run, 20))

    for wire in ("float32", "bfloat16"):
        machines, run = start("dense_124m", "train.steps=100000", "log.interval=5", f"parallel.reduce_dtype={wire}")
        with machines:
            machines.rank_pids()
            machines.jobs[0].wait_until(lambda: reached(run, 20), "step 20", 120)
        yield {"machines": 2, "config": "dense_124m", "reduce_dtype": wire, "through": "sockets of the loopback device",
               **rates(read_metrics(run), bench.gpus)}


def failure(start, number, guilty, is_under_way):
    """A rank of a run is killed or stopped."""
    timeout, spare = 5, 10  # seconds
    machines, run = start("quickstart", "train.steps=1000000", "log.interval=1", "checkpoint.save_interval=0", f"parallel.timeout_s={timeout}")
    with machines:
        pids = machines.rank_pids()
        machines.jobs[0].wait_until(lambda: is_under_way(run), "step 20", 90)
        os.kill(pids[guilty], getattr(signal, number))
        codes, errors, seconds = machines.end(60)
    limit = spare + (timeout if number == "SIGSTOP" else 0)
    named = rf"rank {guilty} (is (gone|stopped)|was ended by a signal)"
    messages = [next((line[:300] for line in error.splitlines() if re.search(named, line)), None) for error in errors]
    if not all(messages) or 0 in codes or seconds > limit:
        raise JobError(f"{number} of rank {guilty}: exit codes {codes}, {seconds:.1f} s of {limit}, messages {messages}\n"
                       f"{errors[0][-1500:]}\n{errors[1][-1500:]}")
    return {"machines": 2, "gpus": len(pids), "signal": number, "moment": "mid-run", "rank": guilty, "seconds_to_all_gone": seconds,
            "exit_codes": codes, "timeout_s": timeout if number == "SIGSTOP" else None, "messages": messages}

"""Two groups of this host's GPUs as two machines, without a launcher: part `nodes` of scale_on_gpus.py.

NCCL takes groups with different NCCL_HOSTID for different machines: between them it uses sockets, here those of the loopback device."""
import contextlib
import os
import re
import signal
import time

from job import ADAMW, HALF_MILLION, JobError, free_port, is_running, read_metrics


class Machines(contextlib.ExitStack):
    """One rank per GPU, each started as srun or mpirun would; rank 0 keeps the store."""

    def __init__(self, bench, config, *sets):
        super().__init__()
        self.run = bench.folder / f"run{next(bench.runs)}"
        half, port = bench.gpus // 2, free_port()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(bench.gpus)))).split(",")
        self.jobs = []
        for rank in range(bench.gpus):
            machine, local = divmod(rank, half)
            env = {"RANK": rank, "WORLD_SIZE": bench.gpus, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": half, "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": port, "NCCL_HOSTID": f"machine{machine}", "NCCL_SOCKET_IFNAME": "lo",
                   "CUDA_VISIBLE_DEVICES": ",".join(visible[machine * half:(machine + 1) * half])}
            job, _ = bench.start(1, config, *sets, run=self.run, env={key: str(value) for key, value in env.items()})
            self.jobs.append(self.enter_context(job))

    def finish(self):
        """Metrics of a run to its end."""
        for job in self.jobs:
            code, _, _ = job.end(120)
            if code != 0:
                raise JobError(f"exit code {code}\n{job.last_words()}")
        return read_metrics(self.run)


def rows(bench, differences, rates, reached):
    """Of part `nodes`: the same losses as on one machine; failures; how fast through sockets."""
    sets = ["optim.lr=1.0e-3", "train.steps=50", "log.interval=1", "checkpoint.save_interval=25", "train.dtype=float32"]
    reference, _ = bench.finish(bench.gpus, "quickstart", *sets)
    for zero in (1, 2):
        with Machines(bench, "quickstart", *sets, f"parallel.zero={zero}") as machines:
            metrics = machines.finish()
        yield {"machines": 2, "gpus": bench.gpus, "started": f"by hand, zero {zero}", "steps": len(metrics), "last_loss": metrics[-1]["loss"],
               **differences(f"two machines, zero {zero}", "float32", metrics, reference)}
    for number, guilty in (("SIGKILL", 0), ("SIGKILL", bench.gpus - 1), ("SIGSTOP", bench.gpus - 1)):
        yield failure(bench, number, guilty, reached)
    for wire in ("float32", "bfloat16"):
        with Machines(bench, "dense_124m", *ADAMW, HALF_MILLION, "train.steps=100000", "log.interval=5", f"parallel.reduce_dtype={wire}") as machines:
            machines.jobs[0].wait_until(lambda: reached(machines.run, 20), "step 20", 120)
        yield {"machines": 2, "config": "dense_124m", "reduce_dtype": wire, "through": "sockets of the loopback device",
               **rates(read_metrics(machines.run), bench.gpus)}


def failure(bench, number, guilty, reached):
    """A rank of a run is killed or stopped: all others must end, and one of each machine must name it."""
    timeout, spare = 5, 10  # seconds
    keys = ["train.steps=1000000", "log.interval=1", "checkpoint.save_interval=0", f"parallel.timeout_s={timeout}"]
    with Machines(bench, "quickstart", *keys) as machines:
        machines.jobs[0].wait_until(lambda: reached(machines.run, 20), "step 20", 90)
        start = time.monotonic()
        machines.jobs[guilty].process.send_signal(getattr(signal, number))
        others = [job for rank, job in enumerate(machines.jobs) if rank != guilty]
        ends = [job.end(60) for job in others]
        seconds = time.monotonic() - start
        left = is_running(machines.jobs[guilty].process.pid)  # stopped, and no rank of its machine that could kill it
    codes, errors = [code for code, _, _ in ends], "\n".join(error for _, error, _ in ends)
    limit = spare + (timeout if number == "SIGSTOP" else 0)
    named = rf"rank {guilty}\b.* (is gone|is stopped|has sent no heartbeat)"
    messages = sorted({line[:300] for line in errors.splitlines() if re.search(named, line)})
    wanted = 1 if bench.gpus == 2 else 2  # machines that still have a rank
    if len(messages) < wanted or set(codes) != {70} or seconds > limit or (left and bench.gpus > 2):
        raise JobError(f"{number} of rank {guilty}: exit codes {codes}, {seconds:.1f} s of {limit}, messages {messages}\n{errors[-3000:]}")
    return {"machines": 2, "gpus": bench.gpus, "signal": number, "moment": "mid-run", "rank": guilty, "seconds_to_all_gone": seconds,
            "exit_codes": codes, "timeout_s": timeout if number == "SIGSTOP" else None, "messages": messages}

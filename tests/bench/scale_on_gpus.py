"""Evidence that several GPUs train as one does, and how fast; writes tests/bench/results/scale_<gpu>x<gpus>.json.

    python tests/bench/scale_on_gpus.py --binary build/release/bin/scatterlm --gpus 8 --out tests/bench/results/scale_h200x8.json
    python tests/bench/scale_on_gpus.py ... --part comm --part losses        some parts alone; of a file from the same sources the other parts stay

  comm      `doctor comm`: values exact, bandwidths
  losses    the quickstart's model with one global batch on 1, 2, 4 ... GPUs, parallel.zero 0 to 2, a checkpoint on other numbers
  failures  SIGKILL and SIGSTOP of the first or last rank, two jobs at a time: seconds until all processes are gone
  resume    a run whose rank 0 is killed, and the same command again: the figures and bytes of a run that nobody disturbed
  async_save configs/dense_124m.yaml with checkpoint.async and without: the same bytes, and how long training stood still
  dense     configs/dense_124m.yaml on 1 GPU and on all, 0.5M tokens per step
  olmoe     configs/olmoe_1b_7b.yaml, 4 x 4096 tokens per GPU: 1 GPU with bf16 state, all with fp32 master and zero 2
  alone     the work of the one GPU on each of them at once
  memory    the same with zero 1, and on half of the GPUs with zero 2, against the arithmetic
  start     the same: from the start of the process to the end of the first step
  trace     the same: one step in the profiler, how far collectives hide behind computation
  nodes     two groups of this host as two machines: losses compared with those of one, failures, rate through sockets (two_machines.py)
  launchers the quickstart's model under torchrun and mpirun, compared with `scatterlm launch`; a missing launcher is reported and is no failure

Tokens are made here, so it needs no data. A part that fails leaves a row with its error and the others go on; the file is written
after each part. Rates are medians over the reports after the first; a run that is measured is killed then, for saving would take
longer than measuring. Exit code 1 if a part has failed.
"""
import argparse
import array
import concurrent.futures
import contextlib
import functools
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import evidence
import two_machines
from job import ADAMW, HALF_MILLION, ROOT, Job, JobError, read_metrics, set_options

PARAMETERS = 6_919_161_856  # of configs/olmoe_1b_7b.yaml; of its largest unit, a layer:
LARGEST_UNIT = 419_569_664
# Largest differences of a step. 1.5e-6 were measured for losses in float32; in bfloat16 ties of two experts go another way.
TOLERANCE = {"float32": {"loss": 1e-4, "aux_loss": 1e-4, "grad_norm": 1e-4}, "bfloat16": {"loss": 2e-2, "aux_loss": 2e-2, "grad_norm": 5e-2}}
MEMORY_TOLERANCE = 0.1  # GiB, a percent of the least difference; 0.002 were measured


class Bench:
    def __init__(self, binary, gpus, tokens, folder):
        self.binary, self.gpus, self.tokens, self.folder = binary, gpus, tokens, pathlib.Path(folder)
        self.runs = itertools.count(1)

    def start(self, ranks, config, *sets, run=None, resume="auto", **job):
        """A job that trains in a folder of its own, and that folder."""
        run = run or self.folder / f"run{next(self.runs)}"
        vocabulary = 257 if config == "quickstart" else 50304
        keys = [f"data.train={self.tokens}/{vocabulary}.bin", "data.validation=null", "log.tensorboard=false", "train.tokens=0", *sets]
        return Job(self.binary, ranks, "train", f"configs/{config}.yaml", "--run-dir", run, "--resume", resume, *set_options(keys), **job), run

    def finish(self, ranks, config, *sets, **options):
        """Metrics of a run to its end, and its folder."""
        job, run = self.start(ranks, config, *sets, **options)
        with job:
            code, _, _ = job.end(60)
            if code != 0:
                raise JobError(f"exit code {code}\n{job.last_words()}")
        return read_metrics(run), run

    def measure(self, ranks, config, steps, *sets, limit=60):
        """Metrics up to a step."""
        job, run = self.start(ranks, config, "train.steps=100000", *sets)
        with job:
            job.wait_until(lambda: reached(run, steps), f"step {steps}", limit)
            return read_metrics(run)


def write_tokens(path, vocabulary, count=2_000_000):
    """llm.c's GPT-2 layout. A token follows from the one before but for two bits, so there is something to learn."""
    noise = random.Random(0).choices(range(4), k=count)
    tokens, token = array.array("H"), 1
    for bits in noise:
        token = (token * 7 + bits) % (vocabulary - 1)
        tokens.append(token)
    header = array.array("i", [20240520, 1, count] + [0] * 253)
    path.write_bytes(header.tobytes() + tokens.tobytes())


def reached(run, step):
    metrics = read_metrics(run)
    return bool(metrics) and metrics[-1]["step"] >= step


def powers_of_two(last):
    return [1 << i for i in range(last.bit_length()) if 1 << i <= last]


def rates(metrics, ranks):
    """What a row says of a measured run."""
    later = metrics[1:]
    row = {"gpus": ranks, "steps": metrics[-1]["step"], "peak_gib": metrics[-1]["mem_gib"],
           "step_ms": statistics.median(line["step_ms"] for line in later),
           "tok_s_per_gpu": statistics.median(line["tok_s"] for line in later) / ranks}
    if later[0]["comm"]:
        row["comm"] = {key: statistics.median(line["comm"][key] or 0 for line in later) for key in later[0]["comm"]}
    return row


def comm(bench):
    with Job(bench.binary, bench.gpus, "doctor", "comm", "--mib", 4096) as job:
        code, _, _ = job.end(80)
        if code != 0:
            raise JobError(f"exit code {code}\n{job.last_words()}")
        text = job.printed(job.out)
    if "all values exact" not in text:
        raise JobError(f"values were not said to be exact\n{text}")
    found = re.findall(r"(all_reduce|reduce_scatter|all_gather) +([\d.]+ \w+) +([\d.]+) ms +([\d.]+) GB/s", text)
    for collective, size, ms, gbps in found:
        yield {"gpus": bench.gpus, "collective": collective, "size": size, "ms": float(ms), "link_gbps": float(gbps), "exact": True}


def differences(what, dtype, metrics, reference):
    """What a row says of how far a run is from another one, if that is near enough."""
    apart = {key: max(abs(a[key] - b[key]) for a, b in zip(metrics, reference, strict=True)) for key in TOLERANCE[dtype]}
    for key, tolerance in TOLERANCE[dtype].items():
        if not apart[key] <= tolerance:
            raise JobError(f"{what}: {key} differs by {apart[key]:.2e}, more than {tolerance}")
    return {"max_difference": apart["loss"], "aux_loss_difference": apart["aux_loss"], "grad_norm_difference": apart["grad_norm"],
            "tolerance": TOLERANCE[dtype]}


def rank_files(run, step, ranks):
    return [(run / f"step_{step:08d}/rank_{rank:05d}.safetensors").read_bytes() for rank in range(ranks)]


def losses(bench):
    # At the quickstart's rate of 3e-3 a token whose two best experts are within rounding of each other sends the losses apart.
    base = ["optim.lr=1.0e-3", "train.steps=50", "log.interval=1", "checkpoint.save_interval=25", "checkpoint.keep_last=9"]

    def row(dtype, ranks, zero, metrics, reference, **more):
        return {"gpus": ranks, "dtype": dtype, "zero": zero, **more, "first_step": metrics[0]["step"], "losses": [line["loss"] for line in metrics],
                **differences(f"{dtype}, {ranks} GPUs, zero {zero}", dtype, metrics, reference[-len(metrics):])}

    for dtype, counts in (("float32", powers_of_two(bench.gpus)), ("bfloat16", [1, bench.gpus])):
        sets = [*base, f"train.dtype={dtype}"]
        for ranks in counts:
            metrics, waited = bench.finish(ranks, "quickstart", *sets)
            reference = metrics if ranks == 1 else reference
            yield row(dtype, ranks, 1, metrics, reference)
        yield row(dtype, bench.gpus, 0, bench.finish(bench.gpus, "quickstart", *sets, "parallel.zero=0")[0], reference)
        metrics, beside = bench.finish(bench.gpus, "quickstart", *sets, "parallel.zero=2", "checkpoint.async=true")
        yield row(dtype, bench.gpus, 2, metrics, reference)
        if dtype == "bfloat16":
            metrics, _ = bench.finish(bench.gpus, "quickstart", *sets, "parallel.zero=2", "parallel.reduce_dtype=bfloat16")
            yield row(dtype, bench.gpus, 2, metrics, reference, reduce_dtype="bfloat16")
        if dtype == "float32":  # from checkpoints that all GPUs have saved
            for ranks, run in ((max(1, bench.gpus // 2), waited), (1, beside)):
                yield row(dtype, ranks, 1, bench.finish(ranks, "quickstart", *sets, resume=run / "step_00000025")[0], reference)


def failures(bench):
    """Two at a time: most of each is the start of its ranks."""
    first, last = 0, bench.gpus - 1
    large = "mid-run, parts of 4 MiB and more"  # between whose copies ranks wait for each other
    cases = [("SIGSTOP", "start", last), ("SIGSTOP", "mid-run", first), ("SIGSTOP", large, last), ("SIGSTOP", "while saving", last),
             ("SIGSTOP", "while saving beside", first), ("SIGKILL", "start", first), ("SIGKILL", "mid-run", first), ("SIGKILL", "mid-run", last),
             ("SIGKILL", large, first), ("SIGKILL", "while saving", first), ("SIGKILL", "while saving beside", last)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        yield from pool.map(lambda case: failure(bench, *case), cases)


def failure(bench, number, moment, guilty):
    timeout, start_timeout = 5, 10  # seconds
    config, interval = ("dense_124m", 1000) if "parts" in moment else ("quickstart", 20)
    sets = ["train.steps=1000000", "log.interval=1", f"checkpoint.save_interval={interval}",
            f"checkpoint.async={str('beside' in moment).lower()}", f"parallel.timeout_s={timeout}", f"parallel.start_timeout_s={start_timeout}"]
    job, run = bench.start(bench.gpus, config, *sets)
    with job:
        pids = job.rank_pids()
        if moment == "start":
            time.sleep(1)
        elif moment.startswith("mid-run"):
            job.wait_until(lambda: reached(run, 20), "step 20", 60)
        else:
            job.wait_until(lambda: any(run.glob(".tmp_step_*")), "checkpoint under way", 60)
        os.kill(pids[guilty], getattr(signal, number))
        code, error, seconds = job.end(start_timeout + 30)
    names_it = rf"rank {guilty} is {'gone' if number == 'SIGKILL' else 'stopped'}"
    if moment == "start":  # whoever notices first: a watchdog, the ranks that wait for it, or the launcher
        names_it += rf"|rank {guilty} was |did not come within .*\b{guilty}$"
    message = next((line for line in error.splitlines() if re.search(names_it, line)), None)
    if not message or code == 0:
        raise JobError(f"{number} of rank {guilty}, {moment}: exit code {code}, and the message does not name it\n{error[-1500:]}")
    return {"gpus": bench.gpus, "signal": number, "moment": moment, "rank": guilty, "seconds_to_all_gone": seconds, "exit_code": code,
            "timeout_s": None if number == "SIGKILL" else start_timeout if moment == "start" else timeout, "message": message[:300]}


def resume(bench):
    sets = ["train.steps=300", "log.interval=1", "checkpoint.save_interval=100", "train.deterministic=true"]
    reference, whole = bench.finish(bench.gpus, "quickstart", *sets)
    job, run = bench.start(bench.gpus, "quickstart", *sets)
    with job:
        pids = job.rank_pids()
        job.wait_until(lambda: reached(run, 120), "step 120", 60)
        os.kill(pids[0], signal.SIGKILL)
        code, _, _ = job.end(30)
    if code == 0 or (run / "step_00000300").exists():
        raise JobError(f"rank 0 was killed, and the run ended with exit code {code}")
    metrics, _ = bench.finish(bench.gpus, "quickstart", *sets, run=run)
    if any(a[key] != b[key] for a, b in zip(metrics, reference, strict=True) for key in ("step", "loss", "aux_loss", "grad_norm")):
        raise JobError("resumed after SIGKILL: other figures than those of an undisturbed run")
    if rank_files(run, 300, bench.gpus) != rank_files(whole, 300, bench.gpus):
        raise JobError("resumed after SIGKILL: another last checkpoint than that of an undisturbed run")
    yield {"gpus": bench.gpus, "steps": len(metrics), "killed_after_step": 120, "same_figures": True, "same_bytes": True}


def async_save(bench):
    sets = ["train.steps=12", "optim.warmup_steps=2", "log.interval=1", "checkpoint.save_interval=3", "checkpoint.keep_last=1",
            "train.deterministic=true"]
    files = {}
    for beside in (False, True):
        metrics, run = bench.finish(bench.gpus, "dense_124m", *ADAMW, HALF_MILLION, *sets, f"checkpoint.async={str(beside).lower()}")
        files[beside] = rank_files(run, 12, bench.gpus)
        yield {"config": "dense_124m", "gpus": bench.gpus, "async": beside, "bytes_a_rank": len(files[beside][0]),
               "save_stall_ms": [line["save_stall_ms"] for line in metrics if line["save_stall_ms"] > 0],
               "step_ms": statistics.median(line["step_ms"] for line in metrics[1:])}
        shutil.rmtree(run)
    if files[False] != files[True]:
        raise JobError("checkpoint.async changes the bytes of the last checkpoint")
    yield {"config": "dense_124m", "gpus": bench.gpus, "same_bytes": True}


def dense(bench):
    one = None
    for ranks, wire, steps in ((1, "float32", 15), (bench.gpus, "float32", 60), (bench.gpus, "bfloat16", 60)):
        metrics = bench.measure(ranks, "dense_124m", steps, *ADAMW, HALF_MILLION, f"log.interval={steps // 3}", f"parallel.reduce_dtype={wire}", limit=50)
        row = {"config": "dense_124m", "reduce_dtype": wire, **rates(metrics, ranks)}
        one = one or row["tok_s_per_gpu"]
        yield {**row, "efficiency": row["tok_s_per_gpu"] / one}


def olmoe_keys(ranks, *more):
    return [f"train.global_batch_tokens={ranks * 4 * 4096}", "optim.warmup_steps=100", *more]


def olmoe(bench):
    one = None
    for ranks, state, wire in ((1, "bfloat16", "float32"), (bench.gpus, "float32", "float32"), (bench.gpus, "float32", "bfloat16")):
        keys = olmoe_keys(ranks, "log.interval=5", f"optim.state_dtype={state}", f"parallel.reduce_dtype={wire}")
        row = {"config": "olmoe_1b_7b", "zero": 2, "state_dtype": state, "reduce_dtype": wire,
               **rates(bench.measure(ranks, "olmoe_1b_7b", 20, *keys, limit=80), ranks)}
        one = one or row["tok_s_per_gpu"]
        yield {**row, "efficiency": row["tok_s_per_gpu"] / one}


def alone(bench):
    """The work of one GPU on each of them at once, without communication: together they are as fast as the slowest."""
    keys = olmoe_keys(1, "log.interval=5", "optim.state_dtype=bfloat16")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(bench.gpus)))).split(",")[:bench.gpus]
    with contextlib.ExitStack() as jobs:
        started = [bench.start(1, "olmoe_1b_7b", "train.steps=100000", *keys, env={"CUDA_VISIBLE_DEVICES": gpu}) for gpu in visible]
        for job, _ in started:
            jobs.enter_context(job)
        for job, run in started:
            job.wait_until(functools.partial(reached, run, 20), "step 20", 80)
        yield {"config": "olmoe_1b_7b", "state_dtype": "bfloat16", "step_ms": [rates(read_metrics(run), 1)["step_ms"] for _, run in started]}


def memory(bench):
    """Differences that the formulas of docs/distributed.md give, and those measured."""
    gib, peak = 1 << 30, {}
    half = bench.gpus // 2
    runs = [(bench.gpus, 2), (bench.gpus, 1)]
    if half > 1:  # one GPU has no room for the fp32 state
        runs.append((half, 2))
    for ranks, zero in runs:
        keys = olmoe_keys(ranks, "log.interval=1", f"parallel.zero={zero}")
        peak[ranks, zero] = bench.measure(ranks, "olmoe_1b_7b", 3, *keys)[-1]["mem_gib"]
        yield {"config": "olmoe_1b_7b", "gpus": ranks, "zero": zero, "peak_gib": peak[ranks, zero]}
    planned = [(f"zero 1 minus zero 2, {bench.gpus} GPUs", peak[bench.gpus, 1] - peak[bench.gpus, 2],
                4 * PARAMETERS * (1 - 1 / bench.gpus) - 2 * 4 * LARGEST_UNIT)]
    if half > 1:
        planned.append((f"zero 2, {half} GPUs minus {bench.gpus}", peak[half, 2] - peak[bench.gpus, 2],
                        (16 * PARAMETERS - 4 * LARGEST_UNIT) * (1 / half - 1 / bench.gpus)))
    for what, measured, plan in planned:
        yield {"what": what, "measured_gib": measured, "planned_gib": plan / gib, "tolerance_gib": MEMORY_TOLERANCE}
    for what, measured, plan in planned:
        if abs(measured - plan / gib) > MEMORY_TOLERANCE:
            raise JobError(f"{what}: {measured:.2f} GiB, the arithmetic says {plan / gib:.2f}")


def start(bench):
    for repetition in (1, 2):  # the first reads the program and its libraries from the disk
        job, run = bench.start(bench.gpus, "olmoe_1b_7b", "train.steps=100000", *olmoe_keys(bench.gpus, "log.interval=1"))
        with job:
            seconds = job.wait_until(lambda: reached(run, 1), "first step", 60)
            phases = {name: float(s) for s, name in re.findall(r"\[([\d.]+) s\] (\w+):", job.printed(job.out))}
        yield {"config": "olmoe_1b_7b", "gpus": bench.gpus, "zero": 2, "repetition": repetition, "first_step_s": seconds, "phases_s": phases}


def trace(bench):
    keys = olmoe_keys(bench.gpus, "log.trace_step=12", "log.interval=5")
    job, run = bench.start(bench.gpus, "olmoe_1b_7b", "train.steps=100000", *keys)
    path = run / "trace_step_00000012_summary.json"
    with job:
        job.wait_until(path.exists, "summary of the trace", 150)
    summary = json.loads(path.read_text())
    yield {"config": "olmoe_1b_7b", "gpus": bench.gpus, "zero": 2, "state_dtype": "float32", "reduce_dtype": "float32", **summary,
           "kernels": summary["kernels"][:8]}


def nodes(bench):
    if bench.gpus % 2:
        raise JobError(f"{bench.gpus} GPUs are not two equal machines")
    yield from two_machines.rows(bench, differences, rates, reached)


def launchers(bench):
    sets = ["optim.lr=1.0e-3", "optim.warmup_steps=10", "train.steps=20", "log.interval=1", "train.dtype=float32", "parallel.zero=1"]
    reference, _ = bench.finish(bench.gpus, "quickstart", *sets)
    folders = f"{ROOT}/.venv/bin:{os.environ['PATH']}"
    for launcher, options in (("torchrun", ["--nproc-per-node", bench.gpus, "--no-python"]), ("mpirun", ["--allow-run-as-root", "-n", bench.gpus])):
        path = shutil.which(launcher, path=folders)
        if not path:
            yield {"launcher": launcher, "missing": True}
            continue
        metrics, _ = bench.finish(bench.gpus, "quickstart", *sets, foreign=[path, *options])
        yield {"launcher": launcher, "gpus": bench.gpus, "steps": len(metrics), "last_loss": metrics[-1]["loss"],
               **differences(f"{launcher} beside the own launcher", "float32", metrics, reference)}


PARTS = {part.__name__: part for part in (comm, losses, failures, resume, async_save, dense, olmoe, alone, memory, start, trace, nodes, launchers)}


def rows_before(path, head):
    """Rows that the same sources wrote on the same machines."""
    if not path.exists():
        return []
    before = json.loads(path.read_text())
    same = all(before[key] == head[key] for key in ("source_hash", "gpu", "num_gpus"))
    return before["rows"] if same else []


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True, type=pathlib.Path)
    parser.add_argument("--gpus", required=True, type=int)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--part", action="append", choices=PARTS, help="may be repeated; all parts otherwise")
    options = parser.parse_args()
    if options.gpus < 2:
        parser.error("--gpus: at least 2")
    binary = options.binary.resolve()
    head = evidence.of_gpus("scaling", binary, options.gpus)
    with tempfile.TemporaryDirectory() as tokens:
        for vocabulary in (257, 50304):
            write_tokens(pathlib.Path(tokens) / f"{vocabulary}.bin", vocabulary)
        parts = options.part or list(PARTS)
        rows, failed = [row for row in rows_before(options.out, head) if row["part"] not in parts], False
        for part in parts:
            begin = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                try:
                    for row in PARTS[part](Bench(binary, options.gpus, tokens, folder)):
                        rows.append({"part": part, **row})
                        print(part, {key: value for key, value in row.items() if key != "losses"}, flush=True)
                except Exception as error:  # whatever it is: the other parts are worth their time
                    failed = True
                    rows.append({"part": part, "error": f"{type(error).__name__}: {error}"})
                    print(part, "failed:", rows[-1]["error"], flush=True)
            print(f"{part}: {time.monotonic() - begin:.0f} s", flush=True)
            evidence.write(options.out, {**head, "rows": rows})
    sys.exit(failed)


if __name__ == "__main__":
    main()

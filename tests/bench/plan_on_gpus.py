"""Planned and measured memory of training steps on the GPUs of one machine; writes tests/bench/results/plan_<gpu>x<number>.json.

    python tests/bench/plan_on_gpus.py --binary build/release/bin/scatterlm --gpus 2 --out tests/bench/results/plan_h200x2.json

Each of RUNS trains a few steps of a shipped configuration, on one GPU and with every ZeRO stage on all of them. A row holds the peak that
`scatterlm plan` computed and the one that the run reported. A difference of more than 3 % is written under `problems`, and gives exit code 1.
"""
import argparse
import json
import pathlib
import sys
import tempfile

import evidence
from job import Job, JobError, read_metrics, set_options

LIMIT = 120  # seconds of a run
WITHIN = 0.03
SMALL_STATE = ("optim.state_dtype=bfloat16", "train.grad_dtype=bfloat16")
# Configuration and keys; OLMoE's float32 state does not fit on one GPU.
RUNS = [("dense_124m", ()), ("moe_124m", ()), ("moe_124m", ("train.recompute=norms",)), ("moe_124m", ("train.recompute=layer",)), ("moa_moe_124m", ()),
        ("olmoe_1b_7b", SMALL_STATE)]


def measure(binary, data, folder, config, sets, gpus, zero):
    sequences, length = (4, 4096) if config == "olmoe_1b_7b" else (32, 1024)
    keys = [f"data.train={data}/train.bin", "data.validation=null", "train.tokens=0", "train.steps=4", "optim.warmup_steps=1", "log.interval=2",
            "log.tensorboard=false", "checkpoint.save_interval=0", f"parallel.zero={zero}", f"train.micro_batch_size={sequences}",
            f"train.global_batch_tokens={gpus * sequences * length}", *sets]
    path, run = f"configs/{config}.yaml", f"{folder}/run"
    with Job(binary, 1, "plan", path, "--gpus", gpus, "--json", f"{folder}/plan.json", *set_options(keys)) as job:
        job.wait_until(lambda: job.process.poll() is not None, "plan", LIMIT)
    with Job(binary, gpus, "train", path, "--run-dir", run, *set_options(keys)) as job:
        job.wait_until(lambda: job.process.poll() is not None, "end", LIMIT)
        if job.process.returncode != 0:
            raise JobError(f"exit code {job.process.returncode}\n{job.last_words()}")
    planned = json.loads(pathlib.Path(folder, "plan.json").read_text())["memory"] / 2**30
    return {"config": config, "sets": list(sets), "gpus": gpus, "zero": zero, "planned_gib": planned, "measured_gib": read_metrics(run)[-1]["mem_gib"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True, type=pathlib.Path)
    parser.add_argument("--gpus", required=True, type=int)
    parser.add_argument("--data", default="data/headers", type=pathlib.Path, help="folder with train.bin of the quickstart")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    options = parser.parse_args()
    binary = options.binary.resolve()
    head = evidence.of_gpus("plan", binary, options.gpus)
    rows, problems = [], []
    shares = [(1, 1), *((options.gpus, zero) for zero in (0, 1, 2) if options.gpus > 1)]
    for config, sets in RUNS:
        for gpus, zero in shares:
            name = " ".join([config, *sets, f"{gpus} GPUs, ZeRO {zero}"])
            try:
                with tempfile.TemporaryDirectory() as folder:
                    rows.append(measure(binary, options.data.resolve(), folder, config, sets, gpus, zero))
            except (JobError, OSError, ValueError, KeyError, IndexError) as error:
                problems.append(f"{name}: {error}")
                print(problems[-1], file=sys.stderr, flush=True)
                continue
            ratio = rows[-1]["measured_gib"] / rows[-1]["planned_gib"]
            print(f"{name}: {rows[-1]['planned_gib']:.2f} GiB planned, {rows[-1]['measured_gib']:.2f} measured, {ratio:.3f}", flush=True)
            if abs(ratio - 1) > WITHIN:
                problems.append(f"{name}: measured / planned is {ratio:.3f}")
            evidence.write(options.out, {**head, "problems": problems, "rows": rows})
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

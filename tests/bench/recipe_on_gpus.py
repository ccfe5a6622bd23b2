"""Evidence of how well the shipped configurations learn; writes tests/bench/results/train_recipe_<gpu>.json.

    python tests/bench/recipe_on_gpus.py --binary build/release/bin/scatterlm --out tests/bench/results/train_recipe_h200.json

Each of RUNS trains 160 steps of 524,288 tokens (warm-up 20) on one GPU, as many at a time as there are GPUs, and each of CPU_RUNS the whole
quickstart on a few cores at the same time. Rows hold what was changed and every validation loss. A model is judged by its best rate.
`--only TEXT...` takes the runs whose name holds one of these texts; rows of other runs stay if the file has them from the same sources. The
file is written after every run.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import queue
import subprocess
import sys
import tempfile

import evidence
from job import ADAMW, HALF_MILLION, JobError, read_metrics, set_options

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHORT = [*ADAMW, HALF_MILLION, "optim.min_lr_ratio=0.1", "train.tokens=0", "train.steps=160", "optim.warmup_steps=20", "train.eval_interval=40"]
RATES = (3e-4, 4.5e-4, 6e-4)
RUNS = [*((config, rate, ()) for config in ("dense_124m", "moe_124m") for rate in RATES),
        *((config, 9e-4, ("optim.name=muon",)) for config in ("dense_124m", "moe_124m"))]
DENSE_TWIN = ("model.layers=gqa+dense*4", "model.dense.intermediate_size=256", "model.moa=null", "model.moe=null", "model.router=null")
CPU_RUNS = [("quickstart", rate, sets) for rate in (1e-3, 2e-3, 3e-3) for sets in ((), DENSE_TWIN)]
CPU_THREADS = 4


def name_of(config, rate, sets):
    return " ".join([config, f"{rate:g}", *sets])


def train(binary, data, device, places, run):
    """The row of one run, on the first GPU (or set of cores) that is free."""
    config, rate, sets = run
    own = SHORT if device == "cuda" else [f"train.threads={CPU_THREADS}"]
    keys = [f"data.train={data}/train.bin", f"data.validation={data}/val.bin", f"train.device={device}", *own, f"optim.lr={rate}", *sets,
            "checkpoint.save_interval=0", "log.tensorboard=false"]
    place = places.get()
    try:
        with tempfile.TemporaryDirectory() as folder:
            command = [str(binary), "train", f"configs/{config}.yaml", "--run-dir", f"{folder}/run", *set_options(keys)]
            result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": place})
            if result.returncode != 0:
                raise JobError(f"{name_of(*run)}: exit code {result.returncode}\n{result.stdout[-1500:]}{result.stderr}")
            metrics = read_metrics(f"{folder}/run")
    finally:
        places.put(place)
    last = metrics[-1]
    print(f"{name_of(*run)}: {last['val_loss']:.4f}", flush=True)
    return {"name": name_of(*run), "config": config, "lr": rate, "sets": list(sets), "device": device, "steps": last["step"], "tokens": last["tokens"],
            "val_loss": last["val_loss"], "validation": [[line["step"], line["val_loss"]] for line in metrics if line["val_loss"] is not None],
            "tok_s": last["tok_s"]}


def rows_to_keep(path, head):
    """Those of an earlier part, measured with the same sources."""
    if not path.exists():
        return {}
    earlier = json.loads(path.read_text())
    return {row["name"]: row for row in earlier["rows"]} if earlier["source_hash"] == head["source_hash"] else {}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True, type=pathlib.Path)
    parser.add_argument("--data", default="data/headers", help="folder with train.bin and val.bin of the quickstart")
    parser.add_argument("--only", default=[""], nargs="+", help="runs whose name holds one of these")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    options = parser.parse_args()
    binary = options.binary.resolve()
    gpus = queue.Queue()
    count = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout.count("GPU ")
    for gpu in range(count):
        gpus.put(str(gpu))
    cores = queue.Queue()
    for _ in range(max(1, (os.cpu_count() - 4 * count) // CPU_THREADS)):
        cores.put("")
    head = evidence.of_gpus("train_recipe", binary, num_gpus=1)
    rows = rows_to_keep(options.out, head)
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        futures = [pool.submit(train, binary, options.data, device, places, run)
                   for device, places, runs in (("cuda", gpus, RUNS), ("cpu", cores, CPU_RUNS)) for run in runs
                   if any(text in name_of(*run) for text in options.only)]
        failed = []
        for future in concurrent.futures.as_completed(futures):
            try:
                row = future.result()
                rows[row["name"]] = row
            except JobError as error:
                failed.append(str(error))
            order = [name_of(*run) for run in RUNS + CPU_RUNS]
            evidence.write(options.out, {**head, "cpu": evidence.cpu_name(), "cpu_threads": CPU_THREADS,
                                         "rows": sorted(rows.values(), key=lambda row: order.index(row["name"]))})
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()

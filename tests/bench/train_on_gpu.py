"""Evidence that training on a GPU does what training on a CPU does; writes tests/bench/results/train_<gpu>.json.

    cmake -S . -B build/plain -G Ninja -DCMAKE_BUILD_TYPE=Release -DSCATTERLM_KERNELS=OFF && cmake --build build/plain --target scatterlm
    python tests/bench/train_on_gpu.py --binary build/release/bin/scatterlm --plain build/plain/bin/scatterlm \\
        --out tests/bench/results/train_h200.json

Rows: the quickstart's model for 50 steps in float32 on the CPU and on the GPU, at a learning rate of 1e-3 (losses agree to 1e-4) and at
the quickstart's 3e-3 (reported only: a token whose two best experts are within rounding of each other goes another way on the other
device, and at this rate the losses drift apart from there); 200 steps of the quickstart and of
configs/moe_124m.yaml on the GPU in float32, in bfloat16 through the kernels, and in bfloat16 through plain LibTorch (mean difference to
float32 over steps 100-200: at most twice that of plain LibTorch, both as means over SEEDS, for a single run is off by 0.02 to 0.1 either
way), configs/moa_moe_124m.yaml likewise; the whole quickstart, without token rounding and with it (the last validation losses at most
0.02 nats apart). Refuses a binary whose sources differ from the index. What does not agree is written too, under `problems`, and gives
exit code 1.

Runs go side by side, on all GPUs that CUDA_VISIBLE_DEVICES names: losses count here, not speed.
"""
import argparse
import concurrent.futures
import itertools
import os
import pathlib
import queue
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import evidence
from job import ADAMW, JobError, read_metrics, set_options

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOLERANCE = 1e-4
SEEDS = (1, 2, 3, 4)
ROUNDING_TOLERANCE = 0.02  # nats
RUNS_PER_GPU = 5  # at a time
problems = []  # what did not agree


class Machine:
    """Runs of the program, each on one GPU."""

    def __init__(self, folder, data):
        self.folder, self.data = folder, data
        count = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout.count("GPU ")
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count)))).split(",")
        self.places = queue.Queue()
        for _, gpu in itertools.product(range(RUNS_PER_GPU), visible):
            self.places.put(gpu)
        self.pool = concurrent.futures.ThreadPoolExecutor(64)  # more than there are parts and runs: parts wait for their runs

    def train(self, binary, config, *sets):
        """Future of the lines of a new run's metrics.jsonl."""
        return self.pool.submit(self._train, binary, config, *sets)

    def _train(self, binary, config, *sets):
        keys = [f"data.train={self.data}/train.bin", f"data.validation={self.data}/val.bin", *sets]
        run_dir = tempfile.mkdtemp(dir=self.folder)
        command = [str(binary), "train", f"configs/{config}.yaml", "--run-dir", f"{run_dir}/run"]
        gpu = self.places.get()
        begin = time.monotonic()
        try:
            result = subprocess.run(command + set_options(keys), cwd=ROOT, capture_output=True, text=True,
                                    env={**os.environ, "CUDA_VISIBLE_DEVICES": gpu})
        finally:
            self.places.put(gpu)
        if result.returncode != 0:
            raise JobError(f"{config} {sets}: exit code {result.returncode}\n{result.stdout[-2000:]}{result.stderr}")
        metrics = read_metrics(f"{run_dir}/run")
        shutil.rmtree(run_dir)  # a checkpoint of 6 GB
        print(config, *sets, f"{time.monotonic() - begin:.0f} s", flush=True)
        return metrics


def steps(count):
    return ["train.tokens=0", f"train.steps={count}", "log.interval=1", "data.validation=null"]


def losses(future):
    return [line["loss"] for line in future.result()]


def compare_devices(machine, binary):
    """Rows of 50 steps in float32 on both devices, at both learning rates."""
    runs = [(rate, device, machine.train(binary, "quickstart", *steps(50), f"train.device={device}", "train.dtype=float32", f"optim.lr={rate}"))
            for rate in (1e-3, 3e-3) for device in ("cpu", "cuda")]
    rows = [{"run": "50 steps", "config": "quickstart", "lr": rate, "device": device, "dtype": "float32", "losses": losses(future)}
            for rate, device, future in runs]
    for cpu, gpu in (rows[:2], rows[2:]):
        gpu["max_difference_to_cpu"] = max(abs(a - b) for a, b in zip(cpu["losses"], gpu["losses"], strict=True))
    if not rows[1]["max_difference_to_cpu"] < TOLERANCE:
        problems.append(f"float32 losses of CPU and GPU differ by {rows[1]['max_difference_to_cpu']:.2e}, more than {TOLERANCE}")
    return rows


def compare_kernels(machine, binary, plain, config, *sets):
    """Rows of 200 steps on the GPU, by seed: float32, the kernels, and plain LibTorch in bfloat16."""
    programs = (("float32", binary, "float32"), ("kernels", binary, "bfloat16"), ("plain", plain, "bfloat16"))
    runs = [(seed, name, dtype, machine.train(program, config, *steps(200), "train.device=cuda", f"train.dtype={dtype}", f"train.seed={seed}", *sets))
            for seed in SEEDS for name, program, dtype in programs]
    rows = [{"run": name, "config": config, "seed": seed, "device": "cuda", "dtype": dtype, "peak_gib": future.result()[-1]["mem_gib"],
             "losses": losses(future)} for seed, name, dtype, future in runs]
    exact = {row["seed"]: row["losses"] for row in rows if row["run"] == "float32"}
    for row in rows:
        pairs = list(zip(exact[row["seed"]], row["losses"], strict=True))[100:]
        row["mean_difference_to_float32"] = statistics.fmean(abs(a - b) for a, b in pairs)
    ours, theirs = (statistics.fmean(row["mean_difference_to_float32"] for row in rows if row["run"] == name) for name in ("kernels", "plain"))
    if not ours <= 2 * theirs:
        problems.append(f"{config}: losses through the kernels differ from float32 by {ours:.2e}, plain LibTorch's by {theirs:.2e}")
    return rows


def compare_rounding(machine, binary):
    """The whole quickstart, with plain top-k and with experts that take full tiles; both evaluated with plain top-k."""
    rows = []
    runs = [(rounding, machine.train(binary, "quickstart", "train.device=cuda", f"model.router.rounding={rounding}")) for rounding in ("none", "nearest")]
    for rounding, future in runs:
        metrics = future.result()
        rows.append({"run": "quickstart", "config": "quickstart", "rounding": rounding, "device": "cuda", "dtype": "bfloat16", "steps": metrics[-1]["step"],
                     "validation": [[line["step"], line["val_loss"]] for line in metrics if line["val_loss"] is not None],
                     "peak_gib": metrics[-1]["mem_gib"]})
    plain, rounded = (row["validation"][-1][1] for row in rows)
    rows[1]["difference_to_plain"] = rounded - plain
    if not abs(rounded - plain) <= ROUNDING_TOLERANCE:
        problems.append(f"with token rounding the quickstart ends at {rounded:.4f}, without at {plain:.4f}")
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True, type=pathlib.Path)
    parser.add_argument("--plain", required=True, type=pathlib.Path, help="the program built with -DSCATTERLM_KERNELS=OFF")
    parser.add_argument("--data", default="data/headers", help="folder with train.bin and val.bin of the quickstart")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    options = parser.parse_args()
    binary = options.binary.resolve()
    plain = options.plain.resolve()
    head = evidence.of_gpus("train", binary, num_gpus=1)
    if evidence.of_binary(plain)["source_hash"] != head["source_hash"]:
        sys.exit(f"{plain} and {binary} are built from different sources")

    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(folder, options.data)
        parts = [(compare_devices, binary), (compare_kernels, binary, plain, "quickstart")]
        parts += [(compare_kernels, binary, plain, config, "train.micro_batch_size=4", "train.global_batch_tokens=4096", "optim.warmup_steps=20", *ADAMW)
                  for config in ("moe_124m", "moa_moe_124m")]
        parts.append((compare_rounding, binary))
        futures = [machine.pool.submit(part, machine, *arguments) for part, *arguments in parts]
        rows = [row for future in futures for row in future.result()]
    for row in rows:
        print({key: value for key, value in row.items() if key not in ("losses", "validation")})
    evidence.write(options.out, {**head, "problems": problems, "rows": rows})
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()

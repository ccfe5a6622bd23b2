"""Training speed on the CPU: scatterlm against plain PyTorch (pytorch_baseline.py), the same model, in alternating blocks, on an idle
machine and beside processes that keep a core busy each.

    .venv/bin/python tests/bench/cpu_speed.py [--blocks 4] [--steps 40] [--threads 2] [--busy 0 1 2] [--json FILE]

A machine's speed drifts, so the programs take turns and each pair of neighbouring blocks gives one ratio. Beside busy processes,
scatterlm also runs with one thread and with the spins that libgomp takes by itself. Asserts nothing; prints the figures, and writes
them as evidence unless the binary's sources differ from the index.
"""
import argparse
import contextlib
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

import evidence
from job import read_metrics

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKENS = 16 * 256  # of one step
WARM_UP = 5  # steps not counted

CONFIG = """\
run: {{dir: {folder}/runs, name: speed}}
model:
  vocab_size: 257
  hidden_size: 128
  layers: "gqa+moe*4"
  attention: {{num_attention_heads: 4, num_key_value_heads: 4, head_dim: 32}}
  moe: {{num_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 128}}
data: {{train: {folder}/data/train.bin}}
train: {{steps: {steps}, sequence_length: 256, global_batch_tokens: {tokens}, dtype: float32, device: cpu}}
log: {{interval: 1, tensorboard: false}}
"""


SPINS_OF_LIBGOMP = {"GOMP_SPINCOUNT": "300000"}


def run(*command, env={}):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, env={**os.environ, **env})
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit code {result.returncode}\n{result.stderr}")
    return result.stdout


@contextlib.contextmanager
def busy_processes(count):
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def pytorch_block(arguments, threads):
    """Milliseconds of each step."""
    return json.loads(run(sys.executable, ROOT / "tests/bench/pytorch_baseline.py", "--steps", arguments.steps,
                          "--threads", threads))["step_ms"]


def scatterlm_block(arguments, folder, threads, env={}):
    shutil.rmtree(folder / "runs", ignore_errors=True)
    run(arguments.binary, "train", folder / "speed.yaml", "--set", f"train.threads={threads}", env=env)
    return [line["step_ms"] for line in read_metrics(folder / "runs/speed")]


def prepare(arguments, folder):
    (folder / "speed.yaml").write_text(CONFIG.format(folder=folder, steps=arguments.steps, tokens=TOKENS))
    (folder / "random.txt").write_bytes(random.Random(0).randbytes(2 * TOKENS * arguments.steps))
    run(arguments.binary, "data", "prepare", folder / "random.txt", "--out", folder / "data")


def measure(arguments, folder, busy):
    """The rows of one number of busy processes, and the ratios of the blocks."""
    threads = arguments.threads
    programs = {("PyTorch", threads): lambda: pytorch_block(arguments, threads),
                ("scatterlm", threads): lambda: scatterlm_block(arguments, folder, threads)}
    if busy:
        programs["scatterlm, spins of libgomp", threads] = lambda: scatterlm_block(arguments, folder, threads, SPINS_OF_LIBGOMP)
        programs["PyTorch", 1] = lambda: pytorch_block(arguments, 1)
        programs["scatterlm", 1] = lambda: scatterlm_block(arguments, folder, 1)
    speeds = {program: [] for program in programs}
    with busy_processes(busy):
        for block in range(arguments.blocks):
            for program, run_block in programs.items():
                speed = 1000 * TOKENS / statistics.median(run_block()[WARM_UP:])
                speeds[program].append(speed)
                print(f"{busy} busy  block {block + 1}  {program[0]:<28} {program[1]} threads {speed:8.0f} tok/s", flush=True)
    rows = [{"busy": busy, "program": name, "threads": count, "tok_s": statistics.median(values), "tok_s_min": min(values),
             "tok_s_max": max(values)} for (name, count), values in speeds.items()]
    return rows, [ours / theirs for theirs, ours in zip(speeds["PyTorch", threads], speeds["scatterlm", threads])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=4, help="blocks of each program")
    parser.add_argument("--steps", type=int, default=40, help="steps of one block")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--busy", type=int, nargs="+", default=[0], help="numbers of busy processes to run beside")
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "build/release/bin/scatterlm")
    parser.add_argument("--json", type=pathlib.Path, help="evidence file to write")
    arguments = parser.parse_args()
    origin = evidence.of_binary(arguments.binary) if arguments.json else {}

    rows, ratios = [], {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        prepare(arguments, folder)
        for busy in arguments.busy:
            new_rows, new_ratios = measure(arguments, folder, busy)
            rows += new_rows
            ratios[busy] = statistics.median(new_ratios)
    for row in rows:
        print("{busy} busy  {program:<28} {threads} threads {tok_s:8.0f} tok/s  (blocks: {tok_s_min:.0f} to {tok_s_max:.0f})".format(**row))
    for busy, ratio in ratios.items():
        print(f"{busy} busy  scatterlm / PyTorch: {ratio:.2f}")
    if arguments.json:
        evidence.write(arguments.json, {"bench": "cpu_speed", "cpu": evidence.cpu_name(), "cores": os.cpu_count(), **origin,
                                        "ratios": [{"busy": busy, "ratio": ratio} for busy, ratio in ratios.items()], "rows": rows})


if __name__ == "__main__":
    main()

"""Training speed on the CPU: scatterlm against plain PyTorch (pytorch_baseline.py), the same model, in alternating blocks.

    .venv/bin/python tests/bench/cpu_speed.py [--blocks 4] [--steps 40] [--threads 2] [--json FILE]

A machine's speed drifts, so the two take turns and each pair of blocks gives one ratio. Asserts nothing; prints the figures, and
writes them as evidence unless the binary's sources differ from the index.
"""
import argparse
import json
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
train: {{steps: {steps}, sequence_length: 256, global_batch_tokens: {tokens}, threads: {threads}, dtype: float32, device: cpu}}
log: {{interval: 1, tensorboard: false}}
"""


def run(*command):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit code {result.returncode}\n{result.stderr}")
    return result.stdout


def pytorch_block(arguments):
    """Milliseconds of each step."""
    return json.loads(run(sys.executable, ROOT / "tests/bench/pytorch_baseline.py", "--steps", arguments.steps,
                          "--threads", arguments.threads))["step_ms"]


def scatterlm_block(arguments, folder):
    shutil.rmtree(folder / "runs", ignore_errors=True)
    run(arguments.binary, "train", folder / "speed.yaml")
    return [line["step_ms"] for line in read_metrics(folder / "runs/speed")]


def prepare(arguments, folder):
    (folder / "speed.yaml").write_text(
        CONFIG.format(folder=folder, steps=arguments.steps, tokens=TOKENS, threads=arguments.threads))
    (folder / "random.txt").write_bytes(random.Random(0).randbytes(2 * TOKENS * arguments.steps))
    run(arguments.binary, "data", "prepare", folder / "random.txt", "--out", folder / "data")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=4, help="blocks of each program")
    parser.add_argument("--steps", type=int, default=40, help="steps of one block")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "build/release/bin/scatterlm")
    parser.add_argument("--json", type=pathlib.Path, help="evidence file to write")
    arguments = parser.parse_args()
    origin = evidence.of_binary(arguments.binary) if arguments.json else {}

    speeds = {"PyTorch": [], "scatterlm": []}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        prepare(arguments, folder)
        for block in range(arguments.blocks):
            for program, step_ms in (("PyTorch", pytorch_block(arguments)), ("scatterlm", scatterlm_block(arguments, folder))):
                speed = 1000 * TOKENS / statistics.median(step_ms[WARM_UP:])
                speeds[program].append(speed)
                print(f"block {block + 1}  {program:<9} {speed:8.0f} tok/s", flush=True)
    for program, values in speeds.items():
        print(f"{program:<9} {statistics.median(values):8.0f} tok/s  (blocks: {min(values):.0f} to {max(values):.0f})")
    ratios = [ours / theirs for theirs, ours in zip(speeds["PyTorch"], speeds["scatterlm"])]
    print(f"scatterlm / PyTorch: {statistics.median(ratios):.2f}  (blocks: {min(ratios):.2f} to {max(ratios):.2f})")
    if arguments.json:
        rows = [{"program": program, "tok_s": statistics.median(values), "tok_s_min": min(values), "tok_s_max": max(values)}
                for program, values in speeds.items()]
        evidence.write(arguments.json, {"bench": "cpu_speed", "cpu": evidence.cpu_name(), "threads": arguments.threads, **origin,
                                        "ratio": statistics.median(ratios), "rows": rows})


if __name__ == "__main__":
    main()

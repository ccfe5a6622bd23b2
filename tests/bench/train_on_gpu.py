"""Evidence that training on a GPU does what training on a CPU does; writes tests/bench/results/train_<gpu>.json.

    python tests/bench/train_on_gpu.py --binary build/release/bin/scatterlm --out tests/bench/results/train_h200.json

Rows: the quickstart's model for 50 steps in float32 on the CPU and on the GPU (losses agree to 1e-4), the same in bfloat16 on the GPU,
and the whole quickstart there. Refuses a binary whose sources differ from the index, or losses that do not agree.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import evidence

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOLERANCE = 1e-4


def run(binary, *args):
    result = subprocess.run([str(binary), *map(str, args)], cwd=ROOT, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, args))}: exit code {result.returncode}\n{result.stdout[-2000:]}{result.stderr}")
    return result.stdout


def train(binary, folder, name, data, *sets):
    options = [part for key in sets for part in ("--set", key)]
    run(binary, "train", "configs/quickstart.yaml", "--run-dir", folder / name, "--set", f"data.train={data}/train.bin", "--set",
        f"data.validation={data}/val.bin", *options)
    return [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True, type=pathlib.Path)
    parser.add_argument("--data", default="data/headers", help="folder with train.bin and val.bin of the quickstart")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    options = parser.parse_args()
    binary = options.binary.resolve()
    origin, lines = evidence.of_binary(binary), evidence.versions(binary)
    driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True)

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)

        def short(device, dtype):
            metrics = train(binary, folder, f"{device}-{dtype}", options.data, "train.tokens=0", "train.steps=50", "log.interval=1",
                            "train.eval_interval=0", f"train.device={device}", f"train.dtype={dtype}")
            losses = [line["loss"] for line in metrics]
            rows.append({"run": "50 steps", "device": device, "dtype": dtype, "losses": losses,
                         "grad_norms": [line["grad_norm"] for line in metrics]})
            return losses

        cpu, gpu, bf16 = short("cpu", "float32"), short("cuda", "float32"), short("cuda", "bfloat16")
        difference = max(abs(a - b) for a, b in zip(cpu, gpu, strict=True))
        if not difference < TOLERANCE:
            sys.exit(f"float32 losses of CPU and GPU differ by {difference:.2e}, more than {TOLERANCE}")
        rows[1]["max_difference_to_cpu"] = difference
        rows[2]["max_difference_to_cpu"] = max(abs(a - b) for a, b in zip(cpu, bf16, strict=True))

        metrics = train(binary, folder, "quickstart", options.data, "train.device=cuda")
        rows.append({"run": "quickstart", "device": "cuda", "dtype": "bfloat16", "steps": metrics[-1]["step"],
                     "validation": [[line["step"], line["val_loss"]] for line in metrics if line["val_loss"] is not None],
                     "tok_s": metrics[-1]["tok_s"], "peak_gib": metrics[-1]["mem_gib"]})

    evidence.write(options.out, {"bench": "train", "gpu": lines["GPU"], "num_gpus": 1, "cuda": re.match(r"[\d.]+", lines["CUDA"])[0],
                                 "driver": driver.stdout.strip(), **origin, "rows": rows})
    print(f"float32: GPU and CPU agree to {difference:.1e} over 50 steps; quickstart on the GPU ends at {rows[-1]['validation'][-1][1]:.4f}")


if __name__ == "__main__":
    main()

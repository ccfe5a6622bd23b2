"""Speed, memory and kernels of whole training steps on one GPU; writes tests/bench/results/step_<gpu>.json.

    python tests/bench/step_on_gpu.py --binary build/release/bin/scatterlm --out tests/bench/results/step_h200.json

Each of RUNS trains on the quickstart's text for some steps. Its speed is the median over the reports after the first; then one more step is
traced, and its kernels are listed with their class, number and time. `--only TEXT...` takes the runs whose name holds one of these texts; rows
of other runs stay if the file has them from the same sources. The file is written after every run.
"""
import argparse
import collections
import json
import pathlib
import re
import statistics
import sys
import tempfile

import evidence
from job import ADAMW, HALF_MILLION, Job, JobError, read_metrics, set_options

LIMIT = 120  # seconds of a run
ONE_UPDATE = ("train.micro_batch_size={0}", "train.global_batch_tokens={1}")
MASKED = ("data.intra_document_masking=true",)
OLMOE = ("train.global_batch_tokens=16384", "optim.state_dtype=bfloat16")
# name: configuration, steps, keys. Speeds of one update per micro-batch compare with nanoGPT's bench.py, which has no other.
RUNS = {
    "dense_124m, 32 sequences": ("dense_124m", 60, [*ADAMW, *(key.format(32, 32 * 1024) for key in ONE_UPDATE)]),
    "dense_124m, 64 sequences": ("dense_124m", 60, [*ADAMW, *(key.format(64, 64 * 1024) for key in ONE_UPDATE)]),
    "dense_124m": ("dense_124m", 9, (*ADAMW, HALF_MILLION)),
    "dense_124m, documents": ("dense_124m", 9, (*ADAMW, HALF_MILLION, *MASKED)),
    "moe_124m": ("moe_124m", 24, (*ADAMW, HALF_MILLION)),
    "moe_124m, documents": ("moe_124m", 24, (*ADAMW, HALF_MILLION, *MASKED)),
    "moa_moe_124m": ("moa_moe_124m", 12, (*ADAMW, HALF_MILLION)),
    "dense_124m, as shipped": ("dense_124m", 18, ()),
    "moe_124m, as shipped": ("moe_124m", 48, ()),
    "olmoe_1b_7b": ("olmoe_1b_7b", 21, OLMOE),
    "olmoe_1b_7b, gradients in bfloat16": ("olmoe_1b_7b", 21, (*OLMOE, "train.grad_dtype=bfloat16")),
    "olmoe_1b_7b, gradients in bfloat16, documents": ("olmoe_1b_7b", 21, (*OLMOE, *MASKED, "train.grad_dtype=bfloat16")),
}
# The first pattern that a kernel's name holds decides.
CLASSES = {
    "grouped GEMM of experts": r"hopper::(rows|wgrad)_kernel|portable::",
    "dense products (cuBLAS)": r"nvjet|cublas|splitK|gemm",
    "attention (cuDNN, flash)": r"cudnn|flash",
    "AdamW and gradient norm": r"adamw_kernel|sum_of_squares",
    "Muon, passes over elements": r"momentum_kernel|apply_kernel",
    "QK-norm and rotary positions": r"QkNormRows|rope_kernel",
    "activation of dense MLPs": r"(fwd|bwd)_kernel<.*(Gated|Plain|Silu|Gelu|Relu)",
    "RMSNorm and residual": r"(fwd|bwd)_kernel<.*(Bf16|float), \d",
    "sums over experts": r"gather_sum",
    "router and routing": r"(fwd|bwd)_kernel<\d|place_kernel|count|RoutingParams|router",
    "softmax of the head": r"cross_entropy",
    "copies and zeros": r"Mem(set|cpy)|FillFunctor",
}


def class_of(kernel):
    return next((name for name, pattern in CLASSES.items() if re.search(pattern, kernel)), "other")


def kernels_of(trace):
    """[class, name, number, ms] of every kernel of a trace, longest first, and the ms from the first's begin to the last's end."""
    events = [event for event in json.loads(trace.read_text())["traceEvents"]
              if event.get("ph") == "X" and event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    found = collections.defaultdict(lambda: [0, 0.0])
    for event in events:
        name = re.sub(r"void |at::native::|\(anonymous namespace\)::|scatterlm::kernels::|<unnamed>::", "", event["name"])[:100]
        found[class_of(event["name"]), name][0] += 1
        found[class_of(event["name"]), name][1] += event["dur"] / 1000
    span = max(event["ts"] + event["dur"] for event in events) - min(event["ts"] for event in events)
    rows = [[kind, name, count, round(ms, 4)] for (kind, name), (count, ms) in found.items()]
    return sorted(rows, key=lambda row: -row[3]), span / 1000


def measure(binary, data, folder, name):
    config, steps, more = RUNS[name]
    keys = [f"data.train={data}/train.bin", "data.validation=null", "log.tensorboard=false", f"log.interval={steps // 3}", "train.tokens=0",
            f"train.steps={steps + 4}", "optim.warmup_steps=2", "checkpoint.save_interval=0", f"log.trace_step={steps + 2}", *more]
    run = folder / re.sub(r"\W+", "_", name)
    with Job(binary, 1, "train", f"configs/{config}.yaml", "--run-dir", run, *set_options(keys)) as job:
        first = job.wait_until(lambda: (run / "metrics.jsonl").exists() and read_metrics(run), "first report", LIMIT)
        job.wait_until(lambda: job.process.poll() is not None, "end", LIMIT)
    later = [line for line in read_metrics(run)[1:] if line["step"] <= steps]
    kernels, span = kernels_of(run / f"trace_step_{steps + 2:08d}.json")
    return {"name": name, "config": config, "sets": list(more), "steps": steps, "tok_s": statistics.median(line["tok_s"] for line in later),
            "step_ms": statistics.median(line["step_ms"] for line in later), "mfu": statistics.median(line["mfu"] for line in later),
            "peak_gib": later[-1]["mem_gib"], "first_report_s": round(first, 2), "traced_ms": span, "kernels": kernels}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True, type=pathlib.Path)
    parser.add_argument("--data", default="data/headers", type=pathlib.Path, help="folder with train.bin of the quickstart")
    parser.add_argument("--only", default=[""], nargs="+", help="runs whose name holds one of these")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    options = parser.parse_args()
    binary = options.binary.resolve()
    head = evidence.of_gpus("step", binary, 1)
    old = json.loads(options.out.read_text()) if options.out.exists() else {}
    rows = {row["name"]: row for row in old["rows"]} if old.get("source_hash") == head["source_hash"] else {}
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        for name in RUNS:
            if not any(text in name for text in options.only):
                continue
            try:
                rows[name] = measure(binary, options.data.resolve(), pathlib.Path(folder), name)
            except (JobError, OSError, ValueError, KeyError) as error:
                problems.append(f"{name}: {error}")
                print(problems[-1], file=sys.stderr, flush=True)
                continue
            print(f"{name}: {rows[name]['tok_s']:,.0f} tok/s, {rows[name]['step_ms']:.1f} ms, {rows[name]['peak_gib']:.1f} GiB", flush=True)
            evidence.write(options.out, {**head, "problems": problems, "rows": [rows[run] for run in RUNS if run in rows]})
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

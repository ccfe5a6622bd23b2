"""Runs other MoE layers and trainers on this GPU, and scatterlm in the same session; writes tests/bench/results/peers_h200.json.

    python tests/bench/peers/run.py --sonicmoe DIR --scattermoe DIR --nanogpt DIR --binary build/release/bin/scatterlm --out FILE

DIR are clones of github.com/Dao-AILab/sonic-moe, shawntan/scattermoe and karpathy/nanoGPT; a peer that is not given is left out. This Python
must have torch and triton, for SonicMoE also quack-kernels and nvidia-cutlass-dsl in the versions of its requirements.txt (PYTHONPATH will do).

  layers    the experts of a MoE layer, forward and with backward, at the shapes of `scatterlm bench moe_mlp --shapes published` (layer.py);
            scatterlm, ATen's grouped product and the dense MLP come from that command
  steps     nanoGPT's compiled bench.py with micro-batches of 32 and 64 sequences, and configs/dense_124m.yaml with the same, an update each

A peer that fails is reported and left out, the others go on. The file is written after each part; exit code 1 if anything failed.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import evidence  # noqa: E402
from job import ROOT, Job, JobError, read_metrics, set_options  # noqa: E402
from scale_on_gpus import write_tokens  # noqa: E402

COMPILE_LIMIT, TIME_LIMIT, STEPS_LIMIT = 300, 60, 240  # seconds: all shapes of a peer at once; one shape; one run of steps
SCATTERLM_STEPS = 60
NANOGPT = ("import runpy, sys, torch; sys.path.insert(0, ''); runpy.run_path('bench.py', run_name='__main__'); "
           "print('peak', torch.cuda.max_memory_allocated())")


def scatterlm_layers(binary, folder):
    """Rows of scatterlm, ATen and the dense MLP, in the words of the peers' rows."""
    path = folder / "moe_mlp.json"
    subprocess.run([binary, "bench", "moe_mlp", "--shapes", "published", "--json", path], check=True, timeout=STEPS_LIMIT)
    measured = json.loads(path.read_text())
    rows = []
    for row in measured["rows"]:
        shape = {"shape": ",".join(str(row[letter]) for letter in "TDFEK"), "dtype": row["dtype"]}
        figures = {key: row[key] for key in ("fwd_ms", "fwd_tflops", "fwdbwd_ms", "fwdbwd_tflops")}
        rows.append({"impl": "scatterlm", **shape, **figures, "peak_gib": row["peak_mib"] / 1024})
        for other in ("aten", "dense"):
            rows.append({"impl": other, **shape, **{f"{name}_{key}": row[other][name][key] for name in ("fwd", "fwdbwd") for key in ("ms", "tflops")}})
    return measured["ceilings"], rows


class Layer:
    """A process of layer.py, which compiles at once and measures when it is told to."""

    def __init__(self, peer, folder, shape):
        self.name, self.errors = f"{peer} {shape}", tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([sys.executable, HERE / "layer.py", peer, folder, shape], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True, env={"TORCH_CUDA_ARCH_LIST": "9.0", **os.environ})

    def line(self, starts, seconds):
        """The next printed line that starts so; fails with the last words of the process when it ends or takes longer."""
        timer = threading.Timer(seconds, self.process.kill)
        timer.start()
        try:
            for line in self.process.stdout:
                if line.startswith(starts):
                    return line
        finally:
            timer.cancel()
        self.errors.seek(0)
        raise JobError(f"{self.name}: no result within {seconds:.0f} s\n{self.errors.read()[-800:]}")

    def measure(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return json.loads(self.line("{", TIME_LIMIT))


def layers(peer, folder, shapes, failed):
    """A row a shape: all compile at the same time, then one after another is measured while the others wait."""
    running = [Layer(peer, folder, shape) for shape in shapes]
    try:
        ready = []
        for layer in running:
            try:
                layer.line("ready", COMPILE_LIMIT)
                ready.append(layer)
            except JobError as error:
                failed(error)
        for layer in ready:
            try:
                yield layer.measure()
            except (JobError, OSError) as error:
                failed(error)
            layer.process.kill()
    finally:
        for layer in running:
            layer.process.kill()
            layer.process.wait()


def nanogpt_step(folder, batch):
    command = [sys.executable, "-c", NANOGPT, f"--batch_size={batch}", "--real_data=False"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=STEPS_LIMIT)
    ms = re.search(r"time per iteration: ([\d.]+)ms", done.stdout)
    peak = re.search(r"^peak (\d+)", done.stdout, re.MULTILINE)
    if not ms or not peak:
        raise JobError(f"nanoGPT, micro-batch {batch}: exit code {done.returncode}\n{done.stderr[-800:]}")
    return {"step_ms": float(ms[1]), "tok_s": batch * 1024 / float(ms[1]) * 1e3, "peak_gib": int(peak[1]) / (1 << 30)}


def scatterlm_step(binary, folder, batch):
    keys = [f"data.train={folder}/50304.bin", "data.validation=null", "log.tensorboard=false", "log.interval=20", "train.tokens=0",
            "train.steps=100000", f"train.micro_batch_size={batch}", f"train.global_batch_tokens={batch * 1024}"]
    run = folder / f"run{batch}"
    with Job(binary, 1, "train", "configs/dense_124m.yaml", "--run-dir", run, *set_options(keys)) as job:
        job.wait_until(lambda: any(line["step"] >= SCATTERLM_STEPS for line in read_metrics(run)), f"step {SCATTERLM_STEPS}", STEPS_LIMIT)
    later = read_metrics(run)[1:]
    return {"step_ms": statistics.median(line["step_ms"] for line in later), "tok_s": statistics.median(line["tok_s"] for line in later),
            "peak_gib": later[-1]["mem_gib"]}


def steps(nanogpt, binary, folder, failed):
    write_tokens(folder / "50304.bin", 50304)
    for batch in (32, 64):
        for impl, measure in (("scatterlm", lambda: scatterlm_step(binary, folder, batch)), ("nanogpt", lambda: nanogpt_step(nanogpt, batch))):
            try:
                yield {"impl": impl, "config": "dense_124m", "micro_batch": batch, **measure()}
            except (JobError, OSError, subprocess.TimeoutExpired) as error:
                failed(error)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for peer in ("sonicmoe", "scattermoe", "nanogpt"):
        parser.add_argument(f"--{peer}", type=pathlib.Path, metavar="DIR", help="its clone")
    parser.add_argument("--binary", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    binary, out = options.binary.resolve(), options.out.resolve()
    file = {**evidence.of_gpus("peers", binary, 1), "rows": [], "problems": []}

    def failed(error):
        print(error, file=sys.stderr, flush=True)
        file["problems"].append(str(error).splitlines()[0])

    def add(rows):
        for row in rows:
            print(json.dumps(row), flush=True)
            file["rows"].append(row)
            evidence.write(out, file)

    with tempfile.TemporaryDirectory() as folder:
        file["ceilings"], rows = scatterlm_layers(binary, pathlib.Path(folder))
        add(rows)
        shapes = [row["shape"] for row in rows if row["impl"] == "scatterlm"]
        for peer in ("scattermoe", "sonicmoe"):
            if clone := getattr(options, peer):
                add(layers(peer, clone.resolve(), shapes, failed))
        if options.nanogpt:
            add(steps(options.nanogpt.resolve(), binary, pathlib.Path(folder), failed))
    evidence.write(out, file)
    return 1 if file["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs other MoE layers and trainers on this GPU, and scatterlm in the same session; writes tests/bench/results/peers_h200.json.

    python tests/bench/peers/run.py --sonicmoe DIR --scattermoe DIR --nanogpt DIR --binary build/release/bin/scatterlm --out FILE

DIR are clones of github.com/Dao-AILab/sonic-moe, shawntan/scattermoe and karpathy/nanoGPT; a peer that is not given is left out. This Python
must have torch and triton, for SonicMoE also quack-kernels and nvidia-cutlass-dsl in the versions of its requirements.txt (PYTHONPATH will do).

  layers    the experts of a MoE layer, forward and with backward, at the shapes of `scatterlm bench moe_mlp --shapes published` (layer.py);
            scatterlm, ATen's grouped product and the dense MLP come from that command; 4 to 8 minutes
  steps     nanoGPT's compiled bench.py with micro-batches of 32 and 64 sequences, and configs/dense_124m.yaml with the same sizes, one update per micro-batch;
            4 to 6 minutes
  olmoe     configs/olmoe_1b_7b.yaml with bfloat16 state, 4 x 4096 tokens per step, and transformers' OLMoE with the experts of each peer
            (olmoe.py); needs transformers 5; 4 to 6 minutes

--part NAME runs one of them, and may be repeated; rows of other parts stay in a file from the same sources. A peer that fails is reported and
left out, the others go on. The file is written after each row; exit code 1 if anything failed.
"""
import argparse
import functools
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
from job import ADAMW, ROOT, Job, JobError, read_metrics, set_options  # noqa: E402
from scale_on_gpus import olmoe_keys, write_tokens  # noqa: E402

COMPILE_LIMIT, TIME_LIMIT, STEPS_LIMIT = 300, 60, 240  # seconds: all shapes of a peer at once; one shape; one run of steps
PARTS = ("layers", "steps", "olmoe")
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
        raise JobError(f"{self.name}: no result; it failed or took longer than {seconds:.0f} s\n{self.errors.read()[-800:]}")

    def measure(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return json.loads(self.line("{", TIME_LIMIT))


def layers(peer, folder, shapes, failed):
    """One row per shape: all compile at the same time, then one after another is measured while the others wait."""
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


def scatterlm_step(binary, folder, config, last_step, keys):
    sets = [f"data.train={folder}/50304.bin", "data.validation=null", "log.tensorboard=false", f"log.interval={last_step // 3}", "train.tokens=0",
            "train.steps=100000", *keys]
    with tempfile.TemporaryDirectory(dir=folder) as run:
        with Job(binary, 1, "train", f"configs/{config}.yaml", "--run-dir", f"{run}/run", *set_options(sets)) as job:
            job.wait_until(lambda: any(line["step"] >= last_step for line in read_metrics(f"{run}/run")), f"step {last_step}", STEPS_LIMIT)
        later = read_metrics(f"{run}/run")[1:]
    return {"step_ms": statistics.median(line["step_ms"] for line in later), "tok_s": statistics.median(line["tok_s"] for line in later),
            "peak_gib": later[-1]["mem_gib"]}


def olmoe_step(peer, folder):
    done = subprocess.run([sys.executable, HERE / "olmoe.py", peer, *([folder] if folder else [])], capture_output=True, text=True, timeout=STEPS_LIMIT)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise JobError(f"OLMoE, {peer}: exit code {done.returncode}\n{done.stderr[-800:]}")
    return json.loads(lines[-1])


def dense_rows(binary, folder, clones):
    """What measures each row of the part `steps`: (row, function)."""
    for batch in (32, 64):
        keys = [*ADAMW, f"train.micro_batch_size={batch}", f"train.global_batch_tokens={batch * 1024}"]
        row = {"config": "dense_124m", "micro_batch": batch}
        yield {"impl": "scatterlm", **row}, functools.partial(scatterlm_step, binary, folder, "dense_124m", 60, keys)
        if clones["nanogpt"]:
            yield {"impl": "nanogpt", **row}, functools.partial(nanogpt_step, clones["nanogpt"], batch)


def olmoe_rows(binary, folder, clones):
    row = {"config": "olmoe_1b_7b", "micro_batch": 4}
    keys = olmoe_keys(1, "optim.state_dtype=bfloat16")
    yield {"impl": "scatterlm", **row}, functools.partial(scatterlm_step, binary, folder, "olmoe_1b_7b", 21, keys)
    for peer in ("grouped_mm", "scattermoe", "sonicmoe"):
        if peer == "grouped_mm" or clones[peer]:
            yield {"impl": f"transformers_{peer}", **row}, functools.partial(olmoe_step, peer, clones.get(peer))


def measured(rows, failed):
    for row, measure in rows:
        try:
            yield {**row, **measure()}
        except (JobError, OSError, subprocess.TimeoutExpired) as error:
            failed(error)


def rows_of(part, file, binary, folder, clones, failed):
    """Measures a part; "layers" also sets the ceilings of the file."""
    if part == "layers":
        file["ceilings"], own = scatterlm_layers(binary, folder)
        yield from own
        shapes = [row["shape"] for row in own if row["impl"] == "scatterlm"]
        for peer in ("scattermoe", "sonicmoe"):
            if clones[peer]:
                yield from layers(peer, clones[peer], shapes, failed)
    else:
        write_tokens(folder / "50304.bin", 50304)
        yield from measured((dense_rows if part == "steps" else olmoe_rows)(binary, folder, clones), failed)


def kept(out, about, parts):
    """Rows and ceilings of the parts that do not run now, if the file is of the same sources and machine."""
    old = json.loads(out.read_text()) if out.exists() else {}
    if any(old.get(key) != about[key] for key in ("source_hash", "gpu", "driver")):
        return {"ceilings": None, "rows": []}
    return {"ceilings": old["ceilings"], "rows": [row for row in old["rows"] if row["part"] not in parts]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for peer in ("sonicmoe", "scattermoe", "nanogpt"):
        parser.add_argument(f"--{peer}", type=pathlib.Path, metavar="DIR", help="its clone")
    parser.add_argument("--binary", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--part", action="append", choices=PARTS)
    options = parser.parse_args()
    binary, out, parts = options.binary.resolve(), options.out.resolve(), options.part or PARTS
    clones = {peer: path and path.resolve() for peer, path in ((peer, getattr(options, peer)) for peer in ("sonicmoe", "scattermoe", "nanogpt"))}
    about = evidence.of_gpus("peers", binary, 1)
    file = {**about, **kept(out, about, parts), "problems": []}

    def failed(error):
        print(error, file=sys.stderr, flush=True)
        file["problems"].append(str(error).splitlines()[0])

    with tempfile.TemporaryDirectory() as folder:
        for part in parts:
            try:
                for row in rows_of(part, file, binary, pathlib.Path(folder), clones, failed):
                    print(json.dumps(row), flush=True)
                    file["rows"].append({"part": part, **row})
                    evidence.write(out, file)
            except (OSError, subprocess.SubprocessError) as error:
                failed(error)
    evidence.write(out, file)
    return 1 if file["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())

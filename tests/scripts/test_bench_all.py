"""scripts/bench_all: order, failures that do not end it, going on where it was, and files of other machines."""
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest

from load_script import ROOT, load

sys.path.insert(0, str(ROOT / "scripts"))

import update_tables  # noqa: E402

bench_all = load("bench_all")
RESULTS = ROOT / "tests/bench/results"

PROGRAM = """#!{python}
import json, os, pathlib, sys, time
here = pathlib.Path(__file__).parent
if sys.argv[1] == "--version":
    sys.exit(print((here / "version").read_text()))
name, out = sys.argv[2], pathlib.Path(sys.argv[-1])
with open(here / "calls", "a") as calls:
    print(name, os.environ.get("CUDA_VISIBLE_DEVICES", "unset"), file=calls)
if (here / f"broken_{{name}}").exists():
    out.write_text("half")
    sys.exit("measuring\\nno such kernel")
if (here / f"slow_{{name}}").exists():
    try:
        (here / "started").touch()
        time.sleep(60)
    finally:
        time.sleep(1)
        (here / "ended").touch()
out.parent.mkdir(exist_ok=True)
out.write_text(json.dumps({{"bench": name, "sources": ["kernels", "lib/ops"], "source_hash": "{kernels}"}}))
"""
VERSION = """scatterlm  0.1.0
GPU        {gpus}
CPU        AVX512, 2 threads
sources    {hash} (kernels lib app)
           0123456789abcdef (kernels lib/ops)
"""
H200, A100 = "NVIDIA H200 (140 GiB, compute capability 9.0)", "NVIDIA A100 (79.2 GiB, compute capability 8.0)"


class Machine:
    def __init__(self, folder):
        self.folder, self.out = folder, folder / "out"
        self.program = folder / "scatterlm"
        self.program.write_text(PROGRAM.format(python=sys.executable, kernels=update_tables.current_hash("kernels", "lib/ops")))
        self.program.chmod(0o755)
        self.has([H200])

    def has(self, gpus, sources=None):
        (self.folder / "version").write_text(VERSION.format(gpus="\n           ".join(gpus) or "none", hash=sources or update_tables.current_hash("kernels", "lib", "app")))

    def run(self, *arguments):
        environment = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
        return subprocess.run([sys.executable, ROOT / "scripts/bench_all", "--out", self.out, *arguments], capture_output=True, text=True, timeout=60,
                              env={**environment, "SCATTERLM_BINARY": str(self.program)})

    def calls(self):
        """Since the last question."""
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines


def without_seconds(text):
    return re.sub(r"\b\d+ s\b", "N s", text).splitlines()


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_a_failure_does_not_end_it_and_is_all_that_is_done_again(machine):
    names = ["rms_norm_h200", "router_h200", "moe_mlp_h200"]
    (machine.folder / "broken_router").touch()
    result = machine.run(*names)
    assert result.returncode == 1
    assert [line.split()[0] for line in machine.calls()] == ["moe_mlp", "router", "rms_norm"]  # README's first
    lines = without_seconds(result.stdout)
    assert lines[0] == "moe_mlp_h200 ... N s"
    assert lines[1].startswith("router_h200 ... failed after N s: no such kernel (") and lines[1].endswith("/router_h200.log)")
    assert lines[-1] == f"To show the figures in README.md and docs/: cp {machine.out}/*.json tests/bench/results/ && .venv/bin/python scripts/update_tables.py"
    unfinished, = machine.out.glob("unfinished_*")
    assert sorted(path.name for path in unfinished.iterdir()) == ["router_h200.json", "router_h200.log"]
    assert sorted(path.name for path in machine.out.glob("*.json")) == ["moe_mlp_h200.json", "rms_norm_h200.json"]

    (machine.folder / "broken_router").unlink()
    result = machine.run(*names)
    assert result.returncode == 0, result.stdout
    assert [line.split()[0] for line in machine.calls()] == ["router"]
    assert without_seconds(result.stdout)[:3] == ["moe_mlp_h200: measured before", "router_h200 ... N s", "rms_norm_h200: measured before"]
    assert sorted(path.name for path in machine.out.iterdir()) == sorted(f"{name}.json" for name in names)


def test_a_file_of_earlier_sources_is_measured_again(machine):
    machine.out.mkdir()
    path = machine.out / "router_h200.json"
    path.write_text(json.dumps({"sources": ["kernels", "lib/ops"], "source_hash": "0123456789abcdef"}))
    assert machine.run("router_h200").returncode == 0
    assert machine.calls() == ["router unset"]
    assert update_tables.is_current(json.loads(path.read_text()))


def test_files_of_other_machines_are_left_out(machine):
    for gpus, here in ([H200] * 2, f"2 x {H200}"), ([A100], f"1 x {A100}"), ([], "no GPU"):
        machine.has(gpus)
        result = machine.run("scale_h200x4")
        assert (result.returncode, machine.calls()) == (0, [])
        assert result.stdout.splitlines()[0] == f"scale_h200x4: left out: needs 4 H200s; here: {here}"
    machine.has([A100])
    assert machine.run("router_h200").stdout.startswith("router_h200: left out: needs 1 H200; here: 1 x NVIDIA A100")
    assert machine.run("router_h200", "--any-gpu").returncode == 0
    assert machine.calls() == ["router unset"]


def heed_interrupts():
    """Tests that a shell runs in the background inherit that SIGINT is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interrupted_command_ends_what_it_started(machine):
    (machine.folder / "slow_router").touch()
    arguments = [sys.executable, ROOT / "scripts/bench_all", "--out", machine.out, "router_h200"]
    process = subprocess.Popen(arguments, env={**os.environ, "SCATTERLM_BINARY": str(machine.program)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True, preexec_fn=heed_interrupts)
    deadline = time.monotonic() + 30
    while not (machine.folder / "started").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=60)[1].strip() == "interrupted; the same command goes on"
    assert process.returncode == 130 and (machine.folder / "ended").exists()


def test_the_list_measures_nothing(machine):
    result = machine.run("--list")
    assert (result.returncode, machine.calls()) == (0, []) and not machine.out.exists()
    lines = result.stdout.splitlines()
    assert [line.split(":")[0] for line in lines[::2]] == list(bench_all.COMMANDS)
    router = lines.index("router_h200: to be measured")
    assert lines[router + 1].strip() == f"{machine.program} bench router --shapes published --json {machine.out}/router_h200.json"
    assert any(line.startswith("scale_h200x8: needs 8 H200s; here: 1 x NVIDIA H200") for line in lines)


def test_mistakes_are_named(machine):
    def error(*arguments):
        result = machine.run(*arguments)
        assert (result.returncode, result.stdout, machine.calls()) == (2, "", [])
        return result.stderr.strip()

    assert error("ruter_h200") == "error: no evidence file 'ruter_h200', did you mean 'router_h200'?; scripts/bench_all --list names all"
    for sources, message in (("0123456789abcdef", "built from the sources 0123456789abcdef, git's index has "), ("unknown dirty", "built outside a git checkout")):
        machine.has([H200], sources)
        assert error("router_h200").startswith(f"error: {machine.program}: {message}")
    machine.program.unlink()
    assert error("router_h200").startswith(f"error: {machine.program}: cannot be run (")


def test_the_cpu_is_measured_without_gpus_and_a_sweep_in_a_folder(machine, monkeypatch, capsys):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(bench_all, "COMMANDS", {"soak_cpu": "scatterlm bench soak FILE", "recipe_1_h200": "scatterlm bench recipe FOLDER"})
    machine.program.write_text(machine.program.read_text().replace("out.parent", "out = out if out.suffix else out / 'sweep.json'\nout.parent"))
    machine.out.mkdir()
    for name in bench_all.COMMANDS:
        assert bench_all.measure(name, machine.program, machine.out, machine.out / "unfinished")
    assert machine.calls() == ["soak ", "recipe unset"]
    assert [json.loads((machine.out / f"{name}.json").read_text())["bench"] for name in bench_all.COMMANDS] == ["soak", "recipe"]
    assert list((machine.out / "unfinished").iterdir()) == []


def test_what_a_command_needs(tmp_path, monkeypatch):
    monkeypatch.setattr(bench_all, "ROOT", tmp_path)
    assert bench_all.missing("compare_h200", [H200], False) == "needs data/headers/train.bin (scripts/quickstart)"
    for path in ("data/headers/train.bin", ".venv/bin/python"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).touch()
    assert bench_all.missing("compare_h200", [H200], False) == ""
    assert bench_all.missing("train_h200", [H200], False).startswith("needs build/plain/bin/scatterlm (cmake ")
    assert bench_all.missing("peers_h200", [H200], False).count("git clone") == 3
    assert bench_all.missing("router_h200", [], False) == "needs 1 H200; here: no GPU"


def test_every_evidence_file_can_be_made_with_the_command_that_it_names():
    files = {path.stem for path in RESULTS.glob("*.json")} | set(update_tables.TABLES) | set(update_tables.HEADLINE_FILES)
    assert sorted(files) == sorted(bench_all.COMMANDS)
    for path in RESULTS.glob("*.json"):
        recorded, command = shlex.split(json.loads(path.read_text())["command"]), shlex.split(bench_all.COMMANDS[path.stem])
        if recorded[0] == "scatterlm":
            assert recorded == command[:-2] and command[-2:] == ["--json", "FILE"]
        else:
            scripts = [[pathlib.PurePath(word).name for word in words if not word.endswith("python")] for words in (recorded, command)]
            assert scripts[0][0] == scripts[1][0] and (not scripts[1][0] == "sweep" or scripts[0][1] == scripts[1][1])

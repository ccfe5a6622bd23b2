"""The program that runs other implementations: what one of them does wrong is reported, and the others are measured."""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/bench"), str(ROOT / "tests/bench/peers")]

import run  # noqa: E402

LAYER = """
import json, sys
peer, folder, shape = sys.argv[1:]
if shape == "broken":
    sys.exit("no such kernel")
print("Compiling ...")
print("ready", flush=True)
assert sys.stdin.readline() == "go\\n"
if shape == "wrong":
    sys.exit("output is wrong")
print(json.dumps({"impl": peer, "shape": shape}), flush=True)
"""


def test_shapes_that_fail_are_reported_and_left_out(tmp_path, monkeypatch):
    (tmp_path / "layer.py").write_text(LAYER)
    monkeypatch.setattr(run, "HERE", tmp_path)
    failures = []
    rows = list(run.layers("sonicmoe", tmp_path, ["1,2", "broken", "wrong", "3,4"], failures.append))
    assert rows == [{"impl": "sonicmoe", "shape": "1,2"}, {"impl": "sonicmoe", "shape": "3,4"}]
    assert [str(failure).split(":")[0] for failure in failures] == ["sonicmoe broken", "sonicmoe wrong"]
    assert "no such kernel" in str(failures[0]) and "output is wrong" in str(failures[1])


def test_a_part_that_fails_leaves_the_rows_before_it():
    failures = []
    rows = [({"impl": "scatterlm"}, lambda: {"tok_s": 1}), ({"impl": "nanogpt"}, lambda: run.nanogpt_step(ROOT / "docs", 32))]
    assert list(run.measured(rows, failures.append)) == [{"impl": "scatterlm", "tok_s": 1}]
    assert "nanoGPT, micro-batch 32: exit code 1" in str(failures[0])


def test_rows_of_other_parts_stay_only_from_the_same_sources(tmp_path):
    about = {"source_hash": "0123456789abcdef", "gpu": "NVIDIA H200", "driver": "580"}
    out = tmp_path / "peers.json"
    assert run.kept(out, about, ["steps"])["rows"] == []
    run.evidence.write(out, {**about, "ceilings": {"gemm_tflops": 700}, "rows": [{"part": "layers"}, {"part": "steps"}]})
    assert run.kept(out, about, ["steps"]) == {"ceilings": {"gemm_tflops": 700}, "rows": [{"part": "layers"}]}
    assert run.kept(out, {**about, "source_hash": "another"}, ["steps"]) == {"ceilings": None, "rows": []}

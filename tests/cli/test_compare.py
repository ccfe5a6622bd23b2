"""`scatterlm compare --speed-only`: figures that agree with each other, an honest list of what was equal, and no traces."""
import json
import re
import signal
import statistics
import subprocess

import pytest

from conftest import ROOT

QUICK = ["--speed-only", "--blocks", 3, "--steps-per-block", 2]


@pytest.fixture
def dense_config(tmp_path, tiny_config):
    """The tiny model without experts."""
    path = tmp_path / "dense.yaml"
    text = tiny_config.read_text().replace("moa+moe", "gqa+dense")
    path.write_text("\n".join(line for line in text.splitlines() if not line.startswith(("  moa:", "  moe:"))))
    return path


def line(text, label):
    """The three cells of a line of the table, as they are printed."""
    row = next(row for row in text.splitlines() if row.startswith(label + "  "))
    return re.split(r"  +", row)[1:]


def equal_and_not(text):
    equal, unequal = text.split("\nEqual (counts within 2 %):\n")[1].split("Not equal:\n")
    return [[condition.strip() for condition in part.splitlines()] for part in (equal, unequal)]


def test_the_table_and_what_was_equal(scatterlm, tmp_path, tiny_config, dense_config):
    before = sorted(tmp_path.rglob("*"))
    text = scatterlm("compare", dense_config, tiny_config, *QUICK, check=True).stdout
    assert sorted(tmp_path.rglob("*")) == before
    assert len(re.findall(r"^block \d/3: ", text, flags=re.MULTILINE)) == 3
    assert all(re.fullmatch(r"[\d.]+ \([\d.]+ to [\d.]+\)", cell) for cell in line(text, "tok/s"))
    dense, moe, ratio = map(float, line(text, "peak memory, GiB"))
    assert 0 < dense < 0.1 and 0 < moe < 0.1 and ratio > 0
    equal, unequal = equal_and_not(text)
    assert {"tokens of every step", "optimiser", "sequence length: 32", "tokens per step: 256", "precision: float32"} <= set(equal)
    assert "layers: gqa+dense, gqa+dense and gqa+dense, moa+moe" in unequal


def test_what_differs_is_said(scatterlm, tmp_path, tiny_config):
    other = tmp_path / "other.yaml"
    other.write_text(tiny_config.read_text().replace("sequence_length: 32", "sequence_length: 64, seed: 7").replace("3.0e-3", "1.0e-3"))
    equal, unequal = equal_and_not(scatterlm("compare", tiny_config, other, *QUICK, check=True).stdout)
    assert "tokens of every step: train.seed=1234, train.sequence_length=32 and train.seed=7, train.sequence_length=64" in unequal
    assert {"sequence length: 32 and 64", "sequences per forward pass: 8 and 4", "optimiser: optim.lr=0.003 and optim.lr=0.001"} <= set(unequal)
    assert "tokens per step: 256" in equal and "layers: gqa+dense, moa+moe" in equal


def test_memory_is_each_models_own(scatterlm, tiny_config, dense_config):
    """Whichever comes first, and however large the other is."""
    def peaks(first, second):
        return line(scatterlm("compare", first, second, *QUICK, check=True).stdout, "peak memory, GiB")[:2]
    dense, moe = map(float, peaks(dense_config, tiny_config))
    assert dense < 0.98 * moe
    assert list(map(float, peaks(tiny_config, dense_config))) == pytest.approx([moe, dense], rel=0.01)  # some KiB are the process's


def test_an_evidence_file_holds_every_block(scatterlm, tmp_path, tiny_config, dense_config):
    out = tmp_path / "compare.json"
    result = scatterlm("compare", dense_config, tiny_config, *QUICK, "--set", "train.seed=5", "--json", out)
    sources = re.search(r"(\w+)( dirty)? \(kernels lib app\)", scatterlm("--version", check=True).stdout)
    if sources[1] == "unknown" or sources[2]:  # the tree was changed before it was built
        assert result.returncode == 2 and result.stdout == "" and not out.exists()
        assert "differ from git's index (kernels, lib, app)" in result.stderr
        return
    content = json.loads(out.read_text())
    assert content["bench"] == "compare" and content["gpu"] is None and content["device"] == "CPU, 1 thread, float32, deterministic"
    assert content["source_hash"] == sources[1] and content["sources"] == ["kernels", "lib", "app"]
    assert content["command"] == (f"scatterlm compare {dense_config} {tiny_config} --speed-only --blocks 3 --steps-per-block 2 "
                                  "--set train.seed=5")
    for row, config in zip(content["rows"], (dense_config, tiny_config), strict=True):
        assert row["config"] == str(config) and len(row["block_ms"]) == 3 and row["mfu"] is None
        assert row["step_ms"] == pytest.approx(statistics.median(row["block_ms"]))
        assert row["tok_s"] == pytest.approx(256 * 1000 / row["step_ms"])
        assert row["flops_per_s"] == pytest.approx(row["tok_s"] * row["flops_per_token"])
        assert row["tok_s_p10"] <= row["tok_s"] <= row["tok_s_p90"]
    first, second = (row["block_ms"] for row in content["rows"])
    assert content["ratio"]["tok_s"] == pytest.approx(statistics.median(a / b for a, b in zip(first, second)))
    assert {condition["name"]: condition["equal"] for condition in content["conditions"]}["tokens of every step"]


def test_the_shipped_pair_costs_the_same_flops(scatterlm, tiny_data):
    text = scatterlm("compare", "configs/tiny_dense.yaml", "configs/tiny_moe.yaml", "--speed-only", "--blocks", 1, "--steps-per-block",
                     1, "--set", f"data.train={tiny_data}/train.bin", "--set", "data.validation=null", check=True).stdout
    equal, unequal = equal_and_not(text)
    assert [condition.split(":")[0] for condition in unequal] == ["layers", "parameters"]
    assert any(condition.startswith("FLOPs per token: ") for condition in equal)


def test_settings_of_the_process_must_agree(scatterlm, tmp_path, tiny_config):
    other = tmp_path / "other.yaml"
    other.write_text(tiny_config.read_text().replace("threads: 1", "threads: 2"))
    result = scatterlm("compare", tiny_config, other, *QUICK)
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr == (f"scatterlm: error: train.threads is 1 in {tiny_config} and 2 in {other}, but belongs to the whole process; "
                             "--set train.threads=... sets it for both\n")
    scatterlm("compare", tiny_config, other, *QUICK, "--set", "train.threads=1", check=True)


def test_a_step_that_is_not_finite_makes_no_figures(scatterlm, tiny_config):
    result = scatterlm("compare", tiny_config, tiny_config, *QUICK, "--set", "optim.lr=1000", "--set", "model.initializer_range=10",
                       "--set", "optim.schedule=constant")
    assert result.returncode == 1 and "tok/s" not in result.stdout
    assert re.search(r"tiny: \d of \d steps had a loss or gradient that is not finite; lower optim.lr", result.stderr), result.stderr


def test_an_interrupt_leaves_nothing_behind(binary, tmp_path, tiny_config):
    out = tmp_path / "compare.json"
    before = sorted(tmp_path.rglob("*"))
    process = subprocess.Popen([str(binary), "compare", str(tiny_config), str(tiny_config), "--speed-only", "--blocks", "10000"],
                               cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        while not process.stdout.readline().startswith("block 2/"):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1 and error == "scatterlm: error: signal Interrupt: stopped, nothing was measured\n"
    assert sorted(tmp_path.rglob("*")) == before and not out.exists()

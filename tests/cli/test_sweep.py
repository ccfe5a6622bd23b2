"""scripts/sweep: variants, failures that are kept, and going on where it was."""
import json
import os
import subprocess
import sys

from conftest import ROOT


def sweep(binary, file, out):
    return subprocess.run([sys.executable, ROOT / "scripts/sweep", file, "--out", out, "--cpu-runs", "2"], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "SCATTERLM_BINARY": str(binary), "CUDA_VISIBLE_DEVICES": ""})


def test_variants_are_trained_once(binary, tiny_config, tmp_path):
    file = tmp_path / "rates.sweep"
    file.write_text(f"all train.steps=4 train.eval_interval=2  # of all\n{tiny_config} optim.lr={{1e-3,2e-3}} train.seed={{1,2}}\n"
                    f"{tiny_config} model.moe.num_experts=1\n")
    result = sweep(binary, file, tmp_path / "out")
    assert result.returncode == 1, result.stderr
    rows = json.loads((tmp_path / "out/sweep.json").read_text())["rows"]
    assert [row["keys"][2:] for row in rows[:4]] == [[f"optim.lr={rate}", f"train.seed={seed}"] for rate in ("1e-3", "2e-3") for seed in (1, 2)]
    for row in rows[:4]:
        assert row["exit_code"] == 0 and [point[0] for point in row["curve"]] == [512, 1024] and row["val_loss"] == row["curve"][-1][2]
        assert abs(row["tok_s"] * row["seconds"] - 1024) < 1
    assert len({row["val_loss"] for row in rows[:4]}) == 4
    assert rows[4]["exit_code"] == 2 and "model.moe.num_experts" in rows[4]["message"]

    file.write_text(file.read_text().replace("num_experts=1", "num_experts=8"))
    again = sweep(binary, file, tmp_path / "out")
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("loss") == 1  # the one that had failed
    assert json.loads((tmp_path / "out/sweep.json").read_text())["rows"][:4] == rows[:4]

    file.write_text(file.read_text().replace("train.steps=4", "train.steps=2"))
    assert sweep(binary, file, tmp_path / "other").stdout.count("loss") == 5


def test_mistakes_are_named(binary, tiny_config, tmp_path):
    file = tmp_path / "wrong.sweep"
    for text, message in ((f"{tiny_config} optim.lr", ":1: 'optim.lr' is no KEY=VALUE"), ("\nnone.yaml", ":2: configuration 'none.yaml' does not exist"),
                          ("# nothing", "names no configuration")):
        file.write_text(text)
        result = sweep(binary, file, tmp_path / "out")
        assert (result.returncode, result.stdout) == (2, "") and result.stderr.strip().endswith(message), result.stderr

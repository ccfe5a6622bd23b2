"""checkpoint inspect and verify on what a real run saved, and its files as other programs read them."""
import json
import pathlib

import numpy as np
import pytest

from conftest import read_safetensors


@pytest.fixture
def run_folder(scatterlm, tiny_config, runs):
    scatterlm("train", tiny_config, check=True)
    return runs / "tiny"


def test_verify_names_the_damaged_file(scatterlm, run_folder):
    good = scatterlm("checkpoint", "verify", run_folder, check=True)
    lines = good.stdout.splitlines()
    assert [line.split(": ok, ")[0] for line in lines] == [str(run_folder / s) for s in ("step_00000010", "step_00000020")]
    assert lines[0].endswith(" GB/s")

    rank = run_folder / "step_00000020/rank_00000.safetensors"
    data = bytearray(rank.read_bytes())
    data[-1] ^= 1
    rank.write_bytes(data)
    bad = scatterlm("checkpoint", "verify", run_folder)
    assert bad.returncode == 2
    assert len(bad.stdout.splitlines()) == 1  # step 10 is still good
    assert len(bad.stderr.splitlines()) == 1
    assert f"{rank}: damaged: hash " in bad.stderr


def test_inspect_shows_the_newest(scatterlm, run_folder):
    text = scatterlm("checkpoint", "inspect", run_folder, check=True).stdout
    assert text.splitlines()[0] == str(run_folder / "step_00000020")
    assert "\nstep    20\ntokens  5120\nranks   1\n" in text
    assert f"config  {run_folder}/step_00000020/config.yaml" in text
    manifest = json.loads((run_folder / "step_00000020/manifest.json").read_text())
    for name, tensor in manifest["tensors"].items():
        assert any(line.startswith(name + " ") and line.endswith(str(tensor["shape"])) for line in text.splitlines())


def test_tensors_are_plain_safetensors(run_folder):
    folder = run_folder / "step_00000020"
    metadata, tensors = read_safetensors(folder / "rank_00000.safetensors")
    assert metadata == {"format": "pt"}
    manifest = json.loads((folder / "manifest.json").read_text())
    assert {name: list(t.shape) for name, t in tensors.items()} == {n: t["shape"] for n, t in manifest["tensors"].items()}
    assert all(np.isfinite(t).all() for t in tensors.values())


@pytest.mark.parametrize("command", [[], ["inspect"], ["verify"]])
def test_help_has_an_example(scatterlm, command):
    assert "Example:\n  scatterlm checkpoint " in scatterlm("checkpoint", *command, "--help", check=True).stdout


def test_no_checkpoint_is_a_user_error(scatterlm, tmp_path):
    result = scatterlm("checkpoint", "verify", tmp_path)
    assert result.returncode == 2
    assert f"{tmp_path}: holds no checkpoint; train first: scatterlm train CONFIG" in result.stderr

"""`optim.name: muon`: the same training on any number of ranks, whatever they share, and over a resume."""
import numpy as np
import pytest

from conftest import read_metrics
from test_parallel import difference, tensors, train

MUON = ["--set", "train.steps=20", "--set", "optim.name=muon"]


def test_it_learns_faster_than_adamw(scatterlm, tiny_config, runs):
    """Both at a rate that so small a model and so short a run want."""
    rate = ["--set", "optim.lr=0.012"]
    adamw = train(scatterlm, 1, tiny_config, runs / "adamw", *MUON[:2], *rate)
    muon = train(scatterlm, 1, tiny_config, runs / "muon", *MUON, *rate)
    assert muon[-1]["loss"] < adamw[-1]["loss"] - 0.1


@pytest.mark.parametrize("zero", [0, 1, 2])
def test_ranks_agree_whatever_they_share(scatterlm, tiny_config, runs, zero):
    """Rounding of the gradients' sums grows in Newton-Schulz, by up to 3.4445 an iteration for small singular values."""
    rows = [train(scatterlm, ranks, tiny_config, runs / str(ranks), *MUON, "--set", f"parallel.zero={zero}") for ranks in (1, 2, 4)]
    assert difference(rows[0], rows[1]) < 1e-3
    assert difference(rows[0], rows[2]) < 1e-3
    stored = tensors(runs / "4/step_00000020")
    names = {name.split("/")[0] for name in stored if "/" in name}
    assert names == {"momentum", "exp_avg", "exp_avg_sq"}
    assert all(np.isfinite(value).all() for value in stored.values())


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_resumed_run_ends_in_the_same_bits(scatterlm, tiny_config, runs, ranks):
    train(scatterlm, ranks, tiny_config, runs / "through", *MUON, "--set", "checkpoint.keep_last=9")
    train(scatterlm, ranks, tiny_config, runs / "resumed", *MUON, "--resume", runs / "through/step_00000010")
    through, resumed = (tensors(runs / run / "step_00000020") for run in ("through", "resumed"))
    assert all((through[name] == resumed[name]).all() for name in through)
    assert read_metrics(runs / "through")[-1]["loss"] == read_metrics(runs / "resumed")[-1]["loss"]


def test_a_checkpoint_of_another_optimiser_is_refused(scatterlm, tiny_config, runs):
    train(scatterlm, 1, tiny_config, runs / "adamw", *MUON[:2])
    result = scatterlm("train", tiny_config, *MUON, "--run-dir", runs / "other", "--resume", runs / "adamw/step_00000010")
    assert result.returncode == 2 and "momentum/" in result.stderr and "optim.name" in result.stderr


def test_its_keys_have_no_effect_without_it(scatterlm, tiny_config):
    for key in ("optim.momentum=0.9", "optim.newton_schulz_steps=6"):
        result = scatterlm("config", "show", tiny_config, "--set", key)
        assert result.returncode == 2 and f"--set {key}: key '{key.split('=')[0]}' has no effect: optim.name is adamw" in result.stderr
    result = scatterlm("config", "show", tiny_config, "--set", "optim.name=muon", "--set", "optim.momentum=1")
    assert result.returncode == 2 and "'optim.momentum: 1' must be below 1" in result.stderr

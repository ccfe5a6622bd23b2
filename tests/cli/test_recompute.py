"""`train.recompute`: less memory for activations, and the same bits."""
import pytest

from conftest import read_metrics

LAST = "step_00000020"


def train(scatterlm, config, run, *options, ranks=1):
    launch = ["launch", "-n", ranks] if ranks > 1 else []
    return scatterlm(*launch, "train", config, "--run-dir", run, *options, check=True)


def assert_same_run(one, other, ranks=1):
    for rank in range(ranks):
        name = f"rank_{rank:05d}.safetensors"
        assert (one / LAST / name).read_bytes() == (other / LAST / name).read_bytes()
    for key in ("step", "loss", "grad_norm", "aux_loss", "z_loss", "val_loss", "routers"):
        assert [line[key] for line in read_metrics(one)] == [line[key] for line in read_metrics(other)], key


@pytest.mark.parametrize("zero", [0, 2])
def test_two_ranks_and_micro_batches_end_in_the_same_bits(scatterlm, tiny_config, runs, zero):
    options = ["--set", f"parallel.zero={zero}", "--set", "train.micro_batch_size=2"]
    for recompute in ("none", "norms", "layer"):
        train(scatterlm, tiny_config, runs / recompute, *options, "--set", f"train.recompute={recompute}", ranks=2)
    assert_same_run(runs / "none", runs / "norms", ranks=2)
    assert_same_run(runs / "none", runs / "layer", ranks=2)


def test_a_resumed_run_may_recompute(scatterlm, tiny_config, runs):
    train(scatterlm, tiny_config, runs / "whole")
    train(scatterlm, tiny_config, runs / "resumed", "--resume", runs / "whole/step_00000010")
    result = train(scatterlm, tiny_config, runs / "recomputed", "--set", "train.recompute=layer", "--resume", runs / "whole/step_00000010")
    assert "recompute" not in result.stderr
    assert_same_run(runs / "resumed", runs / "recomputed")
    assert (runs / "whole" / LAST / "rank_00000.safetensors").read_bytes() == (runs / "recomputed" / LAST / "rank_00000.safetensors").read_bytes()

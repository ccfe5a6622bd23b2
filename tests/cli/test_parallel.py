"""One run on several CPU ranks: the same training on any number of them, and checkpoints that any number reads."""
import json

import numpy as np
import pytest

from conftest import read_metrics

STEPS = ["--set", "train.steps=20"]


def train(scatterlm, ranks, config, run, *options):
    """Trains on so many ranks and returns the metrics of each step."""
    launch = ["launch", "-n", ranks] if ranks > 1 else []
    scatterlm(*launch, "train", config, "--run-dir", run, *options, check=True)
    return read_metrics(run)


def tensors(checkpoint):
    """Whole logical tensors of a checkpoint, put together from the files of all ranks."""
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    files = {}
    for file in manifest["files"]:
        if file["name"].endswith(".safetensors"):
            data = (checkpoint / file["name"]).read_bytes()
            size = int.from_bytes(data[:8], "little")
            files[file["name"]] = json.loads(data[8:8 + size]), data[8 + size:]
    whole = {}
    for name, tensor in manifest["tensors"].items():
        parts = []
        for piece in tensor["slices"]:
            header, data = files[piece["file"]]
            entry = header.get(name) or header[f"{name}@{piece['begin']}"]
            parts.append(data[slice(*entry["data_offsets"])])
        whole[name] = np.frombuffer(b"".join(parts), "<f4").reshape(tensor["shape"])
    return whole


def difference(one, other, key="loss"):
    return max(abs(a[key] - b[key]) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("ranks", [2, 4])
def test_losses_do_not_depend_on_the_number_of_ranks(scatterlm, tiny_config, runs, ranks):
    """Ranks x micro-batch is the same: even the auxiliary loss is. Sums run in another order, hence the tolerance."""
    one = train(scatterlm, 1, tiny_config, runs / "one", *STEPS)
    several = train(scatterlm, ranks, tiny_config, runs / "several", *STEPS)
    assert difference(one, several) < 2e-5
    assert difference(one, several, "aux_loss") < 1e-4
    assert difference(one, several, "grad_norm") < 1e-3
    assert abs(one[-1]["val_loss"] - several[-1]["val_loss"]) < 2e-5
    assert one[0]["routers"][0]["entropy"] == pytest.approx(several[0]["routers"][0]["entropy"], abs=1e-6)


def test_micro_batches_of_another_size_on_each_number_of_ranks(scatterlm, tiny_config, runs):
    """Without the auxiliary loss nothing depends on what is in one micro-step."""
    options = [*STEPS, "--set", "model.router.aux_loss_coef=0", "--set", "train.micro_batch_size=2"]
    one = train(scatterlm, 1, tiny_config, runs / "one", *options)
    assert difference(one, train(scatterlm, 2, tiny_config, runs / "two", *options)) < 2e-5
    assert difference(one, train(scatterlm, 4, tiny_config, runs / "four", *options)) < 2e-5


def test_bias_balancing_counts_all_ranks(scatterlm, tiny_config, runs):
    options = [*STEPS, "--set", "model.router.balance=bias"]
    one, two = (train(scatterlm, ranks, tiny_config, runs / str(ranks), *options) for ranks in (1, 2))
    assert difference(one, two) < 2e-5
    assert difference(one, two, "load_max_mean") < 0.02


@pytest.mark.parametrize("micro", [4, 1])
def test_what_ranks_share_changes_no_bit(scatterlm, tiny_config, runs, micro):
    """zero 2 adds up micro-batches after the ranks, zero 0 and 1 before: only with one of them the bits are the same."""
    options = [*STEPS, "--set", f"train.micro_batch_size={micro}"]
    rows = [train(scatterlm, 2, tiny_config, runs / str(zero), *options, "--set", f"parallel.zero={zero}") for zero in (0, 1, 2)]
    weights = [tensors(runs / str(zero) / "step_00000020") for zero in (0, 1, 2)]
    exact = 3 if micro == 4 else 2
    for other in range(1, exact):
        assert difference(rows[0], rows[other]) == 0
        assert all((weights[0][name] == weights[other][name]).all() for name in weights[0])
    assert difference(rows[0], rows[2]) < 2e-5


def test_gradients_may_travel_in_bfloat16(scatterlm, tiny_config, runs):
    exact = train(scatterlm, 2, tiny_config, runs / "fp32", *STEPS)
    rounded = train(scatterlm, 2, tiny_config, runs / "bf16", *STEPS, "--set", "parallel.reduce_dtype=bfloat16")
    assert 0 < difference(exact, rounded) < 2e-2


def test_two_runs_of_the_same_ranks_end_in_the_same_bits(scatterlm, tiny_config, runs):
    for run in ("first", "second"):
        train(scatterlm, 2, tiny_config, runs / run, *STEPS)
    for file in ("rank_00000.safetensors", "rank_00001.safetensors"):
        assert (runs / "first/step_00000020" / file).read_bytes() == (runs / "second/step_00000020" / file).read_bytes()


@pytest.mark.parametrize("zero", [0, 1, 2])
def test_a_checkpoint_of_four_ranks_goes_on_with_one_and_two(scatterlm, tiny_config, runs, zero):
    options = ["--set", "checkpoint.keep_last=9", "--set", f"parallel.zero={zero}"]
    through = train(scatterlm, 4, tiny_config, runs / "four", *STEPS, *options)
    start = runs / "four/step_00000010"
    assert len(list(start.glob("rank_*.safetensors"))) == 4
    for ranks in (1, 2):
        fork = train(scatterlm, ranks, tiny_config, runs / str(ranks), *STEPS, *options, "--resume", start)
        assert difference(through[10:], fork) < 2e-5


@pytest.mark.parametrize("ranks", [1, 3])
def test_an_asynchronous_save_writes_the_same_bytes(scatterlm, tiny_config, runs, ranks):
    options = [*STEPS, "--set", "checkpoint.save_interval=5", "--set", "checkpoint.keep_last=9", "--set", "train.global_batch_tokens=384"]
    waiting = train(scatterlm, ranks, tiny_config, runs / "waiting", *options)
    beside = train(scatterlm, ranks, tiny_config, runs / "beside", *options, "--set", "checkpoint.async=true")
    files = [path.relative_to(runs / "waiting") for path in sorted((runs / "waiting").glob("step_*/*"))]
    files = [name for name in files if name.name == "state.json" or name.suffix == ".safetensors"]
    assert len(files) == 4 * (ranks + 1)
    assert all((runs / "waiting" / name).read_bytes() == (runs / "beside" / name).read_bytes() for name in files)
    assert difference(waiting, beside) == 0 and beside[5]["save_stall_ms"] > 0 == beside[3]["save_stall_ms"]


def test_a_checkpoint_loads_into_equal_tensors(scatterlm, tiny_config, runs):
    """With a learning rate of zero a step changes moments alone: the weights that another number of ranks saves must be equal."""
    train(scatterlm, 4, tiny_config, runs / "four", *STEPS)
    options = ["--set", "train.steps=21", "--set", "optim.lr=0", "--resume", runs / "four/step_00000020"]
    stored = tensors(runs / "four/step_00000020")
    for ranks in (1, 2, 8):
        train(scatterlm, ranks, tiny_config, runs / str(ranks), *options)
        own = tensors(runs / str(ranks) / "step_00000021")
        weights = [name for name in own if not name.startswith("exp_avg")]
        assert weights and all((stored[name] == own[name]).all() for name in weights)


def test_eval_reads_what_several_ranks_saved(scatterlm, tiny_config, runs):
    metrics = train(scatterlm, 2, tiny_config, runs / "two", *STEPS)
    assert f"validation loss {metrics[-1]['val_loss']:.4f}" in scatterlm("eval", runs / "two", check=True).stdout
    assert "ok" in scatterlm("checkpoint", "verify", runs / "two", check=True).stdout


def test_a_batch_that_ranks_cannot_share_is_said(scatterlm, tiny_config, runs):
    for options in ([], ["--dry-run"]):
        result = scatterlm("launch", "-n", 3, "train", tiny_config, *options)
        assert result.returncode == 2 and not runs.exists()
        assert result.stderr == ("scatterlm: error: train.global_batch_tokens 256 is 8 sequences, which 3 ranks cannot share equally; "
                                 "give a multiple of 96\n")


def test_doctor_comm_checks_values_and_measures(scatterlm):
    lines = scatterlm("launch", "-n", 2, "doctor", "comm", "--mib", 1, check=True).stdout.splitlines()
    assert lines[0].startswith("[0] 2 ranks, each on CPU") and lines[0].endswith("all values exact")
    assert "clock" in lines[1]
    assert [line.split()[1] for line in lines[2:]] == ["all_reduce", "reduce_scatter", "all_gather"]
    assert all(float(line.split()[6]) > 0 for line in lines[2:]), lines

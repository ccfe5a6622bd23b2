"""`scatterlm compare`: runs that are those of `train`, figures that agree with each other, and an honest list of what was equal."""
import json
import re
import shutil
import signal
import statistics
import subprocess

import pytest

from conftest import ROOT, read_metrics

QUICK = ["--speed-only", "--blocks", 3, "--steps-per-block", 2]


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
                             "--set train.threads=... sets it for all\n")
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


# ---- losses

LOSSES = ["--blocks", 3, "--steps-per-block", 2]


def compared(scatterlm, *arguments, **options):
    """Standard output, the folder, and the content of its comparison.json."""
    result = scatterlm("compare", *arguments, *LOSSES, check=True, **options)
    path = result.stdout.splitlines()[-1]
    assert path.endswith("/comparison.json")
    with open(path) as file:
        return result.stdout, ROOT / path.removesuffix("/comparison.json"), json.load(file)


def row_of(text, label):
    """The cells of a line of the first table, of figures of learning."""
    return re.split(r"  +", next(row for row in text.splitlines() if row.startswith(label + "  ")))[1:]


def interpolated(curve, loss):
    """Tokens and seconds where a curve reaches a loss for the first time, written down once more."""
    for (tokens, value, seconds), (next_tokens, next_value, next_seconds) in zip(curve, curve[1:]):
        if value > loss >= next_value:
            part = (value - loss) / (value - next_value)
            return tokens + part * (next_tokens - tokens), seconds + part * (next_seconds - seconds)
    return None


def with_seconds(lines):
    """(tokens, loss, seconds in training steps so far) of the lines with an evaluation."""
    seconds, step, points = 0, 0, []
    for line in lines:
        seconds, step = seconds + line["step_ms"] / 1000 * (line["step"] - step), line["step"]
        if line["val_loss"] is not None:
            points.append((line["tokens"], line["val_loss"], seconds))
    return points


def test_losses_and_every_number_of_the_text(scatterlm, tiny_config, dense_config):
    text, folder, json_file = compared(scatterlm, dense_config, tiny_config, "--sweep", "optim.lr=1e-3,3e-3", "--seeds", 2)
    assert json_file["complete"] and json_file["sweep"] == "optim.lr" and len(json_file["rows"]) == 2
    dense, moe = json_file["rows"]
    for row in dense, moe:
        # What a row says is what its runs' own files say.
        finals = {}
        for run in row["runs"]:
            metrics = read_metrics(folder / run["folder"])
            lines = [line for line in metrics if line["val_loss"] is not None]
            assert len(lines) == 10 and lines[-1]["tokens"] == row["tokens"] == 20 * 256
            assert run["val_loss"] == lines[-1]["val_loss"] and run["val_bpb"] == lines[-1]["val_bpb"]
            finals.setdefault(run["value"], []).append((run["val_loss"], with_seconds(metrics)))
        assert set(finals) == {"1e-3", "3e-3"} and all(len(seeds) == 2 for seeds in finals.values())
        means = {value: statistics.mean(loss for loss, _ in seeds) for value, seeds in finals.items()}
        assert row["best"] == min(means, key=means.get) == "3e-3" and row["val_loss"] == pytest.approx(means["3e-3"])
        assert [row["val_loss_min"], row["val_loss_max"]] == sorted(loss for loss, _ in finals["3e-3"])
        curve = [[statistics.mean(values) for values in zip(*points)] for points in zip(*(curve for _, curve in finals["3e-3"]))]
        assert row["curve"] == [pytest.approx(point) for point in curve]
        assert row["tok_s"] == pytest.approx(256 * 1000 / row["step_ms"]) and row["trained_tok_s"] == pytest.approx(row["tokens"] / row["seconds"])
        assert row["seconds"] == row["curve"][-1][2]
        assert {entry["value"]: entry["val_loss"] for entry in row["by_value"]} == pytest.approx(means)
    assert dense["tokens_share"] == dense["seconds_share"] == 1 and dense["load_max_mean"] is None
    assert moe["val_loss_above_first"] == pytest.approx(moe["val_loss"] - dense["val_loss"]) and moe["load_max_mean"] >= 1
    tokens, seconds = interpolated(moe["curve"], dense["val_loss"])
    assert moe["tokens_to_first_loss"] == pytest.approx(tokens) and moe["tokens_share"] == pytest.approx(tokens / dense["tokens"])
    assert moe["seconds_to_first_loss"] == pytest.approx(seconds) and moe["seconds_share"] == pytest.approx(seconds / dense["seconds"])
    assert {condition["name"]: condition["equal"] for condition in moe["conditions"]}["tokens of every step"]
    # The text has these numbers.
    assert row_of(text, "best optim.lr") == ["3e-3", "3e-3"]
    assert row_of(text, "validation loss") == [f"{row['val_loss']:.4f} ({row['val_loss_min']:.4f} to {row['val_loss_max']:.4f})" for row in (dense, moe)]
    assert row_of(text, "above that of dense") == ["+0.0000", f"{moe['val_loss_above_first']:+.4f}"]
    assert row_of(text, "bits per byte") == [f"{row['val_bpb']:.4f}" for row in (dense, moe)]
    assert row_of(text, "tok/s while training (of that in blocks)") == [f"{row['trained_tok_s']:.0f} ({row['trained_tok_s'] / row['tok_s']:.3f})" for row in (dense, moe)]
    assert row_of(text, "largest load of an expert") == ["-", f"{moe['load_max_mean']:.2f}"]
    assert row_of(text, "tokens to the loss of dense")[1].endswith(f" ({moe['tokens_share']:.3f})")
    assert row_of(text, "time to the loss of dense")[1].endswith(f" ({moe['seconds_share']:.3f})")
    assert (f"tiny reaches the final validation loss of dense, {dense['val_loss']:.4f} nats per token, in {moe['tokens_share']:.3f} of its tokens "
            f"and {moe['seconds_share']:.3f} of its time.\n") in text
    for entry, other in zip(dense["by_value"], moe["by_value"]):
        assert row_of(text, entry["value"]) == [f"{entry['val_loss']:.4f}", f"{other['val_loss']:.4f}"]
    assert line(text, "tok/s")[2].startswith(f"{moe['ratio']['tok_s']:.3f} (")
    assert line(text, "ms per step")[:2] == [f"{row['step_ms']:.2f} ({row['step_ms_p10']:.2f} to {row['step_ms_p90']:.2f})" for row in (dense, moe)]


def test_a_run_is_that_of_train(scatterlm, tiny_config, dense_config, tmp_path):
    """To the bit, although other models trained in the same process before it."""
    _, folder, json_file = compared(scatterlm, dense_config, tiny_config, "--tokens", 2560, "--out", tmp_path / "out")
    assert folder == tmp_path / "out" and [row["tokens"] for row in json_file["rows"]] == [2560, 2560]
    scatterlm("train", tiny_config, "--run-dir", tmp_path / "alone", "--set", "train.steps=10", "--set", "train.eval_interval=1", check=True)
    of_both = [[(line["loss"], line["val_loss"], line["grad_norm"]) for line in read_metrics(run)] for run in (folder / "tiny", tmp_path / "alone")]
    assert len(of_both[0]) == 10 and of_both[0] == of_both[1]


@pytest.mark.parametrize("minutes", [(0.003,), (0.006, 0.003)])
def test_equal_time_or_a_time_of_its_own(scatterlm, tiny_config, dense_config, minutes):
    _, _, json_file = compared(scatterlm, dense_config, tiny_config, "--minutes", ",".join(map(str, minutes)))
    for row, of_row in zip(json_file["rows"], minutes * (2 // len(minutes))):
        assert row["tokens"] == max(1, int(60 * of_row * row["tok_s"] / 256)) * 256
        assert row["tokens"] / row["tok_s"] <= 60 * of_row or row["tokens"] == 256


def test_more_seeds_continue_a_comparison(scatterlm, tiny_config, dense_config, tmp_path):
    def compare(*more):
        text = scatterlm("compare", dense_config, tiny_config, *LOSSES, "--out", tmp_path / "out", *more, check=True).stdout
        return text, json.loads((tmp_path / "out/comparison.json").read_text())["rows"]
    (_, one), (text, two) = compare(), compare("--seeds", 2)
    assert re.findall(r"/out/(\w+)(?:_seed=(\d+))?: ", text) == [("dense", "1235"), ("tiny", "1235")]
    for before, now in zip(one, two):
        assert now["block_ms"] == before["block_ms"] and now["runs"][0] == before["runs"][0] and now["runs"][1]["seed"] == 1235


def losses(row):
    return [point[:2] for point in row["curve"]]


def test_a_killed_comparison_continues(binary, scatterlm, tiny_config, dense_config, tmp_path):
    def command(out):
        return ["compare", dense_config, tiny_config, *LOSSES, "--out", out, "--set", "train.steps=60", "--set", "checkpoint.save_interval=5"]
    scatterlm(*command(tmp_path / "whole"), check=True)
    process = subprocess.Popen([str(part) for part in [binary, *command(tmp_path / "out")]], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        runs = 0
        for printed in process.stdout:
            runs += printed.startswith(str(tmp_path / "out"))
            if runs == 2 and printed.startswith("step 20/"):
                break
    finally:
        process.kill()
        process.communicate()
    state = json.loads((tmp_path / "out/comparison.json").read_text())
    assert not state["complete"] and not (tmp_path / "out/tiny/step_00000060").exists()
    for checkpoint in (tmp_path / "out/dense").glob("step_*"):  # of a complete run: nothing needs them any more
        shutil.rmtree(checkpoint)
    dense_files = {path: path.stat().st_mtime_ns for path in (tmp_path / "out/dense").rglob("*")}
    text = scatterlm(*command(tmp_path / "out"), check=True).stdout
    assert "block" not in text.split("\n\n")[0] and "/out/dense:" not in text and re.search(r"resume: .*/out/tiny/step_000000\d\d", text)
    shutil.rmtree(tmp_path / "out/tiny/step_00000060")  # as if the last save had failed, after the metrics were written
    assert re.search(r"resume: .*/out/tiny/step_00000055", scatterlm(*command(tmp_path / "out"), check=True).stdout)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out/dense").rglob("*")} == dense_files
    whole, continued = (json.loads((tmp_path / name / "comparison.json").read_text()) for name in ("whole", "out"))
    assert continued["complete"]
    for before, now, then in zip(state["rows"], continued["rows"], whole["rows"]):
        assert now["block_ms"] == before["block_ms"] and losses(now) == losses(then) and now["val_loss"] == then["val_loss"]


def test_runs_in_processes_of_their_own(binary, scatterlm, tiny_config, dense_config, tmp_path):
    """The same runs as one after another; a signal reaches all of them, and the same command goes on."""
    def command(out, *options):
        return ["compare", dense_config, tiny_config, *LOSSES, "--sweep", "optim.lr=1e-3,3e-3", "--out", out, "--set", "train.steps=100",
                "--set", "train.eval_interval=10", *options]
    process = subprocess.Popen([str(part) for part in [binary, *command(tmp_path / "out", "--jobs", 2)]], cwd=ROOT, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    try:
        started = set()
        for printed in process.stdout:
            if re.match(r"\[.*\] validation 10/100", printed):
                started.add(printed.split("]")[0])
            if len(started) == 2:
                break
        process.send_signal(signal.SIGTERM)
        rest, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 75 and error.count("starts") == 2, error
    assert started == {"[dense, optim.lr=1e-3, seed 1234", "[tiny, optim.lr=1e-3, seed 1234"}
    assert "validation 100/100" not in rest
    continued = scatterlm(*command(tmp_path / "out", "--jobs", 3), check=True)
    assert continued.stderr.count("starts") == 4 and "validation 10/100" in continued.stdout
    scatterlm(*command(tmp_path / "whole"), check=True)
    rows, expected = (json.loads((tmp_path / name / "comparison.json").read_text())["rows"] for name in ("out", "whole"))
    assert [row["by_value"] for row in rows] == [row["by_value"] for row in expected]
    assert [losses(row) for row in rows] == [losses(row) for row in expected]

    (tmp_path / "failing").mkdir()
    (tmp_path / "failing/dense_optim.lr=1e-3").write_text("in the way")
    result = scatterlm(*command(tmp_path / "failing", "--jobs", 2), check=True)
    error, = re.findall(r"\[dense, optim.lr=1e-3, seed 1234\] scatterlm: error: (.*dense_optim.lr=1e-3.*)", result.stderr)
    assert result.stdout.count("validation 100/100") == 3  # the others went on
    assert f"\nFailed:\n  dense, optim.lr=1e-3, seed 1234: {error}\n" in result.stdout


# With this rate each step multiplies the weights by 1 - 1000 * 0.1, which overflows within 20 steps on any machine.
DIVERGING = ["--set", "train.max_nonfinite_steps=2", "--set", "optim.weight_decay=0.1", "--sweep"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_value_that_diverges_is_left_out(scatterlm, tiny_config, dense_config, tmp_path, jobs):
    """The table is of the other values, a repeated command leaves failed runs alone, and --retry-failed trains them again."""
    command = ["compare", dense_config, tiny_config, *LOSSES, *DIVERGING, "optim.lr=3e-3,1000", "--jobs", jobs, "--out", tmp_path / "out"]
    path = tmp_path / "out/comparison.json"

    def files_of_failed():
        return {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*=1000/**/*")}

    result = scatterlm(*command, check=True)
    content = json.loads(path.read_text())
    assert content["complete"]
    table, failed = result.stdout.split("\nFailed:\n")
    for row, error in zip(content["rows"], failed.splitlines()):
        good, bad = row["runs"]
        assert row["best"] == "3e-3" and row["failed"] == 0 and row["val_loss"] == good["val_loss"] and good["error"] is None
        assert re.match(r"2 steps in a row up to step \d+ had a loss or gradient that is not finite; .*\(train.max_nonfinite_steps: 2\)$",
                        bad["error"])
        assert [bad[key] for key in ("val_loss", "val_bpb", "load_max_mean", "dead_experts", "nonfinite_steps")] == [None] * 5
        assert row["by_value"] == [{"value": "3e-3", "val_loss": good["val_loss"], "failed": 0}, {"value": "1000", "val_loss": None, "failed": 1}]
        assert error == f"  {row['name']}, optim.lr=1000, seed 1234: {bad['error']}"
        assert f"{bad['error']}\n" in result.stderr
    assert row_of(table, "1000") == ["failed", "failed"] and row_of(table, "best optim.lr") == ["3e-3", "3e-3"]
    warning = "scatterlm: warning: the comparison leaves out 2 of 4 runs, which failed; --retry-failed trains them again\n"
    assert result.stderr.endswith(warning) and result.stdout.endswith(f"{path}\n")

    before = files_of_failed()
    again = scatterlm(*command, check=True)
    assert files_of_failed() == before and again.stderr == warning and json.loads(path.read_text()) == content
    assert again.stdout.split("\nFailed:\n")[1] == failed
    retried = scatterlm(*command, "--retry-failed", check=True)
    assert files_of_failed() != before and retried.stderr.count("3 steps in a row") == 2  # from the checkpoint of the failed run


def test_a_failed_run_is_known_after_the_comparison_was_killed(binary, scatterlm, tiny_config, dense_config, tmp_path):
    command = ["compare", dense_config, tiny_config, *LOSSES, *DIVERGING, "optim.lr=1000,3e-3", "--out", tmp_path / "out"]
    process = subprocess.Popen([str(part) for part in [binary, *command]], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        for printed in process.stdout:
            if printed.startswith(str(tmp_path / "out/tiny_optim.lr=1000")):
                break
    finally:
        process.kill()
        process.communicate()
    state = json.loads((tmp_path / "out/comparison.json").read_text())
    assert not state["complete"] and "2 steps in a row" in state["rows"][0]["runs"][0]["error"]
    continued = scatterlm(*command, check=True)
    assert "/out/dense_optim.lr=1000:" not in continued.stdout and "/out/tiny_optim.lr=3e-3:" in continued.stdout
    assert "\n  dense, optim.lr=1000, seed 1234: 2 steps in a row" in continued.stdout


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_model_of_which_every_run_failed(scatterlm, tiny_config, dense_config, tmp_path, jobs):
    command = ["compare", dense_config, tiny_config, *LOSSES, *DIVERGING, "optim.lr=500,1000", "--jobs", jobs, "--out", tmp_path / "out"]
    for repeated in False, True:
        result = scatterlm(*command)
        assert result.returncode == 1 and "validation loss" not in result.stdout
        assert re.search(r"scatterlm: error: dense: no run ended with a finite validation loss \(dense, optim.lr=500, seed 1234: 2 steps in a row .*\); "
                         r"--retry-failed trains failed runs again\n$", result.stderr)
        assert result.stderr.count("steps in a row") == (1 if repeated else 5)
    rows = json.loads((tmp_path / "out/comparison.json").read_text())["rows"]
    assert all(run["error"] for row in rows for run in row["runs"])


def test_other_settings_do_not_continue(scatterlm, tiny_config, dense_config, tmp_path):
    compared(scatterlm, dense_config, tiny_config, "--tokens", 512, "--out", tmp_path / "out")
    path = tmp_path / "out/comparison.json"
    for arguments, message in [((dense_config, tiny_config, "--tokens", 768), f"{path}: dense was compared with train.tokens 512, which is 768 now"),
                               ((tiny_config, dense_config, "--tokens", 512), f"{path}: configuration 1 is dense, not tiny"),
                               ((tiny_config, dense_config, tiny_config), f"{path}: compares 2 configurations, not 3")]:
        result = scatterlm("compare", *arguments, "--out", tmp_path / "out")
        assert result.returncode == 2 and result.stderr == f"scatterlm: error: {message}; give another --out\n", result.stderr


def test_losses_of_other_tokens_are_not_compared(scatterlm, tmp_path, tiny_config):
    other = tmp_path / "other.yaml"
    for old, new, message in [
            ("steps: 20", "steps: 30", "tiny.yaml trains 20 steps and {other} trains 30; --tokens sets the length of all"),
            ("sequence_length", "seed: 7, sequence_length", "train.seed is 1234 in {tiny} and 7 in {other}: their losses are not those of the same "
             "tokens; --set train.seed=... sets it for all"),
            ("val.bin,", "val.bin, raw_dtype: uint16,", "data.raw_dtype is auto in {tiny} and uint16 in {other}: their losses"),
            ("validation: ", "eot_token: 256} #", "{other}: data.validation is missing, and compare is about the loss on it")]:
        other.write_text(tiny_config.read_text().replace(old, new))
        result = scatterlm("compare", tiny_config, other)
        assert result.returncode == 2 and message.format(tiny=tiny_config, other=other) in result.stderr, result.stderr
        assert result.stderr.count("\n") == 1


def test_three_models(scatterlm, tiny_config, dense_config, tmp_path):
    wide = tmp_path / "wide.yaml"
    wide.write_text(dense_config.read_text().replace("intermediate_size: 48", "intermediate_size: 96"))
    text, _, json_file = compared(scatterlm, dense_config, tiny_config, wide, "--tokens", 1280)
    assert [row["name"] for row in json_file["rows"]] == ["dense", "tiny", "wide"] and len(line(text, "tok/s")) == 5
    assert "wide / dense" in text and text.count("final validation loss of dense") == 2

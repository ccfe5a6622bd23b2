"""A traced step: its files, and that tracing changes no result."""
import json

import pytest

from conftest import read_metrics


def traced(step):
    return ["--set", f"log.trace_step={step}", "--set", "train.steps=5"]


def files(run, step=3):
    return [json.loads((run / f"trace_step_{step:08d}{end}.json").read_text()) for end in ("", "_summary")]


def begins(trace, name):
    return sorted(event["ts"] for event in trace["traceEvents"] if event.get("cat") == "cpu_op" and event["name"] == name)


def test_a_trace_holds_one_period_from_update_to_update(scatterlm, tiny_config, runs):
    result = scatterlm("train", tiny_config, *traced(3), "--set", "train.micro_batch_size=4", check=True)
    trace, summary = files(runs / "tiny")
    embeddings, updates = begins(trace, "aten::embedding"), begins(trace, "aten::_fused_adamw_")
    assert len(embeddings) == 2, "a forward pass for each micro-batch"
    assert len(begins(trace, "aten::embedding_dense_backward")) == 2
    assert updates and updates[-1] < embeddings[0], "that of the step before"

    assert summary["step"] == 3 and summary["device"] == "CPU"
    assert summary["wall_ms"] >= summary["busy_ms"] > 0 and summary["idle_ms"] == pytest.approx(summary["wall_ms"] - summary["busy_ms"])
    assert summary["compute_ms"] == summary["busy_ms"] and summary["collectives_ms"] == summary["exposed_ms"] == 0
    assert len(summary["kernels"]) == 20
    for kernel in summary["kernels"]:
        assert len(begins(trace, kernel["name"])) == kernel["calls"]
        assert kernel["percent"] == pytest.approx(100 * kernel["ms"] / summary["wall_ms"])
    assert sum(kernel["ms"] for kernel in summary["kernels"]) <= 1.001 * summary["busy_ms"], "self times on one thread"
    assert f"step 3 traced: {summary['wall_ms']:.1f} ms, CPU busy " in result.stdout


@pytest.mark.parametrize("ranks", [1, 2])
def test_tracing_changes_no_result(scatterlm, tiny_config, runs, ranks):
    launch = ["launch", "-n", ranks] if ranks > 1 else []
    scatterlm(*launch, "train", tiny_config, *traced(3), "--run-dir", runs / "traced", check=True)
    scatterlm(*launch, "train", tiny_config, *traced(0), "--run-dir", runs / "plain", check=True)
    assert not list((runs / "plain").glob("trace*"))
    assert len(list((runs / "traced").glob("trace*"))) == 2
    assert [line["loss"] for line in read_metrics(runs / "traced")] == [line["loss"] for line in read_metrics(runs / "plain")]
    for file in (runs / "plain/step_00000005").glob("rank_*.safetensors"):
        assert (runs / "traced/step_00000005" / file.name).read_bytes() == file.read_bytes()


def test_a_resumed_run_is_traced_or_says_that_it_is_too_late(scatterlm, tiny_config, runs):
    run = runs / "tiny"
    scatterlm("train", tiny_config, *traced(0), check=True)
    later = ["--set", "train.steps=10"]
    result = scatterlm("train", tiny_config, *traced(7), *later, check=True)
    assert "log.trace_step: 7 is not traced: the run continues from step 5, and two steps prepare a trace" in result.stderr
    assert not list(run.glob("trace*"))
    result = scatterlm("train", tiny_config, *traced(13), "--set", "train.steps=13", check=True)
    assert files(run, 13)[1]["step"] == 13 and "not traced" not in result.stderr
    assert [line["step"] for line in read_metrics(run)] == list(range(1, 14))


def test_a_trace_that_cannot_be_written_does_not_end_the_run(scatterlm, tiny_config, runs):
    (runs / "tiny/trace_step_00000003.json").mkdir(parents=True)
    result = scatterlm("train", tiny_config, *traced(3), check=True)
    assert f"{runs}/tiny/trace_step_00000003.json: cannot write: Is a directory; training continues without the trace" in result.stderr
    assert read_metrics(runs / "tiny")[-1]["step"] == 5

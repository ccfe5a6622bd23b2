"""The event files are what the tensorboard package reads, and a resumed run leaves no steps of the run that crashed."""
import os
import subprocess

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


@pytest.fixture(scope="module")
def events(binary, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tensorboard")
    program = binary.parent / "test_report"
    subprocess.run([program, "sample for the reader of TensorBoard files"], check=True, capture_output=True,
                   env={**os.environ, "SCATTERLM_TENSORBOARD_DIR": str(folder)})
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0, "histograms": 0})
    accumulator.Reload()
    return accumulator


def test_scalars_are_read_back(events):
    assert events.Tags()["scalars"] == ["train/loss", "validation/loss"]
    loss = events.Scalars("train/loss")
    assert loss[2].step == 3
    assert loss[2].value == pytest.approx(1 / 3)
    assert loss[2].wall_time == 1e9 + 3


def test_histograms_are_read_back(events):
    (first, *others) = events.Histograms("router/loads")
    assert [first.step, *(event.step for event in others)] == [100, 200]
    value = first.histogram_value
    assert (value.min, value.max, value.num, value.sum, value.sum_squares) == (0, 3, 4, 4, 9.5)
    assert value.bucket_limit == pytest.approx([0.3 * (i + 1) for i in range(10)])
    assert value.bucket == [1, 2, 0, 0, 0, 0, 0, 0, 0, 1]


def test_resume_replaces_the_steps_after_it(events):
    assert [e.step for e in events.Scalars("train/loss")] == list(range(1, 251))
    assert [e.step for e in events.Scalars("validation/loss")] == [100, 200]
    assert events.Scalars("train/loss")[199].value == pytest.approx(1 / 200)
    assert events.Scalars("train/loss")[200].value == pytest.approx(10 + 1 / 201)

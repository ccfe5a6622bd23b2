"""Storage that fails and paths that are wrong: one line, the right exit code, and nothing that was saved is lost."""
import os
import shutil
import subprocess
import time

import pytest

from conftest import ROOT

IO_ERROR = 1  # FaultKind of tests/fault/fault_injection.h: once


@pytest.fixture(scope="module")
def fault_injection(tmp_path_factory):
    """Path of the library to preload."""
    library = tmp_path_factory.mktemp("fault") / "fault_injection.so"
    subprocess.run(["c++", "-std=c++20", "-shared", "-fPIC", "-I", ROOT, ROOT / "tests/fault/fault_injection.cpp", "-o", library, "-ldl"],
                   check=True)
    return library


def error_of(result, code):
    assert result.returncode == code, result.stderr
    assert len(result.stderr.splitlines()) == 1, result.stderr
    return result.stderr


def test_a_save_that_fails_is_reported_and_the_next_one_succeeds(scatterlm, fault_injection, tiny_config, runs):
    def train(step):
        return scatterlm("train", tiny_config, env={"LD_PRELOAD": str(fault_injection), "FAULT_KIND": str(IO_ERROR), "FAULT_CALL": "4",
                                                    "FAULT_FOLDER": f"{runs}/tiny/.tmp_step_{step:08d}"})

    first = train(10)
    assert first.returncode == 0, first.stderr
    assert ".tmp_step_00000010/rank_00000.safetensors: cannot write: Input/output error; training continues without" in first.stderr
    assert sorted(path.name for path in (runs / "tiny").glob("*step*")) == ["step_00000020"]

    shutil.rmtree(runs)
    assert "cannot write: Input/output error\n" in error_of(train(20), 1)  # a launcher may try it again
    assert sorted(path.name for path in (runs / "tiny").glob("*step*")) == ["step_00000010"]
    scatterlm("train", tiny_config, check=True)
    assert sorted(path.name for path in (runs / "tiny").glob("*step*")) == ["step_00000010", "step_00000020"]


def test_a_run_folder_that_is_renamed_ends_the_run(binary, tiny_config, runs):
    process = subprocess.Popen([binary, "train", tiny_config, "--set", "train.steps=1000000"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        while not (runs / "tiny/step_00000010").exists():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        (runs / "tiny").rename(runs / "other")
        _, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 2, error
    assert f"{runs}/tiny: the folder of the run, or its file .lock, was renamed or removed" in error
    assert not (runs / "tiny").exists()


def test_token_files_that_become_shorter_are_named(binary, tiny_config, tiny_data, runs, tmp_path):
    data = tmp_path / "train.bin"
    shutil.copy(tiny_data / "train.bin", data)
    process = subprocess.Popen([binary, "train", tiny_config, "--set", "train.steps=1000000", "--set", f"data.train={data}"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        while not (runs / "tiny/metrics.jsonl").exists():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        os.truncate(data, 10)
        _, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1, error
    assert error == f"scatterlm: error: {data}: cannot read: it has become shorter while it was in use, or its storage has failed\n"


@pytest.mark.parametrize("path, reason", [("loop/run", "Too many levels of symbolic links"), ("x" * 300, "File name too long")])
@pytest.mark.parametrize("command", [["checkpoint", "verify"], ["checkpoint", "inspect"], ["eval"], ["train", "--run-dir"], ["train", "--resume"]])
def test_paths_that_no_system_call_takes_are_the_users_to_change(scatterlm, tiny_config, tmp_path, command, path, reason):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    config = [tiny_config] if command[0] == "train" else []
    assert reason in error_of(scatterlm(*command[:1], *config, *command[1:], tmp_path / path), 2)

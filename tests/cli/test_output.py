"""What is printed and cannot be: a run goes on and says so once; a command whose result is its output fails."""
import resource
import subprocess

import pytest

from conftest import ROOT, TINY_CONFIG, read_metrics

LAUNCH = {1: [], 2: ["launch", "-n", "2"]}


@pytest.mark.parametrize("ranks", LAUNCH)
def test_a_run_goes_on_when_its_reader_goes_away(binary, tiny_config, runs, ranks):
    with subprocess.Popen([binary, *LAUNCH[ranks], "train", tiny_config, "--run-dir", runs / "run"], cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert "data: " in process.stdout.readline()
        process.stdout.close()
        error = process.stderr.read()
    assert process.returncode == 0, error
    assert error == "scatterlm: warning: stdout: cannot write: Broken pipe; the run continues\n"
    assert len(read_metrics(runs / "run")) == 20


@pytest.mark.parametrize("ranks", LAUNCH)
def test_a_run_goes_on_when_nobody_reads_either_output(binary, tiny_config, runs, ranks):
    with subprocess.Popen([binary, *LAUNCH[ranks], "train", tiny_config, "--run-dir", runs / "run"], cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        process.stdout.readline()
        process.stdout.close()
    assert process.returncode == 0
    assert len(read_metrics(runs / "run")) == 20


@pytest.fixture(scope="module")
def trained(scatterlm, tiny_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    (folder / "tiny.yaml").write_text(TINY_CONFIG.format(runs=folder, data=tiny_data))
    scatterlm("train", folder / "tiny.yaml", check=True)
    return folder


COMMANDS = ["--version", "--help", "train --help", "train {0}/tiny.yaml --run-dir {0}/other --dry-run", "launch -n 2 train {0}/tiny.yaml --run-dir {0}/other --dry-run",
            "config show {0}/tiny.yaml", "config keys",
            "data inspect {1}/train.bin", "checkpoint inspect {0}/tiny", "checkpoint verify {0}/tiny", "eval {0}/tiny",
            "generate {0}/tiny --max-tokens 5", "bench routing --shapes 8,8,8,2,1",
            "compare {0}/tiny.yaml {0}/tiny.yaml --speed-only --blocks 1 --steps-per-block 1", "launch -n 2 doctor comm --mib 1"]


@pytest.mark.parametrize("command", COMMANDS)
def test_output_that_cannot_be_written_is_a_failure(binary, trained, tiny_data, command):
    with open("/dev/full", "w") as full:
        result = subprocess.run([binary, *command.format(trained, tiny_data).split()], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1, result.stderr
    assert result.stderr.endswith("scatterlm: error: stdout: cannot write: No space left on device\n")
    assert result.stderr.count("error: ") == 1


def test_a_file_at_its_limit_is_a_message(binary, tiny_config, runs):
    result = subprocess.run([binary, "train", tiny_config, "--run-dir", runs / "run"], cwd=ROOT, capture_output=True, text=True,
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (40000, 40000)))
    assert result.returncode == 1, result.stderr
    lines = result.stderr.splitlines()  # the save of step 10 costs nothing but itself, that of step 20 is the last
    assert len(lines) == 2 and all("cannot write: File too large" in line for line in lines), lines

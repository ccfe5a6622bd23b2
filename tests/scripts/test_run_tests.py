"""Counting of test results: nothing that fails, crashes or hangs may be lost."""
import pathlib
import signal
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import run_tests

# As Catch2 writes it: `tests` counts assertions, each section is a case.
REPORT = """<?xml version="1.0"?><testsuites><testsuite name="t" tests="99" failures="1" errors="1">
<testcase classname="t.global" name="good"/>
<testcase classname="t.global" name="good/section"/>
<testcase classname="t.global" name="bad"><failure message="a == b" type="REQUIRE">1 == 2</failure></testcase>
<testcase classname="t.global" name="throws"><error message="oops" type="TEST_CASE"/></testcase>
<testcase classname="t" name="later"><skipped message="no GPU"/></testcase>
</testsuite></testsuites>"""


@pytest.fixture(autouse=True)
def reports(tmp_path, monkeypatch):
    monkeypatch.setattr(run_tests, "REPORTS", tmp_path)
    return tmp_path


def run(reports, script, report=""):
    """Result of a job that writes `report` and then runs a shell script."""
    (reports / "content").write_text(report)
    return run_tests.run_job("job", ["sh", "-c", f"cp {reports}/content {reports}/job.xml; {script}"], {})


def test_every_case_is_counted(reports):
    result = run(reports, "exit 2", REPORT)
    assert (result.passed, len(result.failures), result.skipped) == (2, 2, 1)
    assert "bad\n1 == 2" in result.failures[0] and "throws\noops" in result.failures[1]


@pytest.mark.parametrize("script, report, reason", [
    ("echo last words; kill -SEGV $$", "", "exit code -11"),
    ("exit 0", REPORT[:200], "exit code 0"),
    ("exit 1", '<testsuites><testcase name="good"/></testsuites>', "exit code 1"),
    ("exit 0", "<testsuites/>", "exit code 0"),
    ("sleep 20", "", "stopped after 1 s"),
])
def test_an_incomplete_report_is_a_failure(reports, monkeypatch, script, report, reason):
    monkeypatch.setattr(run_tests, "TIME_LIMIT", 1)
    result = run(reports, script, report)
    assert len(result.failures) == 1 and reason in result.failures[0]
    assert ("last words" in result.failures[0]) == ("last words" in script)


STARTS_ANOTHER = "sleep 100 & echo $! > {}; wait"


def wait_for_pid(path):
    while not path.exists() or not path.read_text().endswith("\n"):
        time.sleep(0.02)
    return int(path.read_text())


def has_ended(pid):
    """Whether the process ends within some seconds; one that waits for its parent to notice has ended."""
    for _ in range(200):
        try:
            if ") Z " in pathlib.Path(f"/proc/{pid}/stat").read_text():
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


def test_a_job_that_takes_too_long_ends_with_what_it_has_started(reports, monkeypatch):
    monkeypatch.setattr(run_tests, "TIME_LIMIT", 1)
    result = run(reports, STARTS_ANOTHER.format(reports / "pid"))
    assert "stopped after 1 s" in result.failures[0]
    assert has_ended(wait_for_pid(reports / "pid"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_jobs_with_what_they_have_started(reports, number):
    program = f"""
import pathlib, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by what a shell starts in the background
sys.path.insert(0, {str(pathlib.Path(run_tests.__file__).parent)!r})
import run_tests
run_tests.REPORTS = pathlib.Path({str(reports / "reports")!r})
job = lambda: run_tests.run_job("job", ["sh", "-c", {STARTS_ANOTHER.format(reports / "pid")!r}], {{}})
run_tests.plan = lambda builds: [("job", job)] * 3 * run_tests.os.cpu_count()
sys.argv = ["run_tests.py"]
run_tests.main()
"""
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
    pid = wait_for_pid(reports / "pid")
    time.sleep(1)  # until the jobs beside it have started, too
    process.send_signal(number)
    assert process.wait(20) != 0
    assert has_ended(pid)


def test_a_failed_build_fails_and_runs_nothing(reports, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["run_tests.py", "release=1", "tsan=0", "sanitize=1"])
    assert run_tests.main() == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 2 failed, 0 skipped"


def test_the_programs_of_good_builds_are_run():
    names = [name for name, _ in run_tests.plan({"release": 0, "sanitize": 1})]
    assert names[0] == "pytest" and "release util" in names and not any("sanitize" in name for name in names)
    names = [name for name, _ in run_tests.plan({"release": 1, "sanitize": 0})]
    assert names[0] == "sanitize cli" and "sanitize util" in names and "pytest" not in names


def test_emulated_kernels_run_once():
    names = [name for name, _ in run_tests.plan({"release": 0, "sanitize": 0})]
    assert {f"sanitize {name}" for name in run_tests.EMULATED} < set(names) and "release kernels" not in names
    assert "release kernels" in [name for name, _ in run_tests.plan({"release": 0})]


def test_the_program_with_sanitizers_runs_tests_that_exist(monkeypatch):
    monkeypatch.setattr(run_tests, "run_job", lambda name, command, env: (command, env))
    command, env = dict(run_tests.plan({"sanitize": 0}))["sanitize cli"]()
    assert all((run_tests.ROOT / path).exists() for path in run_tests.SANITIZED_CLI)
    assert set(run_tests.SANITIZED_CLI) < set(command)
    assert env["SCATTERLM_BINARY"] == str(run_tests.ROOT / "build/sanitize/bin/scatterlm")


@pytest.mark.parametrize("script, passed, failures", [
    ("""echo '{"rows": [{"target": "a", "failed": false}, {"target": "b", "failed": true, "inputs": ["crash-1"]}]}' > $2; exit 1""", 1, ["fuzz b: ['crash-1']"]),
    ("echo no clang_rt; exit 3", 0, ["fuzz: exit code 3\nno clang_rt"]),
])
def test_fuzz_targets_are_counted(monkeypatch, script, passed, failures):
    monkeypatch.setattr(run_tests.shutil, "which", lambda name: name)
    result = run_tests.fuzz_job(["sh", "-c", script, "sh"])
    assert result.passed == passed and [text.startswith(start) for text, start in zip(result.failures, failures)] == [True]


def test_fuzzing_without_clang_is_skipped(monkeypatch):
    monkeypatch.setattr(run_tests.shutil, "which", lambda name: None)
    assert run_tests.fuzz_job() == run_tests.Result(skipped=1)

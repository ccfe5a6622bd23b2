"""Runs the test programs and pytest side by side and counts every test. Called by scripts/test, which has built them.

    run_tests.py PRESET=STATUS...    each build and its exit code; a failed build is a failed test and its programs are not run
"""
import concurrent.futures
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[1]
REPORTS = ROOT / "build/reports"
TIME_LIMIT = 3000  # seconds of one job: twice what the longest, pytest, takes on two busy cores

ENV = {"OMP_NUM_THREADS": "1", "UBSAN_OPTIONS": "print_stacktrace=1"}
# What the program with sanitizers runs too: bad input, killing and going on, losses. 2 minutes of a core.
SANITIZED_CLI = [f"tests/cli/test_{name}.py" for name in ("errors", "resume", "training")]


# Programs that run kernels on the CPU (tests/kernels/CMakeLists.txt).
EMULATED = {"kernels", "ops_emulated", "nn_emulated", "bench_emulated"}


@dataclasses.dataclass
class Result:
    passed: int = 0
    skipped: int = 0
    failures: list = dataclasses.field(default_factory=list)  # one text each


def has_gpu():
    return shutil.which("nvidia-smi") is not None and subprocess.run(["nvidia-smi", "-L"], capture_output=True).returncode == 0


def read_report(path):
    """Counts the cases of a JUnit file (Catch2 version 2 or 3, or pytest)."""
    result = Result()
    for case in ElementTree.parse(path).iter("testcase"):
        problem = next((child for child in case if child.tag in ("failure", "error")), None)
        if problem is not None:
            text = (problem.text or problem.get("message") or "").strip()
            result.failures.append(f"{case.get('classname', '')} {case.get('name')}\n{text}")
        elif case.find("skipped") is not None:
            result.skipped += 1
        else:
            result.passed += 1
    return result


RUNNING = set()  # processes of jobs, each with a session of its own
ENDING = threading.Event()  # a job that starts later ends at once


def end_job(process):
    """Kills a job with all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run_limited(command, env, log):
    """Exit code of a command, whose output goes to the file `log`. Raises subprocess.TimeoutExpired after TIME_LIMIT."""
    with open(log, "wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, **env},
                                   start_new_session=True)
        RUNNING.add(process)
        try:
            if ENDING.is_set():
                end_job(process)
            return process.wait(TIME_LIMIT)
        except subprocess.TimeoutExpired:
            end_job(process)
            raise
        finally:
            RUNNING.discard(process)


def run_job(name, command, env):
    """Runs one command that writes build/reports/NAME.xml. Whatever ends without a whole report is one more failure."""
    report, log = REPORTS / f"{name}.xml", REPORTS / f"{name}.log"
    try:
        status = run_limited(command, env, log)
        ending = f"exit code {status}"
    except subprocess.TimeoutExpired:
        status, ending = -1, f"stopped after {TIME_LIMIT} s"
    try:
        result = read_report(report)
    except (OSError, ElementTree.ParseError):
        result = Result()
    if (status != 0 and not result.failures) or result == Result():
        tail = log.read_text(errors="replace").splitlines()[-30:]
        result.failures.append("\n".join([f"{name}: {ending}, no complete report", *tail]))
    return result


def count_cases(program, tests):
    listing = subprocess.run([program, "--list-tests", tests], capture_output=True, text=True).stdout
    return int((re.search(r"(\d+) matching test case", listing) or [0, 0])[1])


def catch2_job(preset, tests, gpu):
    """The program of one set of tests. Cases tagged [gpu], hidden or not, run where there is one; elsewhere they are excluded,
    and counted as skipped."""
    program = ROOT / "build" / preset / "bin" / f"test_{tests}"
    if not program.exists():
        return Result(failures=[f"{program} is missing"])
    name = f"{preset}_{tests}"
    skipped = 0 if gpu else count_cases(program, "[gpu]")
    without_gpu = "~[gpu]~[.]"  # hidden cases too: a filter of its own makes Catch2 version 2 run them
    if skipped and not count_cases(program, without_gpu):
        return Result(skipped=skipped)
    command = [program, "~[.],[gpu]" if gpu else without_gpu, "--reporter", "junit", "--out", REPORTS / f"{name}.xml"]
    result = run_job(name, command, ENV)
    result.skipped += skipped
    return result


def pytest_job(name, tests, env):
    return run_job(name, [sys.executable, "-m", "pytest", *tests, f"--junitxml={REPORTS}/{name}.xml", "-q"], env)


def has_fuzzer():
    """Whether there is a Clang with libFuzzer and the sanitizers."""
    program = b'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }'
    command = ["clang++", "-fsanitize=fuzzer,address,undefined", "-x", "c++", "-", "-o", os.devnull]
    return shutil.which("clang++") is not None and subprocess.run(command, input=program, capture_output=True).returncode == 0


def fuzz_job(command=(ROOT / "scripts/fuzz", "--seconds", "10")):
    """Ten seconds of every target of scripts/fuzz; one skipped test where Clang or its libraries are missing. A target that is
    missing fails."""
    if not has_fuzzer():
        return Result(skipped=1)
    report, log = REPORTS / "fuzz.json", REPORTS / "fuzz.log"
    try:
        status = run_limited([*command, "--out", report], {}, log)
    except subprocess.TimeoutExpired:
        status = -1
    rows = json.loads(report.read_text())["rows"] if report.exists() else []
    failures = [f"fuzz {row['target']}: {row['inputs']}, see {log}" for row in rows if row["failed"]]
    if status != 0 and not failures:
        failures.append("\n".join([f"fuzz: exit code {status}", *log.read_text(errors="replace").splitlines()[-30:]]))
    return Result(passed=sum(not row["failed"] for row in rows), failures=failures)


def plan(builds):
    """(name, callable) of every job; the slow ones first, so that the last job to end is a short one."""
    gpu = has_gpu()
    folders = {path.parent.name for path in ROOT.glob("tests/*/*_test.cpp")}  # a program that is missing fails
    jobs = []
    if builds.get("release") == 0:
        jobs.append(("pytest", lambda: pytest_job("pytest", ["tests"], {})))
    if builds.get("sanitize") == 0:
        env = {**ENV, "SCATTERLM_BINARY": str(ROOT / "build/sanitize/bin/scatterlm")}
        jobs.append(("sanitize cli", lambda: pytest_job("sanitize_cli", SANITIZED_CLI, env)))
        jobs.append(("fuzz", fuzz_job))
    for preset in ("sanitize", "release"):
        if builds.get(preset) == 0:
            built = {path.name.removeprefix("test_") for path in (ROOT / "build" / preset / "bin").glob("test_*")}
            tests = folders | built | EMULATED
            if preset == "release" and "sanitize" in builds:
                tests -= EMULATED  # with sanitizers they find what they find here
            jobs += [(f"{preset} {name}", lambda p=preset, n=name: catch2_job(p, n, gpu and p == "release")) for name in sorted(tests)]
    return jobs


def timed(job):
    start = time.monotonic()
    result = job()
    return result, time.monotonic() - start


def main():
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    builds = {name: int(status) for name, status in (argument.split("=") for argument in sys.argv[1:])}
    shutil.rmtree(REPORTS, ignore_errors=True)
    REPORTS.mkdir(parents=True)
    total = Result(passed=sum(status == 0 for status in builds.values()),
                   failures=[f"build {name}: see build/build_{name}.log" for name, status in builds.items() if status != 0])
    running = {}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            for name, job in plan(builds):
                running[pool.submit(timed, job)] = name
            for future in concurrent.futures.as_completed(running):
                result, seconds = future.result()
                print(f"{running[future]:<28} {result.passed:4} passed {len(result.failures):3} failed {result.skipped:3} skipped"
                      f" {seconds:7.1f} s", flush=True)
                total.passed += result.passed
                total.skipped += result.skipped
                total.failures += result.failures
        except KeyboardInterrupt:  # which does not reach the sessions of the jobs
            pool.shutdown(wait=False, cancel_futures=True)
            ENDING.set()
            for process in list(RUNNING):
                end_job(process)
            raise
    for failure in total.failures:
        print(f"\nFAILED {failure}")
    print(f"{total.passed} passed, {len(total.failures)} failed, {total.skipped} skipped")
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())

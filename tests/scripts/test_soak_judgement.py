"""scripts/soak finds each thing that may grow, and only that."""
import pytest

from load_script import load

soak = load("soak")


def rows(count=100, rss_mib=lambda i: 300, open_files=lambda i: 30 + i % 2, threads=lambda i: 5 + i % 3):
    return [{"rss_mib": rss_mib(i), "open_files": open_files(i), "threads": threads(i)} for i in range(count)]


def metrics(count=100, step_ms=lambda i: 2 + i % 5, alloc_retries=lambda i: 0):
    return [{"step_ms": step_ms(i), "alloc_retries": alloc_retries(i)} for i in range(count)]


@pytest.mark.parametrize("samples, lines, grown", [
    (rows(), metrics(), []),
    (rows(rss_mib=lambda i: 200 if i < 5 else 300), metrics(), []),  # only while it warms up
    (rows(), metrics(step_ms=lambda i: 2 if i % 3 else 50), []),  # another program's load
    (rows(rss_mib=lambda i: 300 + 0.3 * i), metrics(), ["resident memory"]),
    (rows(open_files=lambda i: 30 + i // 50), metrics(), ["open files"]),
    (rows(threads=lambda i: 5 + i // 90), metrics(), ["threads"]),
    (rows(), metrics(step_ms=lambda i: 2 + 0.02 * i), ["time of a step"]),
    (rows(), metrics(alloc_retries=lambda i: i // 99), ["retries of the GPU's allocator"]),
])
def test_what_grows_is_named(samples, lines, grown):
    assert soak.judge(samples, lines)[0] == grown


def test_a_run_too_short_to_judge_is_no_success():
    with pytest.raises(soak.Failed, match="only 9 samples"):
        soak.judge(rows(10), metrics())

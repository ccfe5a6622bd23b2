"""`scatterlm doctor`: a line for each thing that training needs, and exit code 1 for what is broken."""
import os
import re
import resource
import subprocess

import pytest

from conftest import ROOT

SUBJECTS = ["versions", "GPU", "open files", "processes", "file size", "locked memory", "memory", "shared memory", "locale", "clock", "storage",
            "exchange", "kernels"]


def examine(binary, *arguments, limits=(), **environment):
    """(exit code, {subject: (health, text)}, output) under these resource limits."""
    def set_limits():
        for name, value in limits:
            resource.setrlimit(name, (value, value))

    result = subprocess.run([binary, "doctor", *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, timeout=120,
                            env={**os.environ, **environment}, preexec_fn=set_limits)
    found = {}
    for line in result.stdout.splitlines():
        match = re.fullmatch(r"(ok|warning|FAILED) +(\S+(?: \S+)?)  +(.+)", line)
        if match:
            found[re.sub(r"GPU \d+", "GPU", match[2])] = (match[1], match[3])
    return result.returncode, found, result.stdout + result.stderr


def test_a_machine_that_can_train_has_a_line_for_everything(binary, tiny_config):
    code, found, output = examine(binary, tiny_config, "-n", 1)
    assert code == 0 and not any(health == "FAILED" for health, _ in found.values()), output
    assert [name for name in SUBJECTS if name not in found] == [], output
    assert re.search(r"writes \S+ \S+/s with fsync, reads \S+ \S+/s, \S+ \S+ free; .* for 2 checkpoints of ", found["storage"][1]), output
    assert "ranks by" in found["exchange"][1] and "all collectives exact" in found["exchange"][1] or "one GPU" in found["exchange"][1]
    assert "grouped_gemm" in found["kernels"][1] and "rope" in found["kernels"][1]
    assert re.search(r"\n\d+ ok, \d+ warnings, 0 FAILED, in [\d.]+s\n$", output)


@pytest.mark.parametrize("limit, value, subject, text", [
    (resource.RLIMIT_NOFILE, 128, "open files", "up to 128, which a run exceeds; ulimit -n 65536"),
    (resource.RLIMIT_FSIZE, 1 << 20, "storage", "cannot write: File too large; ulimit -f unlimited"),
])
def test_a_limit_that_is_too_low_fails(binary, tmp_path, limit, value, subject, text):
    code, found, output = examine(binary, "--run-dir", tmp_path, limits=[(limit, value)])
    assert code == 1, output
    assert found[subject][0] == "FAILED" and text in found[subject][1], output
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_fails(binary, tmp_path):
    """A tmpfs with less room than the check writes."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", tmp_path], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted: {mounted.stderr.strip()}")
    try:
        code, found, output = examine(binary, "--run-dir", tmp_path / "run")
    finally:
        subprocess.run(["umount", tmp_path], check=True)
    assert code == 1 and found["storage"][0] == "FAILED", output
    assert "cannot write or read: No space left on device; make room, or choose another run.dir" in found["storage"][1]


def test_a_model_without_room_fails(binary, tiny_config):
    code, found, output = examine(binary, tiny_config, "--set", "model.moe.moe_intermediate_size=1048576", "--set", "model.moe.num_experts=4096")
    assert code == 1, output
    assert found["model"][0] == "FAILED" and "need" in found["model"][1]
    assert found["storage"][0] == "FAILED" and "TiB for 2 checkpoints" in found["storage"][1], output


def test_a_locale_that_is_not_there_is_a_warning(binary, tmp_path):
    code, found, output = examine(binary, "--run-dir", tmp_path, LC_ALL="xx_YY.UTF-8")
    assert code == 0 and found["locale"] == ("warning", "LC_ALL=xx_YY.UTF-8 is not installed; choose one of `locale -a`, for example LC_ALL=C.UTF-8"), output


def test_ranks_start_only_its_part_on_communication(scatterlm):
    result = scatterlm("launch", "-n", 2, "doctor")
    assert result.returncode == 2 and result.stderr.endswith("doctor alone checks a machine, without ranks: scatterlm doctor\n")

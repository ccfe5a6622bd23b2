"""Every C++ and CUDA file is formatted as .clang-format says. Mend with: .venv/bin/clang-format -i FILE..."""
import subprocess
import sys
import pathlib

import pytest

from check_layers import ROOT, SOURCE, tracked_files

CLANG_FORMAT = pathlib.Path(sys.prefix) / "bin/clang-format"
VERSION = "version 14."  # others format some lines differently


@pytest.fixture
def clang_format():
    if not CLANG_FORMAT.exists() or VERSION not in subprocess.check_output([CLANG_FORMAT, "--version"], text=True):
        pytest.skip(f"needs clang-format {VERSION} in .venv: scripts/test installs it")
    return [CLANG_FORMAT, "--style=file", "--dry-run", "--Werror"]


def test_sources_are_formatted(clang_format):
    files = [path for path in tracked_files(ROOT) if pathlib.PurePath(path).suffix in SOURCE]
    result = subprocess.run([*clang_format, *files], cwd=ROOT, capture_output=True, text=True)
    unformatted = sorted({line.split(":")[0] for line in result.stderr.splitlines() if "clang-format-violations" in line})
    assert unformatted == [] and result.returncode == 0


def test_a_violation_is_found(clang_format, tmp_path):
    (tmp_path / ".clang-format").write_bytes((ROOT / ".clang-format").read_bytes())
    (tmp_path / "a.cpp").write_text("int  f( ) {return 1;}\n")
    assert subprocess.run([*clang_format, "a.cpp"], cwd=tmp_path, capture_output=True).returncode != 0

"""What --version says about the sources is what git says about them."""
import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def git(folder, *args, **options):
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    return subprocess.run(["git", *identity, *args], cwd=folder, check=True, capture_output=True, **options).stdout


@pytest.fixture
def checkout(tmp_path):
    """A small checkout with all folders that are hashed, everything committed."""
    folder = tmp_path / "checkout"
    for file in ("kernels/a.h", "lib/b.cpp", "lib/ops/c.cpp", "app/d.cpp"):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(f"{file}\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def generated(folder):
    """The header that a build in `folder` would compile, as [(hash, dirty) of training, of kernels], and its time of change."""
    header = folder.parent / "source_hash.h"
    cmake = shutil.which("cmake", path=f"{ROOT}/.venv/bin:{os.environ['PATH']}")
    subprocess.run([cmake, f"-DREPOSITORY={folder}", f"-DOUTPUT={header}", "-P", ROOT / "cmake/source_hash.cmake"], check=True)
    lines = header.read_text().splitlines()
    return [(line.split('"')[-2], line.split()[-1] == "true};") for line in lines], header.stat().st_mtime_ns


def sha256_of_index(folder, *paths):
    listing = git(folder, "ls-files", "-s", "--", *paths)
    return subprocess.run(["sha256sum"], input=listing, capture_output=True, check=True).stdout.decode()[:16]


def test_hash_of_a_clean_checkout(checkout):
    expected = [(sha256_of_index(checkout, "kernels", "lib", "app"), False), (sha256_of_index(checkout, "kernels", "lib/ops"), False)]
    hashes, written = generated(checkout)
    assert hashes == expected
    assert generated(checkout) == (expected, written), "an unchanged header must not be written again"


def test_a_changed_file_is_dirty_until_it_is_in_the_index(checkout):
    before, _ = generated(checkout)
    (checkout / "app/d.cpp").write_text("changed\n")
    training, kernels = generated(checkout)[0]
    assert training == (before[0][0], True)
    assert kernels == before[1], "app/ is not among the sources of kernel benches"
    git(checkout, "add", ".")
    training, _ = generated(checkout)[0]
    assert training == (sha256_of_index(checkout, "kernels", "lib", "app"), False)
    assert training[0] != before[0][0]


def test_an_untracked_source_is_dirty(checkout):
    (checkout / "lib/ops/new.cpp").write_text("new\n")
    assert [dirty for _, dirty in generated(checkout)[0]] == [True, True]


def test_outside_a_checkout_the_hash_is_unknown(checkout):
    shutil.rmtree(checkout / ".git")
    assert generated(checkout)[0] == [("unknown", True), ("unknown", True)]


def test_version_names_the_parts(scatterlm):
    text = scatterlm("--version", check=True).stdout
    assert [line.split()[0] for line in text.splitlines()][:8] == [
        "scatterlm", "LibTorch", "CUDA", "NCCL", "compiler", "GPU", "CPU", "sources"]
    assert "(kernels lib app)" in text and "(kernels lib/ops)" in text

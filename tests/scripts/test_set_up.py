"""scripts/common.sh on machines of other kinds: PATH begins with a folder of stand-ins for the system's programs."""
import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def machine(tmp_path):
    """machine(commands, name=script...) runs shell commands in a copy of scripts/ with these stand-ins on PATH."""
    (tmp_path / "bin").mkdir()
    shutil.copytree(ROOT / "scripts", tmp_path / "tree/scripts")

    def run(commands, env=None, **programs):
        for name, script in programs.items():
            path = tmp_path / "bin" / name.replace("_", "-")
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        result = subprocess.run(["bash", "-c", f"source {tmp_path}/tree/scripts/common.sh\n{commands}"], text=True,
                                capture_output=True, cwd="/", stdin=subprocess.DEVNULL,
                                env={**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", **(env or {})})
        return result

    run.tree = tmp_path / "tree"
    return run


NOT_INSTALLED = 'case "$*" in *catch2*|*xxhash*) echo "unknown ok not-installed";; *) echo "install ok installed";; esac'
INSTALLED = 'echo "install ok installed"'


def test_without_root_one_line_names_the_missing_packages(machine):
    result = machine("install_packages; echo not reached", dpkg_query=NOT_INSTALLED, id="echo 1000", sudo="exit 1", apt_get="exit 9")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "missing system packages; run: sudo apt-get install libxxhash-dev catch2\n"


def test_only_missing_packages_are_installed(machine):
    result = machine("install_packages", dpkg_query=NOT_INSTALLED, id="echo 0", apt_get=f'echo "$@"')
    assert result.returncode == 0, result.stderr
    assert "install -y --no-install-recommends libxxhash-dev catch2 ccache mold" in (machine.tree / "build/apt_install.log").read_text()


def test_nothing_is_installed_where_nothing_is_missing(machine):
    result = machine("install_packages", dpkg_query=INSTALLED, apt_get="exit 9", sudo="exit 9")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("version, chosen", [("3.25.1", "cmake"), ("4.0.2", "cmake"), ("3.22.1", ".venv/bin/cmake"), ("3.9.6", ".venv/bin/cmake")])
def test_an_old_cmake_is_replaced(machine, version, chosen):
    result = machine("pip_install() { echo pip $*; }; find_cmake; echo $cmake", cmake=f"echo cmake version {version}")
    assert result.stdout.splitlines()[-1] == chosen
    assert ("pip cmake<5" in result.stdout) == (chosen != "cmake")


@pytest.mark.parametrize("suffix", ["", "/", "/share/cmake", "/share/cmake/Torch"])
def test_a_given_libtorch_is_used(machine, tmp_path, suffix):
    header = tmp_path / "libtorch/include/torch/csrc/api/include/torch/torch.h"
    header.parent.mkdir(parents=True)
    header.touch()
    result = machine("pip_install() { exit 9; }; find_torch; echo $torch_root", env={"CMAKE_PREFIX_PATH": f"/opt/other:{tmp_path}/libtorch{suffix}"})
    assert (result.returncode, result.stdout) == (0, f"{tmp_path}/libtorch\n")


def test_an_interrupted_installation_is_repeated_and_a_complete_one_is_not(machine):
    results = [machine(f"mkdir -p .venv; install_into_venv() {{ return {code}; }}; pip_install torch==1") for code in (9, 0, 0)]
    assert [result.returncode for result in results] == [9, 0, 0]
    assert ["installing torch==1 into .venv" in result.stdout for result in results] == [True, True, False]


def test_a_failing_step_shows_the_end_of_its_log(machine):
    result = machine("logged step 'compiling' sh -c 'echo the reason; exit 3'; echo not reached")
    assert result.returncode == 3
    assert result.stdout.startswith("compiling ... failed (exit code 3); the end of build/step.log:\nthe reason\n")
    assert "not reached" not in result.stdout


def test_an_unknown_option_is_refused(machine):
    result = subprocess.run([machine.tree / "scripts/test", "--fast"], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (2, "usage: scripts/test [--quick]\n")

"""scripts/common.sh on machines of other kinds: PATH begins with a folder of stand-ins for the system's programs."""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def machine(tmp_path):
    """machine(commands, name=script...) runs shell commands in a copy of scripts/ with these stand-ins on PATH."""
    (tmp_path / "bin").mkdir()
    shutil.copytree(ROOT / "scripts", tmp_path / "tree/scripts")

    def run(commands, env=None, cwd="/", **programs):
        for name, script in programs.items():
            path = tmp_path / "bin" / name.replace("_", "-")
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        result = subprocess.run(["bash", "-c", f"source {tmp_path}/tree/scripts/common.sh\n{commands}"], text=True,
                                capture_output=True, cwd=cwd, stdin=subprocess.DEVNULL,
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


@pytest.mark.parametrize("start, given", [("/", "libtorch"), ("/elsewhere", "../libtorch"), ("/", "with space/../libtorch")])
def test_a_libtorch_is_named_relative_to_the_callers_folder(machine, tmp_path, start, given):
    header = tmp_path / "libtorch/include/torch/csrc/api/include/torch/torch.h"
    header.parent.mkdir(parents=True)
    header.touch()
    for folder in ("elsewhere", "with space"):
        (tmp_path / folder).mkdir()
    result = machine("pip_install() { exit 9; }; find_torch; realpath \"$torch_root\"", cwd=f"{tmp_path}{start}",
                     env={"CMAKE_PREFIX_PATH": given, "CDPATH": str(tmp_path / "elsewhere")})
    assert (result.returncode, result.stdout) == (0, f"{tmp_path}/libtorch\n")


def test_cdpath_does_not_lead_away(tmp_path):
    for tree in ("tree", "other"):
        shutil.copytree(ROOT / "scripts", tmp_path / tree / "scripts")
    result = subprocess.run(["bash", "-c", "source scripts/common.sh; pwd"], text=True, capture_output=True,
                            cwd=tmp_path / "tree", env={**os.environ, "CDPATH": str(tmp_path / "other")})
    assert (result.returncode, result.stdout) == (0, f"{tmp_path}/tree\n")


def test_an_interrupted_installation_is_repeated_and_a_complete_one_is_not(machine):
    results = [machine(f"install_into_venv() {{ return {code}; }}; pip_install torch==1") for code in (9, 0)]
    assert [result.returncode for result in results] == [9, 0]
    assert all("installing torch==1 into .venv" in result.stdout for result in results)


@pytest.fixture
def package(machine, tmp_path):
    """The folder of a package in .venv, as pip leaves it: net 1.5+cu130 of one file."""
    site = tmp_path / "site"
    (site / "net").mkdir(parents=True)
    (site / "net/__init__.py").touch()
    (site / "net-1.5.dist-info").mkdir()
    (site / "net-1.5.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: net\nVersion: 1.5+cu130\n")
    (site / "net-1.5.dist-info/RECORD").write_text("net/__init__.py,,\nnet/__pycache__/__init__.cpython-311.pyc,,\n")
    python = machine.tree / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return site


@pytest.mark.parametrize("gone, requirement, missing",
                         [(None, "net", False), (None, "net<5", False), (None, "net==1.5", False), (None, "net==1.4", True),
                          (None, "other", True), ("net/__init__.py", "net", True), ("net-1.5.dist-info/RECORD", "net", True)])
def test_a_package_counts_when_its_version_and_files_are_there(machine, package, gone, requirement, missing):
    if gone:
        (package / gone).unlink()
    result = machine(f"missing_requirements '{requirement}'")
    assert (result.returncode, result.stdout) == (0, f"{requirement}\n" if missing else ""), result.stderr


NO_TOOLKIT = ("WARNING: there is a GPU but no CUDA toolkit (nvcc), and PyPI's could not be installed: building for the CPU. For the GPU: install CUDA 13 "
              "(https://developer.nvidia.com/cuda-downloads), put nvcc on PATH or name its folder with CUDA_HOME, and run this again\n")


@pytest.mark.parametrize("capability, toolkit, chosen, line",
                         [("9.0", True, "90a", ""), ("8.6", True, "80", ""), ("12.0", True, "80", ""), ("", False, "off", ""),
                          ("7.5", False, "off", "the GPU has compute capability 7.5, and 8.0 is the least: building for the CPU\n"),
                          ("9.0", False, "off", NO_TOOLKIT)])
def test_the_architectures_of_the_gpu(machine, capability, toolkit, chosen, line):
    result = machine(f"find_nvcc() {{ {str(toolkit).lower()}; }}; detect_architectures; echo $architectures", nvidia_smi=f"echo '{capability}'")
    assert (result.returncode, result.stdout, result.stderr) == (0, f"{chosen}\n", line)


def without_toolkit(tmp_path):
    return {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "CUDA_HOME": str(tmp_path)}


def test_the_systems_nvcc_is_used(machine, tmp_path):
    result = machine("pip_install() { exit 9; }; find_nvcc", env=without_toolkit(tmp_path), nvcc="")
    assert (result.returncode, result.stderr) == (0, "")


def test_without_a_toolkit_nvcc_comes_from_pypi(machine, tmp_path):
    cuda = machine.tree / ".venv/lib/python3.11/site-packages/nvidia/cu13"
    (cuda / "lib").mkdir(parents=True)
    (cuda / "lib/libcudart.so.13").write_text("runtime")
    result = machine("pip_install() { echo $*; }; find_nvcc; find_nvcc", env=without_toolkit(tmp_path))
    assert result.returncode == 0, result.stderr
    assert "nvidia-cuda-nvcc==13.0.88" in result.stdout
    assert (cuda / "lib64/libcudart.so").read_text() == "runtime"


def test_where_pypi_cannot_be_reached_the_build_is_for_the_cpu(machine, tmp_path):
    result = machine("install_into_venv() { echo no route; return 1; }; detect_architectures; echo $architectures",
                     env=without_toolkit(tmp_path), nvidia_smi="echo 9.0")
    assert result.returncode == 0
    assert "failed (exit code 1)" in result.stdout and result.stdout.endswith("no route\noff\n")
    assert result.stderr == NO_TOOLKIT


def test_packages_are_installed_together(machine):
    """Alone, pip would bring another version of a package that it needs and that is pinned here."""
    result = machine("missing_requirements() { echo b==2; }; install_into_venv() { echo $*; }; pip_install a==1 b==2; cat build/pip.log")
    assert result.stdout.splitlines()[-1] == "a==1 b==2"


def test_a_libtorch_without_cuda_makes_a_build_without_cuda(tmp_path):
    torch = tmp_path / "torch"
    (torch / "include/torch/csrc/api/include/torch").mkdir(parents=True)
    (torch / "include/torch/csrc/api/include/torch/torch.h").touch()
    cmake = shutil.which("cmake", path=f"{ROOT}/.venv/bin:{os.environ['PATH']}")
    result = subprocess.run([cmake, "-G", "Ninja", "-S", ROOT, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={torch}",
                             "-DSCATTERLM_CUDA_ARCHITECTURES=90a"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert f"{torch}/lib has no libtorch_cuda.so: building without CUDA\n" in result.stdout
    assert "CUDA architectures off\n" in result.stdout


def test_a_failing_step_shows_the_end_of_its_log(machine):
    result = machine("logged step 'compiling' sh -c 'echo the reason; exit 3'; echo not reached")
    assert result.returncode == 3
    assert result.stdout.startswith("compiling ... failed (exit code 3); the end of build/step.log:\nthe reason\n")
    assert "not reached" not in result.stdout


def test_an_unknown_option_is_refused(machine):
    result = subprocess.run([machine.tree / "scripts/test", "--fast"], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (2, "usage: scripts/test [--quick]\n")

# shellcheck shell=bash
# The set-up behind scripts/quickstart and scripts/test: system packages, .venv, CMake, LibTorch, configure and build.
# Sourced by them. Long output goes to build/NAME.log; its end is shown when the step fails.
set -euo pipefail
readonly kStartFolder=$PWD
CDPATH= cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p build

readonly kTorch=torch==2.11.0
readonly kPlotly=plotly==7.1.0  # its plotly.js goes into the program, for `scatterlm report`
# The compiler of the CUDA that kTorch was built with.
readonly kNvcc=(nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-cccl==13.0.85 nvidia-cuda-runtime==13.0.96)
readonly kLibraries=(libyaml-cpp-dev libspdlog-dev libcli11-dev nlohmann-json3-dev libxxhash-dev catch2
  libpcre2-dev libutf8proc-dev libzstd-dev zlib1g-dev)

stop() {  # stop EXIT_CODE MESSAGE
  echo "$2" >&2
  exit "$1"
}

# logged NAME TITLE COMMAND...: one line "TITLE ... 12 s"; a terminal also sees the last line of the log while it runs.
logged() {
  local log=build/$1.log title=$2 start=$SECONDS status=0 ticker=
  shift 2
  printf '%s ... ' "$title"
  if [ -t 1 ]; then
    show_last_line "$title" "$log" &  # this one and not the command, which would no longer hear Ctrl-C
    ticker=$!
  fi
  "$@" >"$log" 2>&1 </dev/null || status=$?
  if [ -n "$ticker" ]; then
    kill $ticker
    wait $ticker 2>/dev/null || true
    printf '\r\033[K%s ... ' "$title"
  fi
  if [ $status -ne 0 ]; then
    printf 'failed (exit code %s); the end of %s:\n' $status "$log"
    tail -n 40 "$log"
    return $status
  fi
  printf '%s s\n' $((SECONDS - start))
}

show_last_line() {  # show_last_line TITLE LOG, until killed or the script is gone
  local start=$SECONDS
  while sleep 1 && kill -0 $$ 2>/dev/null; do
    printf '\r\033[K%.*s' $(($(tput cols) - 1)) "$1 ... $((SECONDS - start)) s  $(tail -qn 1 "$2")"
  done
}

missing_packages() {
  command -v g++ >/dev/null || echo g++
  command -v ninja >/dev/null || echo ninja-build
  command -v git >/dev/null || echo git
  python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
  if command -v dpkg-query >/dev/null; then
    local package
    for package in "${kLibraries[@]}"; do
      dpkg-query -W -f='${Status}\n' "$package" 2>/dev/null | grep -q 'ok installed' || echo "$package"
    done
  fi
}

install_packages() {
  local missing
  missing=$(missing_packages | paste -sd ' ')
  # ccache and mold are not needed, only faster: they come along, but nothing is installed for them alone.
  [ -z "$missing" ] || apt_install "$missing" ccache mold
}

apt_install() {  # apt_install "MISSING PACKAGES" [PACKAGE...]
  local missing=$1 as_root=()
  command -v apt-get >/dev/null || stop 2 "missing, and there is no apt-get to install them (names are Debian's): $missing"
  if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null || stop 2 "missing system packages; run: sudo apt-get install $missing"
    as_root=(sudo -n)
  fi
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300)
  logged apt_update "updating the package lists" "${apt[@]}" update
  # shellcheck disable=SC2086
  logged apt_install "installing $missing" "${apt[@]}" install -y --no-install-recommends $missing "${@:2}"
}

# pip_install REQUIREMENT...: into .venv, all if one is missing: pip would take another version of one that it does not hear of.
pip_install() {
  [ -n "$(missing_requirements "$@")" ] || return 0
  logged pip "installing $* into .venv" install_into_venv "$@"
}

# Prints the requirements that .venv does not meet with every file in place. pip writes RECORD, the list of files, last.
missing_requirements() {
  local check='
import importlib.metadata, re, sys
for requirement in sys.argv[1:]:
    name, pinned = re.fullmatch(r"([\w-]+)(?:==(.*)|.*)", requirement).groups()
    try:
        package = importlib.metadata.distribution(name)
        whole = bool(package.files) and all(f.locate().exists() for f in package.files if f.suffix != ".pyc")
    except importlib.metadata.PackageNotFoundError:
        whole = False
    if not whole or (pinned and package.version.split("+")[0] != pinned):
        print(requirement)'
  .venv/bin/python -c "$check" "$@" 2>/dev/null || printf '%s\n' "$@"
}

install_into_venv() {  # --force-reinstall: pip takes a package for installed whose files are gone
  python3 -m venv .venv &&
    .venv/bin/python -m pip install --disable-pip-version-check --no-input --progress-bar off --force-reinstall "$@"
}

# Sets torch_root: the LibTorch that CMAKE_PREFIX_PATH names, otherwise PyPI's in .venv (2.5 GB to download).
find_torch() {
  local prefix prefixes
  IFS=':;' read -ra prefixes <<<"${CMAKE_PREFIX_PATH:-}"
  for prefix in "${prefixes[@]}"; do
    [[ $prefix = /* ]] || prefix=$kStartFolder/$prefix
    prefix=${prefix%/}
    prefix=${prefix%/Torch}
    torch_root=${prefix%/share/cmake}
    [ ! -e "$torch_root/include/torch/csrc/api/include/torch/torch.h" ] || return 0
  done
  pip_install $kTorch
  torch_root=$(echo "$PWD"/.venv/lib/python3*/site-packages/torch)
}

# Sets cmake: the system's, or PyPI's where that is missing or older than 3.25.
find_cmake() {
  local version
  version=$(cmake --version 2>/dev/null | sed -n 's/^cmake version //p' || true)
  if [ -n "$version" ] && printf '3.25\n%s\n' "$version" | sort -CV; then
    cmake=cmake
  else
    pip_install 'cmake<5'
    cmake=.venv/bin/cmake
  fi
}

# Installs PyPI's CUDA compiler (100 MB to download) where there is no nvcc; cmake/toolchain.cmake looks for both.
find_nvcc() {
  ! PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin command -v nvcc >/dev/null || return 0
  pip_install "${kNvcc[@]}" || return
  local cuda
  cuda=$(echo .venv/lib/python3*/site-packages/nvidia/cu13)
  # The names by which nvcc and CMake look for the runtime; the packages have none of them.
  ln -sfn lib "$cuda/lib64" && ln -sfn libcudart.so.13 "$cuda/lib/libcudart.so"
}

# Sets architectures: what this machine's GPU needs, or off. Hopper has its own, others take 8.0, which every later chip runs too.
detect_architectures() {
  local capability
  architectures=off
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sort -V | head -n 1 || true)
  [[ $capability == [0-9]*.* ]] || return 0
  if [[ $capability == [1-7].* ]]; then
    echo "the GPU has compute capability $capability, and 8.0 is the least: building for the CPU" >&2
  elif ! find_nvcc; then
    echo "WARNING: there is a GPU but no CUDA toolkit (nvcc), and PyPI's could not be installed: building for the CPU. For the GPU:" \
      "install CUDA 13 (https://developer.nvidia.com/cuda-downloads), put nvcc on PATH or name its folder with CUDA_HOME, and run this again" >&2
  elif [ "$capability" = 9.0 ]; then
    architectures=90a
  else
    architectures=80
  fi
}

set_up() {
  install_packages
  find_torch
  find_cmake
  pip_install $kPlotly || echo "WARNING: plotly.js could not be installed: 'scatterlm report' will not work in this build" >&2
}

configure() {  # configure PRESET [CMAKE OPTION...]
  # TORCH_INCLUDE is found again each time, so that another CMAKE_PREFIX_PATH takes effect in an existing build folder.
  logged "configure_$1" "configuring build/$1" "$cmake" --preset "$@" -DCMAKE_PREFIX_PATH="$torch_root" -UTORCH_INCLUDE
}

build() {  # build PRESET [--target NAME...]
  logged "build_$1" "building build/$1" "$cmake" --build --preset "$@"
}

"""Checks what neither compiler nor linker sees: the order of the layers in every #include, sizes of files, paths of one machine.

    python tests/layers/check_layers.py        prints FILE:LINE: finding, exit code 1 if there is any
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Low to high; a folder includes itself and lower ones only, so folders of one level do not know each other.
LEVELS = ["util", "config", "data ops io", "hf distributed tokenizer", "parallel bench", "nn", "optim tasks", "train", "report doctor"]
LEVEL = {folder: level for level, folders in enumerate(LEVELS) for folder in folders.split()}
MAX_LINES = 400

INCLUDE = re.compile(r'\s*#\s*include\s*[<"]([^>"]+)[>"]')
SOURCE = {".cpp", ".h", ".cu", ".cuh"}
LIBTORCH = re.compile(r"(torch|ATen|c10|caffe2)/")
MACHINE_PATH = re.compile(r"(?<![\w.])/(work|root|farm|home/\w+|tmp/\w+)/")


def layer(path):
    """("kernels", -1), ("lib/nn", 3), ("app", 100) ... of a path relative to the root; None for anything else."""
    parts = path.split("/")
    if parts[0] == "lib" and len(parts) > 2:
        return f"lib/{parts[1]}", LEVEL.get(parts[1], len(LEVELS))
    return {"kernels": ("kernels", -1), "app": ("app", 100)}.get(parts[0])


def check_include(path, included):
    """What is wrong with one #include, or None."""
    own, other = layer(path), layer(included)
    if not own:
        return None
    if own[0] == "kernels" and (LIBTORCH.match(included) or included.startswith(("lib/", "app/"))):
        return f"kernels/ includes CUDA and the standard library only, not {included}"
    if path.startswith("kernels/device/") and included.startswith("kernels/") and not included.startswith("kernels/device/"):
        return f"kernels/device is below the rest of kernels/: {included}"
    if other and other[0] != own[0] and other[1] >= own[1]:
        return f"{own[0]} is not above {other[0]}: {included}"
    if own[0] != "kernels" and included.endswith(".cuh"):
        return f"{included} needs nvcc: include the kernel's .h"
    if path.endswith(".h") and included in ("torch/torch.h", "torch/extension.h"):
        return f"a header must not include {included}: name the ATen pieces"
    return None


def check_file(root, path):
    """Findings (line, text) of one file."""
    try:
        lines = (root / path).read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return
    suffix = pathlib.PurePath(path).suffix
    if suffix in SOURCE | {".py", ".sh"} and len(lines) > MAX_LINES:
        yield len(lines), f"more than {MAX_LINES} lines"
    for number, line in enumerate(lines, 1):
        include = INCLUDE.match(line) if suffix in SOURCE else None
        problem = check_include(path, include[1]) if include else None
        if problem:
            yield number, problem
        if MACHINE_PATH.search(line):
            yield number, "path of one machine"


def check(root, files):
    """All findings in `files` (relative to root) as text."""
    return [f"{path}:{number}: {text}" for path in files for number, text in check_file(root, path)]


def tracked_files(root):
    listing = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True, check=True).stdout
    return [path for path in listing.splitlines() if (root / path).is_file()]


def main():
    findings = check(ROOT, tracked_files(ROOT))
    print("\n".join(findings) or "layers: no findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

"""The layer check holds for this tree, and would notice if it did not."""
import pytest

from check_layers import MAX_LINES, ROOT, check, tracked_files

SLASH = "/"  # so that the machine paths below are none in this file


def test_the_tree_obeys_its_layers():
    files = tracked_files(ROOT)
    assert any(path.startswith("lib/util/") for path in files)
    assert check(ROOT, files) == []


@pytest.mark.parametrize("path, line, finding", [
    ("lib/util/a.cpp", '#include "lib/config/config.h"', "lib/util is not above lib/config: lib/config/config.h"),
    ("lib/data/a.cpp", '#include "lib/io/safetensors.h"', "lib/data is not above lib/io: lib/io/safetensors.h"),
    ("lib/nn/a.h", '#  include "lib/train/trainer.h"', "lib/nn is not above lib/train: lib/train/trainer.h"),
    ("lib/report/a.h", '#include "app/commands.h"', "lib/report is not above app: app/commands.h"),
    ("kernels/a.cu", "#include <ATen/ATen.h>", "kernels/ includes CUDA and the standard library only, not ATen/ATen.h"),
    ("kernels/device/a.cuh", '#include "lib/util/error.h"',
     "kernels/ includes CUDA and the standard library only, not lib/util/error.h"),
    ("kernels/device/a.cuh", '#include "kernels/grouped_gemm.h"', "kernels/device is below the rest of kernels/: kernels/grouped_gemm.h"),
    ("lib/ops/a.cpp", '#include "kernels/device/tma.cuh"', "kernels/device/tma.cuh needs nvcc: include the kernel's .h"),
    ("lib/ops/a.h", "#include <torch/torch.h>", "a header must not include torch/torch.h: name the ATen pieces"),
    ("scripts/a", f"cd {SLASH}work/main", "path of one machine"),
    ("README.md", f"`{SLASH}home/somebody/model`", "path of one machine"),
    ("lib/nn/a.cpp", "\n" * MAX_LINES, f"more than {MAX_LINES} lines"),
])
def test_a_violation_is_found(tmp_path, path, line, finding):
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(line + "\n")
    number = MAX_LINES + 1 if "lines" in finding else 1
    assert check(tmp_path, [path]) == [f"{path}:{number}: {finding}"]


@pytest.mark.parametrize("path, line", [
    ("lib/ops/a.cpp", '#include "kernels/gather_sum.h"'),
    ("lib/optim/a.cpp", '#include "lib/parallel/parameter_unit.h"'),
    ("lib/nn/a.cpp", '#include "lib/nn/attention.h"'),
    ("lib/nn/a.cpp", "#include <torch/torch.h>"),
    ("app/train.cpp", '#include "lib/report/report.h"'),
    ("kernels/a.cu", '#include "kernels/device/tma.cuh"'),
    ("kernels/device/a.cuh", '#include "kernels/device/ptx.cuh"'),
    ("lib/nn/a.cpp", "\n" * (MAX_LINES - 1)),
    ("lib/nn/a.cpp", f"// ratio a{SLASH}work/b, https://example.org{SLASH}home/page/"),
])
def test_what_is_allowed(tmp_path, path, line):
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(line + "\n")
    assert check(tmp_path, [path]) == []

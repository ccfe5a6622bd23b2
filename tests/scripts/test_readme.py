"""README's tables say what the evidence files say."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import update_readme  # noqa: E402


def test_the_tables_are_those_of_the_evidence():
    result = subprocess.run([sys.executable, ROOT / "scripts/update_readme.py", "--check"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_tables_of_kernel_benches():
    data = {"gpu": "NVIDIA H200", "date": "2026-11-20", "ceilings": {"gemm_tflops": 722.6, "copy_tbps": 4.267}, "command": "COMMAND"}
    sizes = dict(zip("TDFEK", (24576, 1536, 256, 128, 8)))
    speed = {"fwd": {"tflops": 92.4}, "fwdbwd": {"tflops": 141.6}}
    op = {**sizes, "fwd_tflops": 400.2, "fwdbwd_tflops": 500.4, "fwdbwd_roofline_percent": 80.7, "aten": speed, "dense": speed,
          "saved_mib": 266.2, "peak_mib": 1100.0, "host_us": 80.4}
    lines = update_readme.TABLES["moe_mlp_h200"]({**data, "rows": [op]})
    assert lines[0].startswith("NVIDIA H200, bf16, 2026-11-20; ") and "GEMM 723 TFLOP/s, copy 4.27 TB/s (`COMMAND`)" in lines[0]
    assert lines[-1] == "| 24576,1536,256,128,8 | 400 | 500 | 81 % | 92, 142 | 92, 142 | 266 | 1100 | 80 |"

    kernel = {**sizes, "kernel": "o", "ms": 0.1684, "gbps": 3771.2, "ceiling_percent": 88.4, "roofline_percent": 88.4, "aten_ms": 0.52}
    assert update_readme.TABLES["gather_sum_h200"]({**data, "rows": [kernel]})[-1] == (
        "| 24576,1536,256,128,8 | o | 0.168 | 3771 | 88 % | 88 % | 0.520 | - |")
    kernel = {**kernel, "kernel": "up", "tflops": 560.2, "dense_ms": 0.5}
    assert update_readme.TABLES["grouped_gemm_h200"]({**data, "rows": [kernel]})[-1].endswith("| 560 | 88 % | 88 % | 0.520 | 0.500 |")


def test_every_table_has_a_place_and_an_empty_one_says_so():
    readme = (ROOT / "README.md").read_text()
    for name in update_readme.TABLES:
        assert readme.count(f"<!-- {name} -->\n") == 1 and readme.count(f"<!-- /{name} -->") == 1
        if not (ROOT / f"tests/bench/results/{name}.json").exists():
            assert f"<!-- {name} -->\nNot measured on the current sources yet.\n<!-- /{name} -->" in readme

"""A job that is killed, stopped and interrupted at random ends in the same bits and leaves nothing behind."""
import json
import os
import subprocess
import sys

from conftest import ROOT


def test_ten_kills(binary, tmp_path):
    result = subprocess.run([sys.executable, ROOT / "scripts/chaos", "--kills", "10", "--seed", "1", "--out", tmp_path / "chaos.json"],
                            env={**os.environ, "SCATTERLM_BINARY": str(binary)}, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr
    rows = json.loads((tmp_path / "chaos.json").read_text())["rows"]
    assert rows[-1] == {"case": "all", "kills": 10, "differing_bits": 0}

"""A few steps of what scripts/soak does for long."""
import json
import os
import subprocess
import sys

from conftest import ROOT


def test_a_short_soak_writes_its_figures(binary, tmp_path):
    result = subprocess.run([sys.executable, ROOT / "scripts/soak", "--steps", "1000", "--out", tmp_path / "soak.json"],
                            env={**os.environ, "SCATTERLM_BINARY": str(binary)}, capture_output=True, text=True, timeout=300)
    written = json.loads((tmp_path / "soak.json").read_text())  # whether a second is enough to say that nothing grows is another matter
    assert (result.returncode == 0) == (written["grown"] == []), result.stderr
    assert written["steps"] == 1000 and written["first_and_last_fifth"]["alloc_retries"] == 0
    assert written["samples"][-1]["step"] > 500 and written["samples"][-1]["rss_mib"] > 50

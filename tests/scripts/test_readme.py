"""README's tables say what the evidence files say."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_tables_are_those_of_the_evidence():
    result = subprocess.run([sys.executable, ROOT / "scripts/update_readme.py", "--check"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr

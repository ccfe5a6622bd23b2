"""What the program sets up before main: how long OpenMP's threads spin while they wait."""
import os
import subprocess

import pytest


@pytest.mark.parametrize("given, expected", [({}, "1000"), ({"GOMP_SPINCOUNT": "77"}, "77"), ({"OMP_WAIT_POLICY": "passive"}, "0")])
def test_threads_spin_shortly_unless_the_user_chose(binary, given, expected):
    env = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    result = subprocess.run([binary, "--version"], env={**env, "OMP_DISPLAY_ENV": "verbose", **given}, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert f"GOMP_SPINCOUNT = '{expected}'" in result.stderr
    assert result.stdout.startswith("scatterlm ")

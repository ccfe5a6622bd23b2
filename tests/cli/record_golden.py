"""Records golden_losses.json again: python tests/cli/record_golden.py. Only when numbers change on purpose; say why in the commit."""
import json
import os
import pathlib
import subprocess
import tempfile

from conftest import ROOT, TINY_CONFIG, read_metrics, write_tiny_data

ENVIRONMENT = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "OMP_NUM_THREADS": "1"}

with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    write_tiny_data(folder)
    (folder / "tiny.yaml").write_text(TINY_CONFIG.format(runs=folder, data=folder))
    subprocess.run([ROOT / "build/release/bin/scatterlm", "train", folder / "tiny.yaml"], check=True, cwd=ROOT,
                   env={**os.environ, **ENVIRONMENT})
    losses = [line["loss"] for line in read_metrics(folder / "tiny")]
    pathlib.Path(__file__).with_name("golden_losses.json").write_text(
        json.dumps({"environment": ENVIRONMENT, "losses": losses}, indent=1) + "\n")

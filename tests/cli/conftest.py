"""Fixtures of the end-to-end tests: they run the built program as a user does and look at what it prints and writes."""
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/bench"))  # its jobs serve tests as well

import job  # noqa: E402

END_OF_TEXT = 256
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")  # c10d asks for the name of each address that it connects to

# Small enough for 100 steps in a few seconds on one core, and with every kind of layer.
TINY_CONFIG = """\
run: {{dir: {runs}, name: tiny}}
model:
  vocab_size: 257
  hidden_size: 32
  layers: "gqa+dense, moa+moe"
  attention: {{num_attention_heads: 2, num_key_value_heads: 1, head_dim: 16}}
  moa: {{num_experts: 4, num_experts_per_tok: 2, num_key_value_heads: 1, head_dim: 16}}
  dense: {{intermediate_size: 48}}
  moe: {{num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 24}}
data: {{train: {data}/train.bin, validation: {data}/val.bin, eot_token: 256}}
train: {{steps: 20, sequence_length: 32, global_batch_tokens: 256, threads: 1, device: cpu}}
optim: {{lr: 3.0e-3}}
checkpoint: {{save_interval: 10}}
log: {{interval: 1}}
"""


@pytest.fixture(scope="session")
def binary():
    """Path of the program: SCATTERLM_BINARY, or the Release build."""
    path = pathlib.Path(os.environ.get("SCATTERLM_BINARY", ROOT / "build/release/bin/scatterlm"))
    if not path.exists():
        pytest.fail(f"{path} does not exist: build it first, or run scripts/test")
    return path


@pytest.fixture(scope="session")
def scatterlm(binary):
    """scatterlm("eval", run_dir, env={...}, cwd=..., input=...) -> CompletedProcess with text stdout, stderr and returncode.

    `check=True` makes an exit code other than 0 an error that shows stderr.
    """

    def run(*args, env=None, cwd=ROOT, input="", timeout=300, check=False):
        result = subprocess.run([str(binary), *map(str, args)], input=input, capture_output=True, text=True,
                                errors="replace", timeout=timeout, cwd=cwd, env={**os.environ, **(env or {})})
        if check and result.returncode != 0:
            raise AssertionError(f"exit code {result.returncode}: {' '.join(map(str, args))}\n{result.stderr}")
        return result

    return run


@pytest.fixture
def free_port():
    return job.free_port()


def write_token_file(path, tokens):
    """llm.c's GPT-2 layout: 256 int32 of header, then uint16 tokens."""
    header = np.zeros(256, "<i4")
    header[:3] = 20240520, 1, len(tokens)
    path.write_bytes(header.tobytes() + np.asarray(tokens, "<u2").tobytes())


def write_tiny_data(folder):
    """train.bin (about 24k tokens) and val.bin: byte documents of a small, learnable language."""
    random = np.random.default_rng(0)
    words = ["int", "float", "return", "value", "index", "for", "while", "(", ")", "{", "}", ";\n", "=", "+", "0", "1"]
    for name, documents in (("train.bin", 60), ("val.bin", 6)):
        tokens = []
        for _ in range(documents):
            tokens += " ".join(random.choice(words, 100)).encode()
            tokens.append(END_OF_TEXT)
        write_token_file(folder / name, tokens)


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory):
    """Folder with the files of write_tiny_data."""
    folder = tmp_path_factory.mktemp("data")
    write_tiny_data(folder)
    return folder


@pytest.fixture
def runs(tmp_path):
    """Folder in which this test's runs are kept."""
    return tmp_path / "runs"


@pytest.fixture
def tiny_config(tmp_path, tiny_data, runs):
    """Configuration file of a 2-layer model on tiny_data whose run folder is runs/tiny; change keys with --set."""
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY_CONFIG.format(runs=runs, data=tiny_data))
    return path


@pytest.fixture
def dense_config(tmp_path, tiny_config):
    """The tiny model without experts."""
    path = tmp_path / "dense.yaml"
    text = tiny_config.read_text().replace("moa+moe", "gqa+dense")
    path.write_text("\n".join(line for line in text.splitlines() if not line.startswith(("  moa:", "  moe:"))))
    return path


def read_metrics(run_folder):
    """The lines of a run's metrics.jsonl as dictionaries."""
    return [json.loads(line) for line in (pathlib.Path(run_folder) / "metrics.jsonl").read_text().splitlines()]


def read_safetensors(path):
    """Metadata and tensors by the description of the format alone."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    metadata = header.pop("__metadata__")
    types = {"F32": "<f4", "I32": "<i4"}
    return metadata, {name: np.frombuffer(data[8 + size:][slice(*entry["data_offsets"])], types[entry["dtype"]]).reshape(entry["shape"])
                      for name, entry in header.items()}

"""`scatterlm bench` on the CPU: what it dumps is right, and its evidence files say where they come from."""
import json
import re

import numpy as np
import pytest

from conftest import read_safetensors

SHAPE = "40,16,24,6,3"  # T, D, F, E, K


def moe_mlp(x, w1, w2, gates, ids):
    """[T, D] in fp64, token by token."""
    out = np.zeros_like(x)
    for t, k in np.ndindex(ids.shape):
        gate, up = np.split(w1[ids[t, k]] @ x[t], 2)
        out[t] += gates[t, k] * (w2[ids[t, k]] @ (gate / (1 + np.exp(-gate)) * up))
    return out


@pytest.mark.parametrize("routing", ["random", "skewed", "one"])
def test_the_dump_holds_the_result_and_its_gradients(scatterlm, tmp_path, routing):
    scatterlm("bench", "moe_mlp", "--shapes", SHAPE, "--routing", routing, "--iterations", 1, "--dump", tmp_path / "dump", check=True)
    _, dump = read_safetensors(tmp_path / f"dump/moe_mlp_{SHAPE.replace(',', '_')}.safetensors")
    assert dump["ids"].dtype == np.int32 and dump["gates"].dtype == np.float32
    ids, exact = dump["ids"], {name: tensor.astype(np.float64) for name, tensor in dump.items()}
    inputs = [exact[name] for name in ("x", "w1", "w2", "gates")]
    assert np.abs(moe_mlp(*inputs, ids) - exact["out"]).max() < 1e-6 * np.abs(exact["out"]).max()

    random = np.random.default_rng(0)  # the derivative along a random direction, for all gradients at once
    for i, name in enumerate(("x", "w1", "w2", "gates")):
        direction, step = random.standard_normal(inputs[i].shape), 1e-5
        losses = [(moe_mlp(*inputs[:i], inputs[i] + sign * step * direction, *inputs[i + 1:], ids) * exact["dout"]).sum()
                  for sign in (1, -1)]
        expected = (losses[0] - losses[1]) / (2 * step)
        scale = np.linalg.norm(exact["d" + name])
        assert abs((direction * exact["d" + name]).sum() - expected) < 1e-5 * scale, name


def test_an_evidence_file_names_program_and_command(scatterlm, tmp_path):
    out = tmp_path / "gather_sum.json"
    result = scatterlm("bench", "gather_sum", "--shapes", f"{SHAPE};8,8,8,2,1", "--iterations", 2, "--json", out)
    sources = re.search(r"(\w+)( dirty)? \(kernels lib/ops\)", scatterlm("--version", check=True).stdout)
    if sources[1] == "unknown" or sources[2]:  # the tree was changed before it was built
        assert result.returncode == 2 and "differ from git's index (kernels, lib/ops)" in result.stderr
        assert not out.exists()
        return
    content = json.loads(out.read_text())
    assert content["source_hash"] == sources[1] and content["sources"] == ["kernels", "lib/ops"]
    assert content["command"] == f"scatterlm bench gather_sum --shapes '{SHAPE};8,8,8,2,1' --iterations 2"
    assert [(row["T"], row["kernel"]) for row in content["rows"]] == [(40, "o"), (40, "dx"), (8, "o"), (8, "dx")]


def test_a_family_of_kernels_needs_a_gpu(scatterlm):
    result = scatterlm("bench", "grouped_gemm", "--shapes", SHAPE, "--family", "portable")
    assert result.returncode == 2 and "error: --family portable: the kernels are for GPUs, and there is none\n" in result.stderr
    result = scatterlm("bench", "routing", "--shapes", SHAPE, "--family", "portable")
    assert result.returncode == 2 and "error: --family: routing has one kernel for all GPUs\n" in result.stderr


def test_a_file_that_cannot_be_written_is_found_before_measuring(scatterlm, tmp_path):
    result = scatterlm("bench", "routing", "--shapes", "published", "--json", tmp_path / "no/such.json")
    assert result.returncode == 2 and result.stdout == "" and len(result.stderr.splitlines()) == 1

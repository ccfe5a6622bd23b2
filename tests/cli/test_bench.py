"""`scatterlm bench` on the CPU: what it dumps is right, and its evidence files say where they come from."""
import json
import re

import numpy as np
import pytest

from conftest import read_safetensors

SHAPE = "40,16,24,6,3"  # T, D, F, E, K
MOA_SHAPE = "2,6,16,4,2,1"  # B, S, D, E, K, heads


def moe_mlp(x, w1, w2, gates, ids):
    """[T, D] in fp64, token by token."""
    out = np.zeros_like(x)
    for t, k in np.ndindex(ids.shape):
        gate, up = np.split(w1[ids[t, k]] @ x[t], 2)
        out[t] += gates[t, k] * (w2[ids[t, k]] @ (gate / (1 + np.exp(-gate)) * up))
    return out


def query(x, wq, ids):
    """[T, K, n] in fp64."""
    return np.stack([[wq[e] @ x[t] for e in ids[t]] for t in range(len(x))])


def output(q, wo, gates, ids):
    return np.stack([sum(gates[t, k] * (wo[e] @ q[t, k]) for k, e in enumerate(ids[t])) for t in range(len(q))])


def moa(x, wq, wo, gates, ids):
    return output(query(x, wq, ids), wo, gates, ids)


def check_gradients(function, inputs, ids, dout, gradients):
    """The derivative along a random direction, for all gradients at once."""
    random = np.random.default_rng(0)
    for i, gradient in enumerate(gradients):
        direction, step = random.standard_normal(inputs[i].shape), 1e-5
        losses = [(function(*inputs[:i], inputs[i] + sign * step * direction, *inputs[i + 1:], ids) * dout).sum() for sign in (1, -1)]
        expected = (losses[0] - losses[1]) / (2 * step)
        assert abs((direction * gradient.reshape(direction.shape)).sum() - expected) < 1e-5 * np.linalg.norm(gradient), i


@pytest.mark.parametrize("routing", ["random", "skewed", "collapsed", "one"])
@pytest.mark.parametrize("bench, shape, function, names", [("moe_mlp", SHAPE, moe_mlp, ("x", "w1", "w2", "gates")),
                                                           ("moa", MOA_SHAPE, moa, ("x", "wq", "wo", "gates"))])
def test_the_dump_holds_the_result_and_its_gradients(scatterlm, tmp_path, bench, shape, function, names, routing):
    scatterlm("bench", bench, "--shapes", shape, "--routing", routing, "--iterations", 1, "--dump", tmp_path / "dump", check=True)
    _, dump = read_safetensors(tmp_path / f"dump/{bench}_{shape.replace(',', '_')}.safetensors")
    assert dump["ids"].dtype == np.int32 and dump["gates"].dtype == np.float32
    ids, exact = dump["ids"], {name: tensor.astype(np.float64) for name, tensor in dump.items()}
    inputs = [exact[name] for name in names]
    assert np.abs(function(*inputs, ids) - exact["out"]).max() < 1e-6 * np.abs(exact["out"]).max()
    check_gradients(function, inputs, ids, exact["dout"], [exact["d" + name] for name in names])
    if bench == "moa":
        q = query(exact["x"], exact["wq"], ids)
        assert np.abs(q.reshape(exact["q"].shape) - exact["q"]).max() < 1e-6 * np.abs(q).max()
        check_gradients(output, [q, exact["wo"], exact["gates"]], ids, exact["dout"], [exact["dq"]])


@pytest.mark.parametrize("bench", ["moe_mlp", "inference", "router", "token_rounding", "moa", "parallel_linear", "grouped_gemm", "gather_sum", "routing"])
def test_every_bench_runs_on_a_cpu(scatterlm, bench):
    shape = MOA_SHAPE if bench in ("moa", "parallel_linear") else SHAPE
    result = scatterlm("bench", bench, "--shapes", shape, "--routing", "balanced", "--iterations", 1, check=True)
    assert result.stdout.startswith(f"CPU, fp32: figures of a CPU say nothing about a GPU\n\n{bench} {shape}\n")


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


def test_decoding(scatterlm, tiny_config, tmp_path):
    arguments = ["bench", "decode", tiny_config, "--batch", 2, "--prompt", 9, "--tokens", 5, "--iterations", 2]
    lines = scatterlm(*arguments, check=True).stdout.splitlines()
    assert lines[0] == "CPU, 1 thread, float32, deterministic" and len(lines) == 4
    prefill, prefill_speed = map(float, re.fullmatch(r"prefill of 2 x 9 tokens: ([\d.]+) ms, (\d+) tok/s", lines[1]).groups())
    assert abs(prefill_speed * prefill / 18_000 - 1) < 0.02
    token, speed = map(float, re.fullmatch(r"decoding of 2 x 5 tokens: ([\d.]+) ms per token, ([\d.]+) tok/s", lines[2]).groups())
    assert abs(speed * token / 2000 - 1) < 0.05
    assert re.match(r"weights that a token multiplies: [\d.]+ KiB; reading them once at the speed of a copy, \d+ GB/s, takes", lines[3])
    for wrong in ("--batch", "--prompt", "--tokens"):
        assert f"{wrong}: got '0', must be from 1 to" in scatterlm("bench", "decode", tiny_config, wrong, 0).stderr
    out = tmp_path / "decode.json"
    result = scatterlm(*arguments, "--json", out)
    if result.returncode == 2:  # the tree was changed before it was built
        assert "differ from git's index (kernels, lib, app)" in result.stderr and not out.exists()
        return
    content = json.loads(out.read_text())
    row, = content["rows"]
    assert content["bench"] == "decode" and content["command"].endswith("--batch 2 --prompt 9 --tokens 5 --iterations 2")
    assert abs(row["read_percent"] - 100 * row["read_ms"] / row["token_ms"]) < 1e-6
    assert abs(row["read_ms"] - row["weight_mib"] * 2**20 / row["copy_tbps"] / 1e9) < 1e-9


def test_a_family_of_kernels_needs_a_gpu(scatterlm):
    result = scatterlm("bench", "grouped_gemm", "--shapes", SHAPE, "--family", "portable")
    assert result.returncode == 2 and "error: --family portable: the kernels are for GPUs, and there is none\n" in result.stderr
    result = scatterlm("bench", "routing", "--shapes", SHAPE, "--family", "portable")
    assert result.returncode == 2 and "error: unexpected argument '--family'; see scatterlm bench routing --help\n" in result.stderr


def test_a_file_that_cannot_be_written_is_found_before_measuring(scatterlm, tmp_path):
    result = scatterlm("bench", "routing", "--shapes", "published", "--json", tmp_path / "no/such.json")
    assert result.returncode == 2 and result.stdout == "" and len(result.stderr.splitlines()) == 1

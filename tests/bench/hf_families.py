"""Import and export of every Hugging Face family, beside transformers: differences of logits, round trips, time and memory.

    .venv/bin/python tests/bench/hf_families.py [--transformers 4.57.6 5.23.0] [--gib 1] [--large] [--json FILE]

Two parts. `logits`: each tiny random model of tests/hf/reference.py is saved by transformers, imported, evaluated in float32, exported,
compared tensor by tensor and loaded again, once for each version of transformers, which pip installs for the time of the run. `sizes`:
a model of each family with about --gib GiB of random bfloat16 weights (--large: Mistral-7B's shape as well) is imported and exported;
time and peak memory are those of the program's processes. Prints the figures, and writes them as evidence unless the binary's sources
differ from the index.
"""
import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import zlib

import evidence

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARD_BYTES = 1 << 30

# Of the second part: widths like those of published models; the number of layers follows from --gib.
ATTENTION = {"num_attention_heads": 16, "num_key_value_heads": 8}
SIZES = {
    "llama": {**ATTENTION, "intermediate_size": 5632},
    "mistral": {**ATTENTION, "intermediate_size": 7168},
    "qwen3": {**ATTENTION, "intermediate_size": 6144},
    "mixtral": {**ATTENTION, "intermediate_size": 3584, "num_local_experts": 8, "num_experts_per_tok": 2},
    "olmoe": {**ATTENTION, "intermediate_size": 1024, "num_experts": 64, "num_experts_per_tok": 8},
    "qwen2_moe": {**ATTENTION, "intermediate_size": 5632, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "num_experts": 60},
    "qwen3_moe": {**ATTENTION, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 64, "head_dim": 128},
    "granitemoe": {**ATTENTION, "intermediate_size": 512, "num_local_experts": 40},
    "granitemoeshared": {**ATTENTION, "intermediate_size": 512, "num_local_experts": 40, "shared_intermediate_size": 1024},
    "jetmoe": {"num_key_value_heads": 16, "kv_channels": 128, "intermediate_size": 5632, "num_local_experts": 8},
}
MISTRAL_7B = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8}


def run(*command):
    """Output, seconds and the peak memory in MiB of the program."""
    start = time.monotonic()
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(map(str, command))}: status {status}\n{output}")
    return output, time.monotonic() - start, usage.ru_maxrss / 1024


# ---- logits

def compare_logits(binary):
    """The rows of one version of transformers, that of this process."""
    import safetensors.torch
    import torch
    import transformers
    sys.path.insert(0, str(ROOT / "tests/hf"))
    import reference

    def tensors_of(folder):
        return {name: tensor for path in folder.glob("*.safetensors") for name, tensor in safetensors.torch.load_file(path).items()}

    def equal_bytes(first, second):
        return first.keys() == second.keys() and all(
            tensor.dtype == second[name].dtype and tensor.contiguous().view(torch.uint8).equal(second[name].contiguous().view(torch.uint8))
            for name, tensor in first.items())

    rows = []
    ids = reference.token_ids()
    for name, (family, _) in reference.CASES.items():
        with tempfile.TemporaryDirectory() as path:
            folder = pathlib.Path(path)
            model = reference.make(name)
            expected = reference.logits(model, ids)
            model.save_pretrained(folder / "source")
            run(binary, "import", folder / "source", "--out", folder / "run")
            safetensors.torch.save_file({"input_ids": ids}, folder / "ids.safetensors")
            run(binary, "eval", folder / "run", "--ids", folder / "ids.safetensors", "--logits", folder / "logits.safetensors")
            ours = safetensors.torch.load_file(folder / "logits.safetensors")["logits"]
            run(binary, "export", folder / "run", "--out", folder / "out")
            loaded = transformers.AutoModelForCausalLM.from_pretrained(folder / "out", **reference.EAGER).eval()
            rows.append({"transformers": transformers.__version__, "case": name, "family": family,
                         "difference": (ours - expected).abs().max().item(), "largest_logit": expected.abs().max().item(),
                         "equal_bytes": equal_bytes(tensors_of(folder / "source"), tensors_of(folder / "out")),
                         "equal_when_loaded": type(loaded) is type(model) and reference.logits(loaded, ids).equal(expected)})
    return rows


def rows_of_version(version, binary):
    """In a process of its own, with that version from a folder of its own before what is installed."""
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", folder, f"transformers=={version}")
        result = subprocess.run([sys.executable, __file__, "--binary", str(binary), "--rows-of-this-version"], capture_output=True, text=True,
                                env={**os.environ, "PYTHONPATH": folder, "TRANSFORMERS_VERBOSITY": "error"})
        if result.returncode != 0:
            sys.exit(f"transformers {version}:\n{result.stdout}{result.stderr}")
        return json.loads(result.stdout.splitlines()[-1])


# ---- sizes

def write_model(folder, family, sizes):
    """config.json and shards of random bits, by names and shapes of transformers. Returns the bytes of all tensors."""
    import numpy as np
    import torch
    import transformers
    config = transformers.AutoConfig.for_model(family, torch_dtype="bfloat16", **sizes)
    with torch.device("meta"):
        shapes = {name: list(tensor.shape) for name, tensor in transformers.AutoModelForCausalLM.from_config(config).state_dict().items()}
    if config.tie_word_embeddings:
        shapes.pop("lm_head.weight")
    config.save_pretrained(folder)
    pattern = np.random.default_rng(0).integers(0x3c00, 0x3f00, 1 << 22, dtype=np.uint16).tobytes()  # bfloat16 from 0.008 to 0.5
    shards, names = [], {}
    for name, shape in shapes.items():
        size = 2 * int(np.prod(shape))
        if not shards or sum(shards[-1].values()) + size > SHARD_BYTES:
            shards.append({})
        shards[-1][name] = size
        names[name] = f"model-{len(shards):05d}.safetensors"
    for number, shard in enumerate(shards, 1):
        header, offset = {}, 0
        for name, size in shard.items():
            header[name] = {"dtype": "BF16", "shape": shapes[name], "data_offsets": [offset, offset + size]}
            offset += size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(folder / f"model-{number:05d}.safetensors", "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name, size in shard.items():
                shift = 2 * (zlib.crc32(name.encode()) % 4096)  # else exchanged tensors would be equal
                for begin in range(0, size, len(pattern) - 8192):
                    file.write(pattern[shift:shift + min(size - begin, len(pattern) - 8192)])
    total = sum(sum(shard.values()) for shard in shards)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": names}))
    return total


def hashes_of(folder):
    """SHA-256 of every tensor's bytes."""
    found = {}
    for path in folder.glob("*.safetensors"):
        with open(path, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            for name, tensor in sorted(((n, t) for n, t in header.items() if n != "__metadata__"), key=lambda pair: pair[1]["data_offsets"]):
                digest = hashlib.sha256(f"{tensor['dtype']} {tensor['shape']}".encode())
                left = tensor["data_offsets"][1] - tensor["data_offsets"][0]
                while left:
                    left -= len(part := file.read(min(left, 1 << 24)))
                    digest.update(part)
                found[name] = digest.digest()
    return found


def measure_size(binary, name, family, sizes):
    with tempfile.TemporaryDirectory() as path:
        folder = pathlib.Path(path)
        (folder / "source").mkdir()
        total = write_model(folder / "source", family, sizes)
        _, import_s, import_mib = run(binary, "import", folder / "source", "--out", folder / "run")
        _, export_s, export_mib = run(binary, "export", folder / "run", "--out", folder / "out")
        return {"model": name, "family": family, "gib": total / 2**30, "import_s": import_s, "import_mib": import_mib, "export_s": export_s,
                "export_mib": export_mib, "equal_bytes": hashes_of(folder / "source") == hashes_of(folder / "out")}


def layers_for(family, sizes, gib):
    """Layers of that model that have about `gib` GiB together with its embedding and head."""
    import torch
    import transformers

    def bytes_of(layers):
        config = transformers.AutoConfig.for_model(family, **{**sizes, "num_hidden_layers": layers})
        with torch.device("meta"):
            return 2 * sum(parameter.numel() for parameter in transformers.AutoModelForCausalLM.from_config(config).parameters())

    one, two = bytes_of(1), bytes_of(2)
    return max(1, round((gib * 2**30 - one) / (two - one) + 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transformers", nargs="+", default=["4.57.6", "5.23.0"], help="versions for the first part")
    parser.add_argument("--gib", type=float, default=1, help="size of each model of the second part")
    parser.add_argument("--large", action="store_true", help="Mistral-7B's shape as well: 41 GiB of disk")
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "build/release/bin/scatterlm")
    parser.add_argument("--json", type=pathlib.Path, help="evidence file to write")
    parser.add_argument("--rows-of-this-version", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rows_of_this_version:
        print(json.dumps(compare_logits(arguments.binary)))
        return
    origin = evidence.of_binary(arguments.binary) if arguments.json else {}

    logits = []
    for version in arguments.transformers:
        logits += rows_of_version(version, arguments.binary)
    for row in logits:
        print("{transformers:8} {case:18} largest difference {difference:.1e} of {largest_logit:.1f}  bytes equal {equal_bytes}  loaded equal {equal_when_loaded}".format(**row))
    cases = [(family, family, {"hidden_size": 2048, **sizes, "num_hidden_layers": layers_for(family, {"hidden_size": 2048, **sizes}, arguments.gib)})
             for family, sizes in SIZES.items()]
    if arguments.large:
        cases.append(("Mistral 7B", "mistral", MISTRAL_7B))
    sizes = []
    for case in cases:
        sizes.append(measure_size(arguments.binary, *case))
        print("{model:18} {gib:5.2f} GiB  import {import_s:6.1f} s {import_mib:5.0f} MiB  export {export_s:6.1f} s {export_mib:5.0f} MiB  bytes equal {equal_bytes}".format(**sizes[-1]), flush=True)
    if arguments.json:
        evidence.write(arguments.json, {"bench": "hf_families", "cpu": evidence.cpu_name(), **origin, "logits": logits, "sizes": sizes})


if __name__ == "__main__":
    main()

"""Speed of tokenizing on the CPU beside Hugging Face's tokenizers and OpenAI's tiktoken: the same vocabulary, text and threads.

    .venv/bin/python tests/bench/tokenizer_cpu.py [--rounds 3] [--threads 2] [--json FILE]

The programs take turns, so that a drift of the machine's speed meets all of them. Of scatterlm counts what `data prepare` says, which
is reading JSON lines, tokenizing and writing the token file, without the start of the program; of the packages the call from a list of
Python strings in memory to a list of ids each. The ids are compared. Prints the figures, and writes them as evidence unless the binary's sources differ from the index.
"""
import argparse
import base64
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

import evidence
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
VOCABULARY = 32768
DOCUMENT = 1 << 16  # characters
PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def source_text(megabytes):
    """LibTorch's headers, which are wherever the program is built."""
    import torch
    text = ""
    for path in sorted((pathlib.Path(torch.__file__).parent / "include").rglob("*.h")):
        text += path.read_text(errors="ignore")
        if len(text) >= megabytes * 10**6:
            break
    return text[:megabytes * 10**6]


def mixed_text(megabytes):
    """Words of many scripts, drawn by Zipf's law."""
    pick = random.Random(1)
    ranges = [(0x61, 0x7b), (0xe0, 0x17f), (0x3b1, 0x3ca), (0x430, 0x450), (0x5d0, 0x5eb), (0x627, 0x64b), (0x905, 0x93a), (0x3041, 0x3097), (0x4e00, 0x9fff), (0xac00, 0xd7a4)]
    words = ["".join(chr(pick.randrange(*span)) for _ in range(pick.randrange(2, 9))) for span in ranges for _ in range(3000)]
    pick.shuffle(words)
    weights = [1 / (rank + 10) for rank in range(len(words))]
    text, size = [], 0
    while size < megabytes * 10**6:
        text += [word + pick.choice((" ", " ", " ", ", ", ".\n", " 1984 ")) for word in pick.choices(words, weights, k=10_000)]
        size = len("".join(text).encode())
    return "".join(text)


def documents_of(text):
    return [text[begin:begin + DOCUMENT] for begin in range(0, len(text), DOCUMENT)]


def read_ids(path):
    header = np.fromfile(path, "<i4", 256)
    return np.fromfile(path, "<u2" if header[0] == 20240520 else "<u4", offset=1024)


class Programs:
    """Each method returns seconds and the ids of all documents, an end-of-text after each."""

    def __init__(self, arguments, folder):
        import tiktoken
        import tokenizers
        self.arguments, self.folder = arguments, folder
        content = json.loads((folder / "tokenizer.json").read_text())
        self.eot = content["added_tokens"][0]["id"]
        self.hugging_face = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        symbols = [*range(33, 127), *range(161, 173), *range(174, 256)]
        table = {chr(byte): byte for byte in symbols}
        table.update({chr(256 + i): byte for i, byte in enumerate(byte for byte in range(256) if byte not in symbols)})
        ranks = {bytes(table[symbol] for symbol in token): rank for token, rank in content["model"]["vocab"].items()}
        self.open_ai = tiktoken.Encoding("bench", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
        self.tiktoken_file = folder / "bench.llama3.tiktoken"
        self.tiktoken_file.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items()))

    def joined(self, lists):
        return np.concatenate([np.asarray([*ids, self.eot], "<u4") for ids in lists])

    def scatterlm(self, tokenizer, documents):
        name = self.folder / "text.jsonl"
        name.write_text("".join(json.dumps({"text": document}, ensure_ascii=False) + "\n" for document in documents))
        out = self.folder / f"out_{time.monotonic_ns()}"
        process = subprocess.run([self.arguments.binary, "data", "prepare", name, "--tokenizer", tokenizer, "--threads", str(self.arguments.threads), "--out", out],
                                 check=True, capture_output=True, text=True)
        mib_s = float(re.search(r"\(([\d.]+) MiB/s\)", process.stderr)[1])
        return name.stat().st_size / (mib_s * 2**20), read_ids(out / "train.bin")

    def run(self, documents):
        results = {}
        results["scatterlm"] = self.scatterlm(self.folder / "tokenizer.json", documents)
        start = time.perf_counter()
        encodings = self.hugging_face.encode_batch_fast(documents, add_special_tokens=False)
        lists = [encoding.ids for encoding in encodings]
        results["tokenizers"] = time.perf_counter() - start, self.joined(lists)
        start = time.perf_counter()
        lists = self.open_ai.encode_ordinary_batch(documents, num_threads=self.arguments.threads)
        results["tiktoken"] = time.perf_counter() - start, self.joined(lists)
        return results


def measure(arguments, folder):
    """Rows: text, program, MB/s and whether the ids are those of the tokenizer in tokenizer.json."""
    programs, rows = Programs(arguments, folder), []
    for name, text in (("C++", source_text(arguments.megabytes)), ("ten scripts", mixed_text(arguments.megabytes))):
        documents = documents_of(text)
        size = len(text.encode()) / 1e6
        speeds = {}
        for round_number in range(arguments.rounds):
            results = programs.run(documents)
            for program, (seconds, _) in results.items():
                speeds.setdefault(program, []).append(size / seconds)
                print(f"round {round_number + 1}  {name:<12} {program:<11} {size / seconds:7.1f} MB/s", flush=True)
        ids = {program: tokens for program, (_, tokens) in results.items()}
        ranks = programs.scatterlm(programs.tiktoken_file, documents)[1]
        ranks = np.where(ranks == 128001, programs.eot, ranks)  # Llama's own end-of-text
        equal = {"scatterlm": True, "tokenizers": np.array_equal(ids["scatterlm"], ids["tokenizers"]), "tiktoken": np.array_equal(ranks, ids["tiktoken"])}
        rows += [{"text": name, "program": program, "mb_s": statistics.median(values), "mb_s_min": min(values), "mb_s_max": max(values),
                  "equal_ids": bool(equal[program]), "tokens": len(ids[program])} for program, values in speeds.items()]
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--megabytes", type=int, default=10, help="of each text")
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "build/release/bin/scatterlm")
    parser.add_argument("--json", type=pathlib.Path, help="evidence file to write")
    arguments = parser.parse_args()
    origin = evidence.of_binary(arguments.binary) if arguments.json else {}
    os.environ["RAYON_NUM_THREADS"] = str(arguments.threads)  # before `tokenizers` is loaded
    os.environ["TOKENIZERS_PARALLELISM"] = "true"

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "learn.txt").write_text(source_text(arguments.megabytes)[:4 * 10**6] + mixed_text(1))
        start = time.perf_counter()
        subprocess.run([arguments.binary, "tokenizer", "train", folder / "learn.txt", "--vocab-size", str(VOCABULARY), "--out", folder / "tokenizer.json"],
                       check=True, capture_output=True)
        learned = time.perf_counter() - start
        rows = measure(arguments, folder)
    for row in rows:
        print(f"{row['text']:<12} {row['program']:<11} {row['mb_s']:7.1f} MB/s  equal ids: {row['equal_ids']}")
    if arguments.json:
        import tiktoken
        import tokenizers
        evidence.write(arguments.json, {"bench": "tokenizer_cpu", "cpu": evidence.cpu_name(), "threads": arguments.threads, **origin,
                                        "versions": {"tokenizers": tokenizers.__version__, "tiktoken": tiktoken.__version__}, "vocabulary": VOCABULARY,
                                        "learn_s": learned, "rows": rows})


if __name__ == "__main__":
    sys.exit(main())

"""Bad command lines, configurations, data and checkpoints: exit code 2 and exactly one line that says what to do."""
import os
import re
import shutil

import numpy as np
import pytest

from conftest import TINY_CONFIG, write_tiny_data

FLIPPED = "runs/flip/step_00000020/rank_00000.safetensors: damaged: "
NO_CHECKPOINT = "holds no checkpoint; train first: scatterlm train CONFIG"

MEMORY = ("activations shrink with train.micro_batch_size (sequences per forward pass) and train.recompute; gradients and optimiser state with parallel.zero 1 or 2 on "
          "more ranks, and with bfloat16 as train.grad_dtype and optim.state_dtype; all of them with the sizes in model")

# (arguments, the end of the message); {hash} stands for 16 hex digits. "train" alone means: train tiny.yaml.
TABLE = [
    # the command line
    ("", "scatterlm needs a command: train, launch, eval, generate, data, tokenize, detokenize, tokenizer, checkpoint, import, export, config, bench, compare, plan, report, doctor; see scatterlm --help"),
    ("trian x.yaml", "unknown command 'scatterlm trian', did you mean 'train'? Commands: train, launch, eval, generate, data, tokenize, detokenize, tokenizer, checkpoint, import, export, config, bench, compare, plan, report, doctor"),
    ("sample runs/tiny", "unknown command 'scatterlm sample', did you mean 'generate'? Commands: train, launch, eval, generate, data, tokenize, detokenize, tokenizer, checkpoint, import, export, config, bench, compare, plan, report, doctor"),
    ("evaluate runs/tiny", "unknown command 'scatterlm evaluate', did you mean 'eval'? Commands: train, launch, eval, generate, data, tokenize, detokenize, tokenizer, checkpoint, import, export, config, bench, compare, plan, report, doctor"),
    ("data tokenize x", "unknown command 'scatterlm data tokenize', did you mean 'prepare'? Commands: prepare, inspect"),
    ("--foo train", "unknown option '--foo'; see scatterlm --help"),
    ("data", "scatterlm data needs a command: prepare, inspect; see scatterlm data --help"),
    ("config shw", "unknown command 'scatterlm config shw', did you mean 'show'? Commands: show, keys"),
    ("launch -n 2", "scatterlm launch needs a command to start, for example: scatterlm launch -n 2 train CONFIG"),
    ("launch train x.yaml", "--nproc-per-node is required; see scatterlm launch --help"),
    ("launch -n 0 train x.yaml", "--nproc-per-node: got '0', must be from 1 to 1024; see scatterlm launch --help"),
    ("launch -n 2 trian x.yaml", "unknown command 'scatterlm trian', did you mean 'train'? Commands: train, launch, eval, generate, data, tokenize, detokenize, tokenizer, checkpoint, import, export, config, bench, compare, plan, report, doctor"),
    ("launch -n 2 generate runs/a", "scatterlm launch starts train, eval and doctor; generate does not share its work among ranks, so run it alone: scatterlm generate"),
    ("launch -n 2 launch -n 2 train x.yaml", "scatterlm launch starts train, eval and doctor; launch does not share its work among ranks, so run it alone: scatterlm launch"),
    ("launch -n 4 train nothere.yaml", "nothere.yaml: cannot read: No such file or directory"),
    ("launch -n 2 train tiny.yaml --set checkpoint.lock_timeout_s=1800", "'checkpoint.lock_timeout_s: 1800' must be below 'checkpoint.timeout_s: 1800' with 2 ranks: "
     "the others wait for rank 0, which waits for the run's folder, no longer than the latter"),
    ("launch -n 4 doctor comm --mib 0", "--mib: got '0', must be from 1 to 16384; see scatterlm doctor comm --help"),
    ("doctor comm", "a single rank has no collectives to check; start several: scatterlm launch -n 2 doctor comm"),
    ("eval", "path is required; see scatterlm eval --help"),
    ("train --resum auto", "unexpected argument '--resum'; see scatterlm train --help"),
    ("train --set", "--set: 1 required TEXT missing; see scatterlm train --help"),
    ("generate runs/tiny --temperature -1", "--temperature: got '-1', must be at least 0; see scatterlm generate --help"),
    ("generate runs/tiny --top-p 1.5", "--top-p: got '1.5', must be from 0 to 1; see scatterlm generate --help"),
    ("generate runs/tiny --max-tokens many", "--max-tokens: got 'many', must be at least 1; see scatterlm generate --help"),
    ("eval runs/tiny --tokens -5", "--tokens: got '-5', must be at least 0; see scatterlm eval --help"),
    ("bench", "scatterlm bench needs a command: moe_mlp, inference, router, token_rounding, moa, parallel_linear, adamw, muon, grouped_gemm, gather_sum, routing, rms_norm, qk_norm_rope, cross_entropy, decode; see scatterlm bench --help"),
    ("bench moe_ml --shapes 8,8,8,2,1", "unknown command 'scatterlm bench moe_ml', did you mean 'moe_mlp'? Commands: moe_mlp, inference, router, token_rounding, moa, parallel_linear, adamw, muon, grouped_gemm, gather_sum, routing, rms_norm, qk_norm_rope, cross_entropy, decode"),
    ("bench routing", "--shapes is required; see scatterlm bench routing --help"),
    ("bench routing --shapes 8,8,8,2,3", "--shapes: K = 3 in '8,8,8,2,3' is more than E = 2"),
    ("bench routing --shapes 8,8,8,2,1 --routing all", "--routing: got 'all', must be random, balanced, skewed, collapsed or one"),
    ("bench routing --shapes 8,8,8,2,1 --dump x", "unexpected argument '--dump'; see scatterlm bench routing --help"),
    ("bench moe_mlp --shapes 8,8,8,2,1 --dump data/train.bin/x", "--dump: data/train.bin/x: cannot create the folder: Not a directory"),
    ("compare tiny.yaml", "compare needs at least two configuration files; the first one is the baseline"),
    ("compare tiny.yaml tiny.yaml --speed-only --seeds 2", "--speed-only trains no runs, so --tokens, --minutes, --seeds, --sweep, --out and --retry-failed have no effect; leave them out"),
    ("compare tiny.yaml tiny.yaml --minutes 3,2,1", "--minutes has 3 values for 2 configurations; give one for all, or one for each"),
    ("compare tiny.yaml tiny.yaml --tokens 9 --minutes 1", "--tokens and --minutes both set the length of the runs; give one of them"),
    ("compare tiny.yaml tiny.yaml --sweep optim.lr", "--sweep: got 'optim.lr', must be KEY=VALUE,VALUE,..., for example optim.lr=1e-3,2e-3"),
    ("compare tiny.yaml tiny.yaml --match flops", "--match: got 'flops', must be active_flops, active_params or total_params"),
    ("compare tiny.yaml tiny.yaml --sweep optim.lr=1,1", "--sweep: the value 1 of optim.lr is given twice"),
    ("compare tiny.yaml tiny.yaml --sweep train.steps=10,20", "--sweep: train.steps changes the tokens, and losses are compared after the same ones; --set train.steps=... sets it for all"),
    ("compare tiny.yaml tiny.yaml --sweep train.global_batch_tokens=256,512", "--sweep: train.global_batch_tokens changes the tokens, and losses are compared after the same ones; --set train.global_batch_tokens=... sets it for all"),
    ("compare tiny.yaml tiny.yaml --sweep optim.lr=1,x", "--set optim.lr=x: key 'optim.lr': got 'x', must be a number from 0 to 1000"),
    ("compare tiny.yaml no.yaml --speed-only", "no.yaml: cannot read: No such file or directory"),
    ("compare tiny.yaml tiny.yaml --speed-only --blocks 0", "--blocks: got '0', must be from 1 to 10000; see scatterlm compare --help"),
    # the configuration (tests/config has the whole table of keys)
    ("config show missing.yaml", "missing.yaml: cannot read: No such file or directory"),
    ("config show data/train.bin", "data/train.bin:1: not YAML: unknown escape character: \\x00"),
    ("train --set train.steps", "--set train.steps: must be KEY=VALUE, for example --set train.seed=7"),
    ("train --set train.stepz=5", "--set train.stepz=5: unknown key 'train.stepz', did you mean 'train.steps'?"),
    ("train --set train.steps=x", "--set train.steps=x: key 'train.steps': got 'x', must be an integer from 0 to 1000000000"),
    ("train --set optim.lr=-1", "--set optim.lr=-1: key 'optim.lr': got '-1', must be a number from 0 to 1000"),
    ("train --set model.moe.top_k=2", "--set model.moe.top_k=2: unknown key 'model.moe.top_k', did you mean 'model.moe.num_experts_per_tok'?"),
    ("train --set parallel.tensor_parallel=2", "--set parallel.tensor_parallel=2: unknown key 'parallel.tensor_parallel'; not supported: every rank holds the whole model"),
    ("train --set train.dtype=fp16", "--set train.dtype=fp16: key 'train.dtype': got 'fp16', must be one of auto, float32, bfloat16"),
    ("train --set train.recompute=full", "--set train.recompute=full: key 'train.recompute': got 'full', must be one of none, norms, layer"),
    ("train --set model.router.rounding=up", "--set model.router.rounding=up: key 'model.router.rounding': got 'up', must be one of none, nearest"),
    ("train --set model.layers=moa+dense --set model.router.rounding=nearest", "--set model.router.rounding=nearest: key 'model.router.rounding' has no effect: no moe layer in model.layers: moa+dense; remove it, or add --set model.router.rounding=null"),
    ("train --set train.micro_batch_size=3", "--set train.micro_batch_size=3: 'train.micro_batch_size: 3' must divide the 8 sequences of 'train.global_batch_tokens: 256'"),
    ("config show pipe", "pipe: cannot read: not a regular file"),
    ("config show /dev/null", "/dev/null: cannot read: not a regular file"),
    ("train --set optim.state_dtype=bfloat16", "optim.state_dtype: bfloat16 needs weights in bfloat16, and train.dtype: auto is float32 on a CPU; set train.dtype: bfloat16, or leave out optim.state_dtype"),
    ("train --set train.grad_dtype=bfloat16", "train.grad_dtype: bfloat16 needs weights in bfloat16, and train.dtype: auto is float32 on a CPU; set train.dtype: bfloat16, or leave out train.grad_dtype"),
    ("config show \x1b[31m.yaml", r"\x1b[31m.yaml: cannot read: No such file or directory"),
    ("eval runs/tiny --thread\x1bs", r"unexpected argument '--thread\x1bs'; see scatterlm eval --help"),
    ("eval runs/tiny --threads 2000", "--threads: got '2000', must be from 0 to 1024; see scatterlm eval --help"),
    # data
    ("train --set data.train=pipe", "pipe: cannot open: not a regular file"),
    ("data inspect data/fifo", "data/fifo: unknown format; if it is bare tokens without a header, set data.raw_dtype (data inspect: --raw-dtype) to uint16 or uint32"),
    ("train --set data.train=data/\x07.bin", r"data/\x07.bin: cannot open: No such file or directory"),
    ("data inspect " + 300 * "x", 300 * "x" + ": cannot open: File name too long"),
    ("data prepare " + 300 * "x" + " --out out", 300 * "x" + ": cannot open: File name too long"),
    ("train --set data.train=nothere.bin", "nothere.bin: cannot open: No such file or directory"),
    ("train --set data.train=data/trian.bin", "data/trian.bin: cannot open: No such file or directory, did you mean 'data/train.bin'?"),
    ("train --set data.validation=dat/val", "dat/val: cannot open: No such file or directory, did you mean 'data/val.bin'?"),
    ("train --set data.train=data/abc.py", "data/abc.py: is text, not tokens; make token files of it: scatterlm data prepare data/abc.py --out DIR"),
    ("data inspect data/abc.py", "data/abc.py: is text, not tokens; make token files of it: scatterlm data prepare data/abc.py --out DIR"),
    ("config show tini.yaml", "tini.yaml: cannot read: No such file or directory, did you mean 'tiny.yaml'?"),
    ("data prepare dta --out out", "dta: no such file or folder, did you mean 'data'?"),
    ("train --set data.train=data", "data: is a folder; name its token files, for example data/*.bin"),
    ("train --set data.train=data/z*.foo", "data/z*.foo: no file matches"),
    ("train --set data.train=data/empty.bin", "data/empty.bin: empty file"),
    ("train --set data.train=data/truncated.bin", "data/truncated.bin: truncated or damaged: its header says 100 tokens of 2 bytes, 150 bytes follow"),
    ("train --set data.train=data/zero.bin", "data/zero.bin: its header says 0 tokens"),
    ("train --set data.train=data/version.bin", "data/version.bin: llm.c version 9, files with magic number 20240520 have 1"),
    ("train --set data.train=data/eval.bin", "data/eval.bin: holds evaluation examples of llm.c (magic number 20240522), not tokens"),
    ("train --set data.train=data/big.bin", "data/big.bin: token 300 at position 0 is not in [0, 257): set model.vocab_size to that of the file's tokenizer"),
    ("eval runs/tiny --data data/big.bin", "data/big.bin: token 300 at position 0 is not in [0, 257): set model.vocab_size to that of the file's tokenizer"),
    ("train --set data.train=data/odd.raw", "data/odd.raw: unknown format; if it is bare tokens without a header, set data.raw_dtype (data inspect: --raw-dtype) to uint16 or uint32"),
    ("train --set data.train=data/odd.raw --set data.raw_dtype=uint16", "data/odd.raw: 3 bytes are not a whole number of uint16 tokens (data.raw_dtype)"),
    ("train --set data.train=data/short.bin", "data/short.bin: no file has more than train.sequence_length (32) tokens: shorten it or give longer files"),
    ("train --set data.train=data/megatron", "data/megatron.idx: truncated Megatron index: 17 bytes, the header has 34"),
    ("train --set data.train=data/broken.npy", "data/broken.npy: truncated npy header"),
    ("train --set data.eot_token=-1 --set data.intra_document_masking=true", "data/train.bin: has no document index, which data.intra_document_masking needs: set data.eot_token"),
    ("data prepare nothere --out out", "nothere: no such file or folder"),
    ("data prepare data --out out --glob *.zzz", "data: no file below it has a name like '*.zzz' (--glob)"),
    ("data prepare data --out out --tokenizer gpt2", "unknown tokenizer 'gpt2': neither bytes nor a file or folder"),
    ("data inspect nothere", "nothere: cannot open: No such file or directory"),
    # checkpoints
    ("train --run-dir tiny.yaml/run", "tiny.yaml/run: cannot create the run folder: Not a directory; give another --run-dir"),
    ("train --resume none", "runs/tiny: holds a checkpoint of step 20, so --resume none cannot start from step 0 here; give another --run-dir, or --resume auto"),
    ("train --resume runs/nothere", "runs/nothere: no such run or checkpoint folder"),
    ("train --resume runs/empty", "runs/empty: " + NO_CHECKPOINT),
    ("train --resume runs/flip/step_00000020", FLIPPED + "hash {hash}, the manifest says {hash}; use another checkpoint or restore the file"),
    ("train --set model.hidden_size=64", "runs/tiny/step_00000020: model.hidden_size is 32 in the checkpoint and 64 in this configuration; train from scratch in another --run-dir, or set it back"),
    ("eval runs/nothere", "runs/nothere: no such run or checkpoint folder"),
    ("eval runs/tinny", "runs/tinny: no such run or checkpoint folder, did you mean 'runs/tiny'?"),
    # memory
    ("train --run-dir new --set model.hidden_size=1048576 --set model.moe.moe_intermediate_size=65536", "tiny: weights, gradients and optimiser state need {size}, this machine has {size}: " + MEMORY),
    ("train --run-dir new --set model.hidden_size=1048576 --set model.moe.num_experts=4096 --set model.moe.moe_intermediate_size=1048576 --set model.layers=gqa+moe*4096 --set model.dense=null", "the model has more than 1e15 parameters; make the sizes in model smaller"),
    ("eval runs/empty", "runs/empty: " + NO_CHECKPOINT),
    ("generate runs/empty", "runs/empty: " + NO_CHECKPOINT),
    ("eval runs/flip/step_00000020", FLIPPED + "hash {hash}, the manifest says {hash}; use another checkpoint or restore the file"),
    ("eval runs/torn/step_00000020", "runs/torn/step_00000020/state.json: damaged: 254 bytes, the manifest says 258; use another checkpoint or restore the file"),
    ("checkpoint verify runs/flip/step_00000020", FLIPPED + "hash {hash}, the manifest says {hash}; use another checkpoint or restore the file"),
    ("checkpoint verify nothere", "nothere: no such run or checkpoint folder"),
    ("checkpoint inspect runs/empty", "runs/empty: " + NO_CHECKPOINT),
]


def llmc(tokens, **changes):
    """An llm.c file; changes: fields of its header by number, as f0=..., f1=..., f2=..."""
    header = np.zeros(256, "<i4")
    header[:3] = 20240520, 1, len(tokens)
    for field, value in changes.items():
        header[int(field[1:])] = value
    return header.tobytes() + np.asarray(tokens, "<u2").tobytes()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, scatterlm):
    """A finished run, damaged copies of it, and bad token files."""
    folder = tmp_path_factory.mktemp("errors")
    data = folder / "data"
    data.mkdir()
    write_tiny_data(data)
    (folder / "tiny.yaml").write_text(TINY_CONFIG.format(runs="runs", data="data"))
    scatterlm("train", "tiny.yaml", cwd=folder, check=True)
    for name, content in {
        "empty.bin": b"", "truncated.bin": llmc([0] * 75, f2=100), "zero.bin": llmc([]), "version.bin": llmc([0] * 100, f1=9),
        "eval.bin": llmc([0] * 100, f0=20240522), "big.bin": llmc([300] * 100), "short.bin": llmc([0] * 5), "odd.raw": b"\1\0\2",
        "megatron.idx": b"MMIDIDX\0\0" + b"\1" + bytes(7), "megatron.bin": bytes(10), "broken.npy": b"\x93NUMPY\1\0\xff\0{",
        "abc.py": "print('hällo')\n\t# text\r\n".encode(),
    }.items():
        (data / name).write_bytes(content)
    (data / "fifo").write_bytes(b"\1\0\2")
    os.mkfifo(data / "fifo.idx")
    os.mkfifo(folder / "pipe")
    runs = folder / "runs"
    (runs / "empty").mkdir()
    for name in ("flip", "torn"):
        shutil.copytree(runs / "tiny", runs / name)
    rank, state = runs / "flip/step_00000020/rank_00000.safetensors", runs / "torn/step_00000020/state.json"
    flipped = bytearray(rank.read_bytes())
    flipped[-1] ^= 1
    rank.write_bytes(flipped)
    state.write_bytes(state.read_bytes()[:-4])
    return folder


@pytest.mark.parametrize("arguments, message", TABLE, ids=[row[0] or "nothing" for row in TABLE])
def test_bad_input_is_one_line_and_exit_code_2(scatterlm, folder, arguments, message):
    words = arguments.split()
    if words[:1] == ["train"]:
        words[1:1] = ["tiny.yaml"]
    before = sorted(str(path) for path in folder.rglob("*"))
    result = scatterlm(*words, cwd=folder)
    assert result.returncode == 2
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    said = re.sub(r"[\d.]+ ([KMGT]i)?B(?=[,:])", "{size}", lines[0]).split()
    wanted = ("scatterlm: error: " + message).split()
    assert [a if b not in ("{hash},", "{hash};") else b for a, b in zip(said, wanted)] == wanted and len(said) == len(wanted), lines[0]
    assert sorted(str(path) for path in folder.rglob("*")) == before  # nothing was written

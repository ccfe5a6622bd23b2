"""`scatterlm data prepare` and `data inspect` against token files that NumPy writes and reads."""
import os
import signal
import subprocess
import time

import numpy as np
import pytest


@pytest.fixture
def texts(tmp_path):
    folder = tmp_path / "texts"
    for name, content in {"b.h": b"bb", "a/z.h": b"z\n", "a.h": b"\x00\xff", "c.txt": b"no"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def tokens_of(path):
    header = np.fromfile(path, "<i4", 256)
    tokens = np.fromfile(path, "<u2", offset=1024)
    assert list(header[:3]) == [20240520, 1, len(tokens)] and not header[13:].any()
    assert header[3:8].tobytes().startswith(b"XXH3") and header[8:13].tobytes().startswith(b"TOKN")
    return list(tokens)


def test_prepare(scatterlm, texts, tmp_path):
    out = tmp_path / "out"
    done = scatterlm("data", "prepare", texts, "--glob", "*.h", "--val-every", 3, "--out", out, check=True)
    assert tokens_of(out / "train.bin") == [0, 255, 256, *b"z\n", 256]  # a.h before a/z.h: '.' < '/'
    assert tokens_of(out / "val.bin") == [*b"bb", 256]
    assert done.stdout == (f"train: 2 documents, 6 tokens in {out}/train.bin\n"
                           f"validation: 1 documents, 3 tokens in {out}/val.bin\n")
    assert done.stderr.startswith("preparing: ") and "\r" not in done.stderr

    again = scatterlm("data", "prepare", texts, "--out", out)
    assert again.returncode == 2 and "remove the token files of --out" in again.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_prepare_interrupted(scatterlm, binary, tmp_path, number):
    huge = tmp_path / "huge.txt"
    huge.touch()
    os.truncate(huge, 2**31 - 2)  # sparse; seconds of work
    out = tmp_path / "out"
    process = subprocess.Popen([binary, "data", "prepare", huge, "--out", out], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # background jobs of a shell ignore it
    while not list(out.glob("train.bin.*.tmp")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGSTOP)  # it would write gigabytes meanwhile
    second = scatterlm("data", "prepare", huge, "--out", out)
    assert second.returncode == 2
    assert second.stderr == f"scatterlm: error: {out}: another process prepares data in this folder; wait for its end, or choose another --out\n"
    process.send_signal(number)
    process.send_signal(signal.SIGCONT)
    assert process.wait(300) == -number
    assert len(list(out.iterdir())) == (number == signal.SIGKILL)
    (tmp_path / "small.txt").write_text("small")
    scatterlm("data", "prepare", tmp_path / "small.txt", "--out", out, check=True)
    assert [path.name for path in out.iterdir()] == ["train.bin"]


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_inspect_numpy(scatterlm, tmp_path, dtype):
    tokens = np.array([72, 105, 256, 72], dtype)
    np.save(tmp_path / "a.npy", tokens)
    tokens.tofile(tmp_path / "raw.bin")
    npy = scatterlm("data", "inspect", tmp_path / "a.npy", "--samples", 1, check=True).stdout
    raw = scatterlm("data", "inspect", tmp_path / "raw.bin", "--raw-dtype", dtype, "--samples", 0, check=True).stdout
    summary = 'tokens, 3 different, the largest 256\n1 end-of-text tokens (256)\nmost common: 72 "H" 50 %, 105 "i" 25 %, 256 25 %\n'
    assert npy.startswith(f"{tmp_path}/a.npy: npy, {dtype}, 4 tokens\n4 {summary}")
    assert f"\n\n{tmp_path}/a.npy, from token " in npy
    assert raw == f"{tmp_path}/raw.bin: raw, {dtype}, 4 tokens\n4 {summary}"


def test_errors(scatterlm, tmp_path):
    np.save(tmp_path / "float.npy", np.zeros(3, "f4"))
    (tmp_path / "short.bin").write_bytes(b"abc")
    rows = [
        (["inspect", tmp_path / "float.npy"],
         f"{tmp_path}/float.npy: npy array of dtype \"'<f4'\", tokens must be '<u2' or '<u4' (uint16 or uint32)"),
        (["inspect", tmp_path / "short.bin", "--raw-dtype", "uint16"],
         f"{tmp_path}/short.bin: 3 bytes are not a whole number of uint16 tokens (data.raw_dtype)"),
        (["inspect", tmp_path / "short.bin", "--raw-dtype", "uint8"],
         "--raw-dtype: uint8 not in {uint16,uint32}; see scatterlm data inspect --help"),
        (["inspect", tmp_path / "*.gone"], f"{tmp_path}/*.gone: no file matches"),
        (["prepare", tmp_path / "gone", "--out", tmp_path / "o"], f"{tmp_path}/gone: no such file or folder"),
    ]
    for arguments, message in rows:
        failed = scatterlm("data", *arguments)
        assert (failed.returncode, failed.stderr) == (2, f"scatterlm: error: {message}\n")

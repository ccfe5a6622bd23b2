"""What data prepare takes for text: compressed or not, JSON lines, and what it refuses."""
import bz2
import gzip
import io
import lzma
import tarfile
import zipfile

import numpy as np
import pytest


@pytest.mark.parametrize("name, content, message", [
    ("text.gz", b"not gzip", "damaged: not valid gzip data"),
    ("text.gz", gzip.compress(b"text" * 1000)[:-9], "damaged: it ends in the middle of its compressed data"),
    ("text.gz", gzip.compress(gzip.compress(b"text")), "compressed twice is not supported; unpack it once"),
    ("text.zst", b"not zstd", "damaged: not valid Zstandard data"),
    ("text.parquet", b"PAR1\x15\4", "Parquet is not supported; make JSON lines of it: python -c"),
    ("text.jsonl", b'{"text": "a"}\n{"text": 3}\n', "text.jsonl:2: 'text' is not a string"),
    ("text.jsonl", b'{"text": "a"}\n\n{"body": ""}\n', "text.jsonl:3: 'text' is missing"),
    ("text.jsonl", b'{"text": "a"}\nx\n', "text.jsonl:2: not valid JSON"),
])
def test_text_that_cannot_be_read_leaves_nothing(name, content, message, scatterlm, tmp_path):
    (tmp_path / name).write_bytes(content)
    result = scatterlm("data", "prepare", tmp_path / name, "--out", tmp_path / "out")
    assert (result.returncode, result.stdout) == (2, "") and message in result.stderr
    assert not (tmp_path / "out").exists()


def archive(pack):
    """The bytes that pack(file) writes."""
    file = io.BytesIO()
    pack(file)
    return file.getvalue()


def tar(file):
    with tarfile.open(fileobj=file, mode="w") as content:
        content.addfile(tarfile.TarInfo("a.txt"))


def zip_of_text(file):
    with zipfile.ZipFile(file, "w") as content:
        content.writestr("a.txt", "text")


@pytest.mark.parametrize("form, content", [
    ("xz", lzma.compress(b"text")), ("bzip2", bz2.compress(b"text")), ("bzip2", bz2.compress(b"")), ("zip", archive(zip_of_text)), ("tar", archive(tar)),
    ("tar", gzip.compress(archive(tar), mtime=0)), ("7z", b"7z\xbc\xaf\x27\x1c\0\4"), ("lz4", b"\x04\x22\x4d\x18\x64"), ("Parquet", b"PAR1\x15\4"),
])
def test_what_is_no_text_is_refused_before_any_of_it_is_read(form, content, scatterlm, tmp_path):
    (tmp_path / "a.jsonl").write_text("no JSON\n")
    (tmp_path / "b.txt").write_bytes(content)  # a name that does not say what it is
    result = scatterlm("data", "prepare", tmp_path, "--out", tmp_path / "out")
    assert (result.returncode, result.stdout) == (2, "") and f"b.txt: {form} is not supported; " in result.stderr and len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_bytes_say_what_is_compressed_and_names_what_are_json_lines(scatterlm, tmp_path):
    lines = b'{"text": "one"}\n{"text": "two"}\n'
    for name, content in {"a.json.gz": gzip.compress(lines), "b.jsonl": gzip.compress(lines), "c.json.zst": gzip.compress(lines), "d.jsonl.zst": zstandard(lines),
                          "e.ndjson": b"\x50\x2a\x4d\x18\2\0\0\0xx" + zstandard(lines)}.items():
        (tmp_path / name).write_bytes(content)
        out = tmp_path / f"out_{name}"
        scatterlm("data", "prepare", tmp_path / name, "--out", out, check=True)
        assert np.fromfile(out / "train.bin", "<u2", offset=1024).tolist() == [*b"one", 256, *b"two", 256]


def test_compressed_text_is_text(scatterlm, tmp_path):
    text = b"int value = 0;\n" * 100_000  # more than a block
    (tmp_path / "a.txt").write_bytes(text)
    (tmp_path / "b.gz").write_bytes(gzip.compress(text[:1000]) + gzip.compress(text[1000:]))
    (tmp_path / "c.zst").write_bytes(zstandard(text[:700]) + zstandard(text[700:]))
    for name in ("a.txt", "b.gz", "c.zst"):
        scatterlm("data", "prepare", tmp_path / name, "--out", tmp_path / f"out_{name}", check=True)
        assert (tmp_path / "out_a.txt/train.bin").read_bytes() == (tmp_path / f"out_{name}/train.bin").read_bytes()
    (tmp_path / "d.zst").write_bytes(zstandard(text)[:-5])
    assert "damaged: it ends in the middle" in scatterlm("data", "prepare", tmp_path / "d.zst", "--out", tmp_path / "out_d").stderr


def zstandard(text):
    """A frame of blocks that are not compressed; Python has no Zstandard before 3.14."""
    blocks = [text[at:at + 100_000] for at in range(0, len(text), 100_000)]
    frame = bytes.fromhex("28b52ffd") + b"\xa0" + len(text).to_bytes(4, "little")
    return frame + b"".join((len(block) << 3 | (block is blocks[-1])).to_bytes(3, "little") + block for block in blocks)

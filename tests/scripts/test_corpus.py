"""scripts/corpus leaves out generated files and near-copies, and holds out whole folders."""
import gzip
import hashlib
import io
import json
import lzma
import tarfile

import pytest

from load_script import load

corpus = load("corpus")


def source(name, lines=150):
    return "".join(f"static int {name}_{i}(struct device *dev) {{ return {i}; }}\n" for i in range(lines))


def write_archive(path, files):
    with tarfile.open(path, "w:xz") as packed:
        for name, text in files.items():
            content = text if isinstance(text, bytes) else text.encode()
            member = tarfile.TarInfo(f"linux-6.1/{name}")
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content))


def make_mirror(folder, packages):
    """A mirror of source packages under file://."""
    index = folder / "dists/bookworm/main/source/Sources.xz"
    index.parent.mkdir(parents=True)
    entries = []
    for package, files in packages.items():
        path = folder / f"pool/{package}/{package}_6.1.orig.tar.xz"
        path.parent.mkdir(parents=True)
        write_archive(path, files)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        entries.append(f"Package: {package}\nDirectory: pool/{package}\nChecksums-Sha256:\n {'0' * 64} 9 {package}_6.1.dsc\n"
                       f" {digest} {path.stat().st_size} {path.name}\n")
    index.write_bytes(lzma.compress("\n".join(entries).encode()))
    return f"file://{folder}"


def texts(folder, split):
    with gzip.open(folder / f"{split}.jsonl.gz", "rt") as lines:
        return {row["path"]: row["text"] for row in map(json.loads, lines)}


def test_cleaning_and_splits(tmp_path):
    registers = "".join(f"#define REGISTER_{i} 0x{i:04x}\n" for i in range(200))
    files = {f"drivers/kind{i}/part{j}/file.c": source(f"f{i}_{j}") for i in range(40) for j in range(3)}
    files |= {"drivers/gpu/registers.h": registers, "drivers/gpu/table.c": "0x1, 0x2, 0x3,\n" * 200, "logo.png": source("image"),
              "drivers/copy.c": files["drivers/kind1/part1/file.c"].replace("return 3", "return 4"), "latin.c": source("x").encode() + b"\xe9"}
    mirror = make_mirror(tmp_path / "mirror", {"other": {"drivers/kind1/part1/file.c": source("other")}, "linux": files})
    corpus.write_text(["linux"], mirror, tmp_path, percent=100)
    train, val = texts(tmp_path, "train"), texts(tmp_path, "val")
    assert {**train, **val} == {f"linux/{path}": text for path, text in files.items() if path.startswith("drivers/kind")}
    folders = [{corpus.folder_of(path.removeprefix("linux/")) for path in split} for split in (train, val)]
    assert val and not folders[0] & folders[1]

    corpus.write_text(["linux"], mirror, tmp_path, percent=50)
    half = {**texts(tmp_path, "train"), **texts(tmp_path, "val")}
    assert 40 < len(half) < 80 and set(half) < {f"linux/{path}" for path in files}


def test_several_packages_and_what_a_mirror_has_not(tmp_path):
    """A copy is one, whichever package it is in; an archive that is not the one of the index leaves nothing behind."""
    mirror = make_mirror(tmp_path / "mirror", {"a": {"x/file.c": source("one")}, "b": {"y/file.c": source("one"), "z/file.c": source("two")}})
    corpus.write_text(["a", "b"], mirror, tmp_path, percent=100)
    assert set({**texts(tmp_path, "train"), **texts(tmp_path, "val")}) == {"a/x/file.c", "b/z/file.c"}
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ValueError, match="no source package c in bookworm"):
        corpus.write_text(["a", "c"], mirror, empty, percent=100)
    with open(tmp_path / "mirror/pool/b/b_6.1.orig.tar.xz", "ab") as archive:
        archive.write(b" ")
    with pytest.raises(ValueError, match="b_6.1.orig.tar.xz: its SHA-256 is not the one of the index"):
        corpus.write_text(["b"], mirror, empty, percent=100)
    with pytest.raises(ValueError, match="nowhere/dists/bookworm/main/source/Sources.xz: .*No such file"):
        corpus.write_text(["b"], f"file://{tmp_path}/nowhere", empty, percent=100)
    assert not list(empty.iterdir())

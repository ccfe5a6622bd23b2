"""scripts/corpus leaves out generated files and near-copies, and holds out whole folders."""
import gzip
import io
import json
import tarfile

from load_script import load

corpus = load("corpus")


def source(name, lines=150):
    return "".join(f"static int {name}_{i}(struct device *dev) {{ return {i}; }}\n" for i in range(lines))


def archive(path, files):
    with tarfile.open(path, "w:xz") as packed:
        for name, text in files.items():
            content = text if isinstance(text, bytes) else text.encode()
            member = tarfile.TarInfo(f"linux-source-6.1/{name}")
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content))


def texts(folder, split):
    with gzip.open(folder / f"{split}.jsonl.gz", "rt") as lines:
        return {row["path"]: row["text"] for row in map(json.loads, lines)}


def test_cleaning_and_splits(tmp_path, monkeypatch):
    registers = "".join(f"#define REGISTER_{i} 0x{i:04x}\n" for i in range(200))
    files = {f"drivers/kind{i}/part{j}/file.c": source(f"f{i}_{j}") for i in range(40) for j in range(3)}
    files |= {"drivers/gpu/registers.h": registers, "drivers/gpu/table.c": "0x1, 0x2, 0x3,\n" * 200, "logo.png": source("image"),
              "drivers/copy.c": files["drivers/kind1/part1/file.c"].replace("return 3", "return 4"), "latin.c": source("x").encode() + b"\xe9"}
    archive(tmp_path / "linux.tar.xz", files)
    monkeypatch.setattr(corpus, "linux_archive", lambda folder: tmp_path / "linux.tar.xz")
    corpus.write_text("linux", tmp_path, percent=100)
    train, val = texts(tmp_path, "train"), texts(tmp_path, "val")
    assert {**train, **val} == {path: text for path, text in files.items() if path.startswith("drivers/kind")}
    assert val and not {corpus.folder_of(path) for path in train} & {corpus.folder_of(path) for path in val}

    corpus.write_text("linux", tmp_path, percent=50)
    half = {**texts(tmp_path, "train"), **texts(tmp_path, "val")}
    assert 40 < len(half) < 80 and set(half) < set(files)

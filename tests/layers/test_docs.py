"""Every path and link that README.md, CONTRIBUTING.md and docs/*.md name exists, and README stays short."""
import pathlib
import re

import pytest

from check_layers import ROOT, SOURCE, tracked_files

MAX_README_LINES = 150
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
LINK = re.compile(r"\]\(([^()\s]+)\)")
PLACEHOLDER = re.compile(r"\b[A-Z][A-Z_]*(?=[_.]|\b)|\d*N\b")  # NAME_h200.json, scale_h200xN.json
FOLDERS = "app cmake configs docs kernels lib scripts tests".split()


def paths_in(text):
    """Words of code spans and blocks that look like paths of this repository: below one of its folders, or a source file's name."""
    for code in CODE.findall(text):
        for word in re.split(r"[\s'\"=,;()|]+", code.strip("`")):
            word = word.rstrip(".:")
            below_folder = "/" in word and word.split("/")[0] in FOLDERS
            is_source = "/" not in word and pathlib.PurePath(word).suffix in SOURCE | {".py"} and not re.search(r"[*A-Z]", word)
            if below_folder or is_source:
                yield word


def path_exists(root, names, path):
    """A file name may be in any folder; NAME and * stand for anything; an evidence file may not be measured yet."""
    if "/" not in path:
        return path in names
    if re.fullmatch(r"tests/bench/results/\w+\.json", path):
        return (root / "tests/bench/results").is_dir()
    pattern = PLACEHOLDER.sub("*", path)
    return any(root.glob(pattern.rstrip("/"))) if "*" in pattern else (root / path).exists()


def slugs(page):
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def link_resolves(page, target):
    path, _, anchor = target.partition("#")
    file = page.parent / path if path else page
    return file.exists() and (not anchor or anchor in slugs(file))


def findings(root, page, names):
    text = page.read_text()
    for path in paths_in(text):
        if not path_exists(root, names, path):
            yield f"{page.name}: no such path: {path}"
    for target in LINK.findall(CODE.sub("", text)):
        if not re.match(r"\w+://", target) and not link_resolves(page, target):
            yield f"{page.name}: dead link: {target}"


def pages():
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_what_a_page_names_exists(page):
    names = {pathlib.PurePath(path).name for path in tracked_files(ROOT)}
    assert sum(1 for _ in paths_in(page.read_text())) > 0
    assert list(findings(ROOT, page, names)) == []


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= MAX_README_LINES


def test_readme_leads_to_every_page():
    text = (ROOT / "README.md").read_text()
    assert [page.name for page in pages()[1:] if not re.search(rf"\]\((docs/)?{page.name}\)", text)] == []


@pytest.mark.parametrize("text, finding", [
    ("see `lib/ops/gone.h`", "no such path: lib/ops/gone.h"),
    ("run `python tests/cli/gone.py --all`", "no such path: tests/cli/gone.py"),
    ("```\nscatterlm train configs/gone.yaml\n```", "no such path: configs/gone.yaml"),
    ("`kernels/gone/*.cu`", "no such path: kernels/gone/*.cu"),
    ("`gone.cuh` holds it", "no such path: gone.cuh"),
    ("[there](docs/gone.md)", "dead link: docs/gone.md"),
    ("[there](other.md#gone)", "dead link: other.md#gone"),
    ("[above](#gone)", "dead link: #gone"),
])
def test_what_is_gone_is_found(tmp_path, text, finding):
    (tmp_path / "other.md").write_text("# Here\n")
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n{text}\n")
    assert list(findings(tmp_path, page, {"there.cuh"})) == [f"page.md: {finding}"]


@pytest.mark.parametrize("text", [
    "`lib/ops/there.h` and `there.h`", "`lib/ops/`", "`lib/*/there.h`", "`lib/ops/NAME.h`", "`NAME_cpu.cpp`, `*_cuda.cpp`, `runs/gone/config.yaml`",
    "`tests/bench/results/peers_h200.json`, `tests/bench/results/scale_h200xN.json`", "[here](other.md#the-top-of-it-2nd-edition)", "[web](https://example.org/gone.h)",
])
def test_what_exists_is_not_reported(tmp_path, text):
    for path in ("lib/ops/there.h", "tests/bench/results/moe_mlp_h200.json"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    (tmp_path / "other.md").write_text("## The top of it (2nd edition)\n")
    page = tmp_path / "page.md"
    page.write_text(text)
    assert list(findings(tmp_path, page, {"there.h"})) == []

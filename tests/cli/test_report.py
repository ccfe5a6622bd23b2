"""`scatterlm report`: what the page says, and that a browser draws it without an error."""
import json
import re
import shutil
import subprocess

import pytest


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)[1])


@pytest.fixture
def two_runs(scatterlm, tiny_config, tmp_path):
    """Folders of a run with experts and of a dense one, whose name is hostile."""
    folders = [tmp_path / "moe", tmp_path / "a<" / "script><!--b>&"]
    dense = ["run.name=other", "model.layers=gqa+dense*2", "model.moa=null", "model.moe=null", "model.router=null"]
    for folder, sets in zip(folders, ([], dense)):
        keys = ["log.interval=1", "train.eval_interval=5", *sets]
        scatterlm("train", tiny_config, "--run-dir", folder, *(part for key in keys for part in ("--set", key)), check=True)
    return folders


def test_page_of_runs(scatterlm, two_runs, tmp_path):
    page = tmp_path / "report.html"
    assert "opens without a network" in scatterlm("report", *two_runs, "-o", page, check=True).stdout
    data = data_of(page)
    moe, dense = data["runs"]
    assert [moe["name"], dense["name"]] == ["moe", "script><!--b>&"]
    lines = [json.loads(line) for line in (two_runs[0] / "metrics.jsonl").read_text().splitlines()]
    for key in ("step", "tokens", "loss", "val_loss", "grad_norm", "load_max_mean"):
        assert moe[key] == [line[key] for line in lines], key
    assert moe["seconds"] == pytest.approx([sum(line["step_ms"] for line in lines[:n + 1]) / 1000 for n in range(len(lines))])
    assert [router["name"] for router in moe["routers"]] == [router["name"] for router in lines[0]["routers"]]
    assert all(len(router["load_max_mean"]) == len(lines) for router in moe["routers"])
    assert not dense["routers"] and dense["active_parameters"] == dense["total_parameters"]
    assert moe["active_parameters"] < moe["total_parameters"]
    assert "cpu" in moe["environment"].lower()
    layers = next(row for row in data["differences"] if row["key"] == "model.layers")
    assert layers["values"][1] == '"gqa+dense*2"' and not any(row["key"].startswith("run.") for row in data["differences"])
    text = page.read_text()
    assert not re.search(r'(?:src|href)="', re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL))  # nothing from elsewhere


def test_tasks(scatterlm, two_runs, tmp_path):
    run = two_runs[0]
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for index, accuracy in ((4, 0.25), (9, 0.5)):
        lines[index]["task/a/b/acc_norm"] = accuracy
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    scatterlm("report", run, "-o", tmp_path / "report.html", check=True)
    assert data_of(tmp_path / "report.html")["runs"][0]["tasks"] == {"a/b": [{4: 0.25, 9: 0.5}.get(n) for n in range(len(lines))]}


def test_running_job(scatterlm, two_runs, tmp_path):
    run = two_runs[0]
    whole = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(whole[:-20])  # its last line is being written
    scatterlm("report", run, "-o", tmp_path / "report.html", check=True)
    assert len(data_of(tmp_path / "report.html")["runs"][0]["step"]) == whole.count("\n") - 1
    (run / "metrics.jsonl").unlink()
    scatterlm("report", run, "-o", tmp_path / "report.html", check=True)
    assert data_of(tmp_path / "report.html")["runs"][0]["step"] == []


@pytest.mark.parametrize("line, message", [("{", "metrics.jsonl:1: not valid JSON"), ("{}", "metrics.jsonl:1: 'step' is"),
                                           ('{"step": 1, "tokens": "x", "routers": []}', "'tokens' is"),
                                           ('{"step": 1, "tokens": 1, "routers": [{}]}', "'name' is"),
                                           ('{"step": 1, "tokens": 1, "routers": [1]}', "'name' is")])
def test_bad_metrics(scatterlm, tiny_config, tmp_path, line, message):
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(tiny_config, run / "config.yaml")
    (run / "metrics.jsonl").write_text(line + "\n")
    result = scatterlm("report", run, "-o", tmp_path / "report.html")
    assert result.returncode == 2 and message in result.stderr and result.stderr.count("\n") == 1, result.stderr
    assert not (tmp_path / "report.html").exists()


def test_many_points(scatterlm, tiny_config, tmp_path):
    """Curves are thinned; evaluations and the last step stay. A run that went on from elsewhere reports its own time."""
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(tiny_config, run / "config.yaml")
    lines = [{"step": 1000 + n, "tokens": n, "loss": 1, "step_ms": 500, "val_loss": 2 if n == 777 else None, "routers":
              [{"name": "b", "load_max_mean": 1}, {"name": "a", "load_max_mean": 2}][:2 if n else 1]} for n in range(1, 9002)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    scatterlm("report", run, "-o", tmp_path / "report.html", check=True)
    found = data_of(tmp_path / "report.html")["runs"][0]
    assert 3000 <= len(found["step"]) <= 4001 and found["step"][-1] == 10001 and found["step"][0] == 1001
    assert found["val_loss"][found["step"].index(1777)] == 2 and found["seconds"][-1] == pytest.approx(9001 / 2)
    assert [router["name"] for router in found["routers"]] == ["b", "a"]


def test_no_run(scatterlm, two_runs, tmp_path):
    checkpoint = next(two_runs[0].glob("step_*"))
    result = scatterlm("report", checkpoint, "-o", tmp_path / "report.html")
    assert result.returncode == 2 and "is a checkpoint; give the folder of its run" in result.stderr
    result = scatterlm("report", tmp_path, "-o", tmp_path / "report.html")
    assert result.returncode == 2 and "is not a run folder: it holds no config.yaml" in result.stderr


@pytest.mark.skipif(not shutil.which("chromium"), reason="no chromium")
def test_browser_draws_the_page(scatterlm, two_runs, tmp_path):
    page = tmp_path / "report.html"
    scatterlm("report", *two_runs, "-o", page, check=True)
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile", "--enable-logging=stderr",
               "--virtual-time-budget=20000", "--dump-dom", page.as_uri()]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert "CONSOLE" not in result.stderr, result.stderr  # a script's error, or a warning of plotly.js
    dom = re.sub(r"<script.*?</script>", "", result.stdout, flags=re.DOTALL)
    titles = re.findall(r'class="gtitle"[^>]*>(.*?)</text>', dom)
    assert len(titles) == dom.count('class="chart') >= 8, titles
    for part in ("Loss against tokens", "Largest load of an expert", "script&gt;&lt;!--b&gt;&amp;", "20 steps, complete", "model.layers"):
        assert part in dom, part


def comparison_of(scatterlm, folder, *arguments):
    """The table on the report's page, the runs that it shows, and the rows of comparison.json."""
    scatterlm("compare", *arguments, "--blocks", 1, "--steps-per-block", 1, "--out", folder, check=True)
    rows = json.loads((folder / "comparison.json").read_text())["rows"]
    pages = []
    for path in folder, folder / "comparison.json":
        scatterlm("report", path, "-o", folder / "report.html", check=True)
        data = data_of(folder / "report.html")
        table, = data["comparisons"]
        pages.append((table, [run["name"] for run in data["runs"]]))
    assert pages[0] == pages[1]
    return *pages[0], rows


def test_a_comparison(scatterlm, tiny_config, dense_config, tmp_path):
    table, runs, rows = comparison_of(scatterlm, tmp_path / "out", dense_config, tiny_config, "--tokens", 1280, "--sweep", "optim.lr=1e-3,3e-3")
    assert table["sweep"] == "optim.lr" and [row["name"] for row in table["rows"]] == ["dense", "tiny"]
    for shown, row in zip(table["rows"], rows):
        assert shown.items() <= row.items()
    assert runs == ["dense_optim.lr=3e-3", "tiny_optim.lr=3e-3"]


def test_a_comparison_names_failed_runs(scatterlm, tiny_config, dense_config, tmp_path):
    table, runs, rows = comparison_of(scatterlm, tmp_path / "out", dense_config, tiny_config, "--set", "train.max_nonfinite_steps=2",
                                       "--set", "optim.weight_decay=0.1", "--sweep", "optim.lr=3e-3,1000")
    assert table["failed"] == [f"{row['name']}, optim.lr=1000, seed 1234: {row['runs'][1]['error']}" for row in rows]
    assert runs == ["dense_optim.lr=3e-3", "tiny_optim.lr=3e-3"]

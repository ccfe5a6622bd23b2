"""Fills the tables of README.md from the evidence files: python scripts/update_readme.py [--check]

A table stands between <!-- NAME --> and <!-- /NAME -->. --check changes nothing and exits with 1 if README.md is out of date.
"""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "tests/bench/results"


def cpu_speed(data):
    lines = [f"Training on {data['cpu']}, {data['threads']} threads, float32: 4 layers `gqa+moe`, width 128, 8 experts of width 128, top-2,",
             "16 x 256 tokens a step; blocks of both programs in turn (`tests/bench/cpu_speed.py`):", "",
             "| program | tok/s | of the blocks |", "|---|---|---|"]
    lines += [f"| {row['program']} | {row['tok_s']:,.0f} | {row['tok_s_min']:,.0f} to {row['tok_s_max']:,.0f} |" for row in data["rows"]]
    return [*lines, "", f"scatterlm / PyTorch, median of the pairs: {data['ratio']:.2f}."]


TABLES = {"cpu_speed": cpu_speed}


def filled(text):
    for name, table in TABLES.items():
        result = RESULTS / f"{name}.json"
        body = "\n".join(table(json.loads(result.read_text()))) if result.exists() else "Not measured on the current sources yet."
        text = re.sub(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", lambda m: f"{m[1]}{body}\n{m[2]}", text, flags=re.DOTALL)
    return text


def main():
    readme = ROOT / "README.md"
    new = filled(readme.read_text())
    if "--check" in sys.argv:
        return 0 if new == readme.read_text() else "README.md is out of date: python scripts/update_readme.py"
    readme.write_text(new)


if __name__ == "__main__":
    sys.exit(main())

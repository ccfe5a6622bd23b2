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


def conditions(data):
    """One line: where and how."""
    return (f"{data['gpu']}, bf16, {data['date']}; ceilings measured in the same run: GEMM {data['ceilings']['gemm_tflops']:.0f} TFLOP/s, "
            f"copy {data['ceilings']['copy_tbps']:.2f} TB/s (`{data['command']}`):")


def shape(row):
    return ",".join(str(row[letter]) for letter in "TDFEK")


def moe_mlp(data):
    lines = [conditions(data), "",
             "| T,D,F,E,K | fwd TFLOP/s | fwd+bwd TFLOP/s | of roofline | ATen `_grouped_mm` | dense | saved MiB | peak MiB | host us |",
             "|---|---|---|---|---|---|---|---|---|"]
    return lines + [
        f"| {shape(row)} | {row['fwd_tflops']:.0f} | {row['fwdbwd_tflops']:.0f} | {row['fwdbwd_roofline_percent']:.0f} % "
        f"| {row['aten']['fwd']['tflops']:.0f}, {row['aten']['fwdbwd']['tflops']:.0f} "
        f"| {row['dense']['fwd']['tflops']:.0f}, {row['dense']['fwdbwd']['tflops']:.0f} "
        f"| {row['saved_mib']:.0f} | {row['peak_mib']:.0f} | {row['host_us']:.0f} |" for row in data["rows"]]


def kernels(unit, speed):
    """The table of a bench of kernels alone."""
    def table(data):
        lines = [conditions(data), "", f"| T,D,F,E,K | kernel | ms | {unit} | of ceiling | of roofline | ATen ms | dense ms |",
                 "|---|---|---|---|---|---|---|---|"]
        return lines + [f"| {shape(row)} | {row['kernel']} | {row['ms']:.3f} | {row[speed]:.0f} | {row['ceiling_percent']:.0f} % "
                        f"| {row['roofline_percent']:.0f} % | {row['aten_ms']:.3f} | {format(row['dense_ms'], '.3f') if 'dense_ms' in row else '-'} |"
                        for row in data["rows"]]
    return table


def comparison(data):
    """Figures down, models across."""
    first, second = data["rows"]

    def cell(row, key, digits, scale):
        spread = f" ({row[key + '_p10'] * scale:,.{digits}f} to {row[key + '_p90'] * scale:,.{digits}f})" if key + "_p10" in row else ""
        return f"{row[key] * scale:,.{digits}f}{spread}"

    def figure(label, key, digits, scale=1):
        cells = [cell(first, key, digits, scale), cell(second, key, digits, scale), cell(data["ratio"], key, 3, 1)]
        return f"| {label} | {' | '.join(cells)} |"

    unequal = [f"{condition['name']} ({condition['first']} and {condition['second']})" for condition in data["conditions"] if not condition["equal"]]
    equal = [condition["name"] for condition in data["conditions"] if condition["equal"]]
    return [conditions(data), "", f"| | `{first['config']}` | `{second['config']}` | second / first |", "|---|---|---|---|",
            figure("tok/s", "tok_s", 0), figure("ms a step", "step_ms", 1), figure("MFU, %", "mfu", 1, 100),
            figure("peak memory, GiB", "peak_gib", 1), figure("parameters, M", "total_parameters", 1, 1e-6),
            figure("active parameters, M", "active_parameters", 1, 1e-6), figure("MFLOPs a token", "flops_per_token", 0, 1e-6), "",
            f"Equal: {', '.join(equal)}. Not equal: {', '.join(unequal)}."]


TABLES = {"cpu_speed": cpu_speed, "moe_mlp_h200": moe_mlp, "grouped_gemm_h200": kernels("TFLOP/s", "tflops"),
          "gather_sum_h200": kernels("GB/s", "gbps"), "routing_h200": kernels("GB/s", "gbps"),
          "compare_h200": comparison}


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

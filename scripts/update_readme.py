"""Fills the tables of README.md from the evidence files: python scripts/update_readme.py [--check]

A table stands between <!-- NAME --> and <!-- /NAME -->. --check changes nothing and exits with 1 if README.md is out of date.
"""
import functools
import hashlib
import json
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "tests/bench/results"


def table(headings, rows):
    def line(cells):
        return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)

    return [line(headings), "|---" * len(headings) + "|", *map(line, rows)]


def cpu_speed(data):
    lines = [f"Training on {data['cpu']}, {data['threads']} threads, float32: 4 layers `gqa+moe`, width 128, 8 experts of width 128, top-2,",
             "16 x 256 tokens a step; blocks of both programs in turn (`tests/bench/cpu_speed.py`):", ""]
    rows = [(row["program"], f"{row['tok_s']:,.0f}", f"{row['tok_s_min']:,.0f} to {row['tok_s_max']:,.0f}") for row in data["rows"]]
    return [*lines, *table(("program", "tok/s", "of the blocks"), rows), "", f"scatterlm / PyTorch, median of the pairs: {data['ratio']:.2f}."]


def conditions(data):
    """One line: where and how."""
    return (f"{data['gpu']}, bf16, {data['date']}; ceilings measured in the same run: GEMM {data['ceilings']['gemm_tflops']:.0f} TFLOP/s, "
            f"copy {data['ceilings']['copy_tbps']:.2f} TB/s (`{data['command']}`):")


def shape(*letters):
    return lambda row: ",".join(str(row[letter]) for letter in letters)


def rows_of(columns):
    """Where and how, then a table of headings and cells, which are functions of a row."""
    return lambda data: [conditions(data), "", *table(columns, ([cell(row) for cell in columns.values()] for row in data["rows"]))]


def number(key, digits=0, unit=""):
    return lambda row: "" if row[key] is None else f"{row[key]:.{digits}f}{unit}"


def ms(other, name="fwdbwd", digits=2):
    return lambda row: f"{row[other][name]['ms']:.{digits}f}"


def pair(other):
    """TFLOP/s, forward and with backward."""
    return lambda row: f"{row[other]['fwd']['tflops']:.0f}, {row[other]['fwdbwd']['tflops']:.0f}"


SPEED = {"fwd TFLOP/s": number("fwd_tflops"), "fwd+bwd TFLOP/s": number("fwdbwd_tflops"), "of roofline": number("fwdbwd_roofline_percent", unit=" %")}
OTHERS = {"ATen `_grouped_mm`": pair("aten"), "dense": pair("dense")}
RESOURCES = {"saved MiB": number("saved_mib"), "peak MiB": number("peak_mib"), "host us": number("host_us")}
MOE, MOA = {"T,D,F,E,K": shape("T", "D", "F", "E", "K")}, {"B,S,D,E,K,heads": shape("B", "S", "D", "E", "K", "heads")}

moe_mlp = rows_of({**MOE, **SPEED, **OTHERS, **RESOURCES})
sweep = rows_of({**MOE, **SPEED, "ms": number("fwdbwd_ms", 2), "ATen `_grouped_mm` ms": ms("aten"), "dense ms": ms("dense"), "dense, all, ms": ms("dense_all")})
moa = rows_of({**MOA, **SPEED, **OTHERS, **RESOURCES, "with attention, fwd+bwd ms": ms("with_attention")})
parallel_linear = rows_of({**MOA, "rows": lambda row: row["rows"].replace("_", " "), **SPEED, **OTHERS})
router = rows_of({**MOE, "fwd ms": number("fwd_ms", 3), "fwd+bwd ms": number("fwdbwd_ms", 3), "of roofline": number("fwdbwd_roofline_percent", unit=" %"),
                  "LibTorch ms": ms("aten", digits=3), "experts ms": ms("experts"), "share": number("share_percent", 1, " %")})
token_rounding = rows_of({**MOE, "fwd ms": number("fwd_ms", 3), "fwd+bwd ms": number("fwdbwd_ms", 3), "rows": number("rows"), "rows given, ms": ms("given", digits=3),
                          "over given": number("over_given_percent", 1, " %"), "plain top-k ms": ms("topk", digits=3),
                          "balanced ms": ms("balanced", digits=3), "a row, over balanced": number("over_balanced_percent", 1, " %"),
                          "over top-k": number("over_topk_percent", 1, " %")})
inference = rows_of({**MOE, "experts": number("touched_experts"), "ms": number("fwd_ms", 3), "of reading": number("fwd_roofline_percent", unit=" %"),
                     "as a CUDA graph": lambda row: f"{row['graph']['fwd']['ms']:.3f}, {row['graph']['fwd']['roofline_percent']:.0f} %",
                     "ATen `_grouped_mm` ms": ms("aten", "fwd", 3), "peak MiB": number("peak_mib"), "host us": number("host_us")})


def by_shape(*columns):
    """The table of a bench of kernels alone: a line a shape, a column a kernel and cell(row)."""
    def lines(data):
        (heading, sizes_of), = MOE.items()
        shapes = {}
        for row in data["rows"]:
            shapes.setdefault(sizes_of(row), []).append(row)
        headings = [f"{row['kernel']} {title}" for row in next(iter(shapes.values())) for title, _ in columns]
        rows = ([sizes, *(cell(row) for row in kernels for _, cell in columns)] for sizes, kernels in shapes.items())
        return [conditions(data), "", *table([heading, *headings], rows)]
    return lines


products = by_shape(("ms, TFLOP/s (dense ms)", lambda row: f"{row['ms']:.3f}, {row['tflops']:.0f} ({row['dense_ms']:.3f})"))
sums = by_shape(("ms", number("ms", 3)), ("GB/s", number("gbps")), ("of copy", number("ceiling_percent", unit=" %")), ("ATen ms", number("aten_ms", 3)))
routing = by_shape(("ms", number("ms", 3)), ("ATen ms", number("aten_ms", 3)))


def comparison(data):
    """Figures down, models across."""
    first, second = data["rows"]

    def cell(row, key, digits, scale):
        spread = f" ({row[key + '_p10'] * scale:,.{digits}f} to {row[key + '_p90'] * scale:,.{digits}f})" if key + "_p10" in row else ""
        return f"{row[key] * scale:,.{digits}f}{spread}"

    def figure(label, key, digits, scale=1):
        cells = [cell(first, key, digits, scale), cell(second, key, digits, scale), cell(data["ratio"], key, 3, 1)]
        return label, *cells

    unequal = [f"{condition['name']} ({condition['first']} and {condition['second']})" for condition in data["conditions"] if not condition["equal"]]
    equal = [condition["name"] for condition in data["conditions"] if condition["equal"]]
    figures = [figure("tok/s", "tok_s", 0), figure("ms a step", "step_ms", 1), figure("MFU, %", "mfu", 1, 100),
               figure("peak memory, GiB", "peak_gib", 1), figure("parameters, M", "total_parameters", 1, 1e-6),
               figure("active parameters, M", "active_parameters", 1, 1e-6), figure("MFLOPs a token", "flops_per_token", 0, 1e-6)]
    return [conditions(data), "", *table(("", f"`{first['config']}`", f"`{second['config']}`", "second / first"), figures), "",
            f"Equal: {', '.join(equal)}. Not equal: {', '.join(unequal)}."]


def scaling(data):
    """Speed a GPU and what the collectives cost."""
    columns = {"config": lambda row: f"`{row['config']}`", "GPUs": number("gpus"), "ZeRO": lambda row: str(row.get("zero", 1)),
               "state": lambda row: row.get("state_dtype", "float32"), "gradients sent as": lambda row: row["reduce_dtype"],
               "tok/s a GPU": lambda row: f"{row['tok_s_per_gpu']:,.0f}", "of one GPU": lambda row: f"{row['efficiency']:.0%}".replace("%", " %"),
               "GiB a GPU": number("peak_gib", 1),
               "exposed communication, ms a step": lambda row: f"{row['comm']['exposed_ms']:.1f}" if "comm" in row else "-"}
    rows = ([cell(row) for cell in columns.values()] for row in data["rows"] if "efficiency" in row)
    return [f"{data['num_gpus']} x {data['gpu']}, {data['date']} (`{data['command']}`):", "", *table(columns, rows), "",
            *table(("besides", "measured"), scaling_facts(data))]


def scaling_facts(data):
    """What is no table of its own, part by part."""
    def of(part, **wanted):
        return [row for row in data["rows"] if row["part"] == part and all(row.get(key) == value for key, value in wanted.items())]

    for dtype in ("float32", "bfloat16"):
        if rows := of("losses", dtype=dtype):
            yield (f"losses of 50 steps in {dtype}, on {' '.join(str(n) for n in sorted({row['gpus'] for row in rows}))} GPUs with ZeRO 0, 1 and 2, resumed too",
                   f"{max(row['max_difference'] for row in rows):.1e} apart")
    for row in of("trace"):
        yield (f"one step of `{row['config']}` in the profiler", f"{row['wall_ms']:.0f} ms, GPU busy {row['busy_ms']:.0f}, collectives {row['collectives_ms']:.0f}, "
                                                                 f"of which {row['exposed_ms']:.1f} beside no computation")
    for size in dict.fromkeys(row["size"] for row in of("comm")):
        speeds = ", ".join(f"{row['collective']} {row['link_gbps']:.0f}" for row in of("comm", size=size))
        yield f"`doctor comm`, {size}, GB/s a link", speeds
    for row in of("olmoe"):
        if "comm" in row:
            yield (f"the same inside a step of `{row['config']}`, gradients in {row['reduce_dtype']}",
                   f"reduce_scatter {row['comm']['reduce_scatter_gbps']:.0f}, all_gather {row['comm']['all_gather_gbps']:.0f}")
    for row in of("alone"):
        yield f"a step of `{row['config']}` on each of the GPUs alone, all at once", ", ".join(f"{ms:.0f}" for ms in row["step_ms"]) + " ms"
    for row in of("memory"):
        if "zero" in row:
            yield f"`{row['config']}` on {row['gpus']} GPUs, ZeRO {row['zero']}", f"{row['peak_gib']:.1f} GiB a GPU"
        else:
            yield f"the same, {row['what']}", f"{row['measured_gib']:.2f} GiB"
    for row in of("failures"):
        after = f", with a timeout of {row['timeout_s']} s" if row["timeout_s"] else ""
        who = f"rank {row['rank']}" if "rank" in row else "a rank"
        yield f"{row['signal']} of {who}, {row['moment']}: all processes gone after", f"{row['seconds_to_all_gone']:.1f} s{after}"
    for row in of("resume"):
        yield (f"rank 0 killed after step {row['killed_after_step']} of {row['steps']}, the same command again, beside an undisturbed run",
               f"losses {'equal' if row['same_figures'] else 'differ'}, bytes of the last checkpoint {'equal' if row['same_bytes'] else 'differ'}")
    for row in of("async_save"):
        if "same_bytes" in row:
            yield f"`{row['config']}`, saved beside the training or not", f"bytes {'equal' if row['same_bytes'] else 'differ'}"
        else:
            stalls = ", ".join(f"{stall:.0f}" for stall in row["save_stall_ms"])
            yield f"training stood still for saves{' beside it' if row['async'] else ''}", f"{stalls} ms"
    for row in of("launchers"):
        if "max_difference" in row:
            yield f"losses under {row['launcher']} and the own launcher", f"{row['max_difference']:.1e} apart"
    for row in of("nodes"):
        if "max_difference" in row:
            yield f"halves of the GPUs as two machines, {row['started']}: losses of {row['steps']} steps beside those on one", f"{row['max_difference']:.1e} apart"
        elif "signal" in row:
            after = f", with a timeout of {row['timeout_s']} s" if row["timeout_s"] else ""
            yield f"the same, {row['signal']} of rank {row['rank']}: both launchers and all ranks gone after", f"{row['seconds_to_all_gone']:.1f} s{after}"
        else:
            yield (f"the same, `{row['config']}` through {row['through']}, gradients in {row['reduce_dtype']}",
                   f"{row['tok_s_per_gpu']:,.0f} tok/s a GPU, {row['comm']['exposed_ms']:.0f} ms a step exposed")
    if rows := of("start"):
        yield f"start of the process to the end of the first step of `{rows[0]['config']}`", " and ".join(f"{row['first_step_s']:.1f} s" for row in rows)


def training(data):
    """How far losses are from those of the CPU and of plain LibTorch."""
    rows = data["rows"]
    facts = [(f"float32, 50 steps at a learning rate of {row['lr']:g}, GPU beside CPU: largest difference of a loss", f"{row['max_difference_to_cpu']:.1e}")
             for row in rows if "max_difference_to_cpu" in row]
    for config in dict.fromkeys(row["config"] for row in rows if row["run"] == "kernels"):
        apart = {name: [row["mean_difference_to_float32"] for row in rows if (row["run"], row.get("config")) == (name, config)] for name in ("kernels", "plain")}
        facts.append((f"`{config}`, bfloat16, steps 100 to 200: mean difference to float32, these kernels and plain LibTorch, {len(apart['plain'])} seeds",
                      " and ".join(f"{statistics.fmean(of_seeds):.3f} ({min(of_seeds):.3f} to {max(of_seeds):.3f})" for of_seeds in apart.values())))
    for row in rows:
        if "difference_to_plain" in row:
            facts.append((f"the quickstart with token rounding, {row['steps']} steps: last validation loss above that of plain top-k", f"{row['difference_to_plain']:.3f}"))
    facts += [("what does not agree", problem) for problem in data.get("problems", [])]
    return [f"{data['gpu']}, {data['date']} (`{data['command']}`; the file has every loss):", "", *table(("runs", "measured"), facts)]


TABLES = {"cpu_speed": cpu_speed, "moe_mlp_h200": moe_mlp, "grouped_gemm_h200": products, "gather_sum_h200": sums, "routing_h200": routing,
          "granularity_h200": sweep, "sparsity_h200": sweep, "moa_h200": moa, "parallel_linear_h200": parallel_linear,
          "router_h200": router, "token_rounding_h200": token_rounding, "inference_h200": inference, "portable_h200": moe_mlp, "compare_h200": comparison,
          "scale_h200x2": scaling, "scale_h200x4": scaling, "scale_h200x8": scaling, "train_h200": training}


@functools.cache
def current_hash(*sources):
    """What a binary built now would call these sources (cmake/source_hash.cmake)."""
    index = subprocess.run(["git", "ls-files", "-s", "--", *sources], cwd=ROOT, capture_output=True, check=True).stdout
    return hashlib.sha256(index).hexdigest()[:16]


def captioned(table, data):
    """The table of a file, which says so if it was measured with other sources than the present ones."""
    text = "\n".join(table(data))
    return text if data["source_hash"] == current_hash(*data["sources"]) else f"From earlier sources (`{data['source_hash']}`). {text}"


def filled(text):
    for name, table in TABLES.items():
        result = RESULTS / f"{name}.json"
        body = captioned(table, json.loads(result.read_text())) if result.exists() else "Not measured yet."
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

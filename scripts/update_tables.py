"""Writes the tables of README.md and docs/*.md from the evidence files: python scripts/update_tables.py [--check]

A table stands between <!-- NAME --> and <!-- /NAME -->. --check changes nothing and exits with 1 if a page is out of date.
"""
import functools
import hashlib
import pathlib
import re
import statistics
import subprocess
import sys

from bench_tables import (MOE, adamw, conditions, decode, inference, moa, moe_mlp, muon, number, parallel_linear, products, read_result, router, routing, shape, streamed,
                          sums, sweep, table, token_rounding, uneven)

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def cpu_speed(data):
    lines = [f"Training on {data['cores']} cores of {data['cpu']}, float32: 4 layers `gqa+moe`, width 128, 8 experts of width 128, top-2, 16 x 256 tokens",
             f"per step, alone and beside other processes that keep a core busy each; the programs run in alternating blocks (`{data['command']}`):", ""]
    rows = [(str(row["busy"]), row["program"], row["threads"], f"{row['tok_s']:,.0f}", f"{row['tok_s_min']:,.0f} to {row['tok_s_max']:,.0f}") for row in data["rows"]]
    ratios = ", ".join(f"{row['ratio']:.2f} beside {row['busy']}" for row in data["ratios"])
    return [*lines, *table(("busy processes", "program", "threads", "tok/s, median", "range over blocks"), rows), "",
            f"scatterlm / PyTorch with the same threads, median over pairs of neighbouring blocks: {ratios}."]


def tokenizer_cpu(data):
    """Speeds of one text each, side by side."""
    packages = ", ".join(f"{name} {version}" for name, version in data["versions"].items())
    lines = [f"Tokenizing on {data['cpu']}, {data['threads']} threads, {data['date']}, MB/s, median and range of rounds in which the programs take turns, with a vocabulary of",
             f"{data['vocabulary']} tokens that `tokenizer train` learned in {data['learn_s']:.1f} s and the split pattern of Llama 3 ({packages}; `{data['command']}`):", ""]
    rows = [(row["text"], row["program"], f"{row['mb_s']:.1f} ({row['mb_s_min']:.1f} to {row['mb_s_max']:.1f})", "yes" if row["equal_ids"] else "NO") for row in data["rows"]]
    return [*lines, *table(("text", "program", "MB/s", "ids equal to scatterlm's"), rows)]


def hf_families(data):
    """Cases in rows, versions of transformers in columns; then sizes."""
    versions = list(dict.fromkeys(row["transformers"] for row in data["logits"]))
    by_case = {}
    for row in data["logits"]:
        by_case.setdefault((row["case"], row["family"]), {})[row["transformers"]] = row
    same = lambda row: "yes" if row["equal_bytes"] and row["equal_when_loaded"] else "NO"
    rows = [(case, family, *(f"{found[version]['difference']:.1e}, {same(found[version])}" for version in versions)) for (case, family), found in by_case.items()]
    lines = [f"Tiny random models on {data['cpu']}, float32, {data['date']} (`{data['command']}`): the largest difference of a logit from that of transformers (logits reach",
             f"{min(row['largest_logit'] for row in data['logits']):.0f} to {max(row['largest_logit'] for row in data['logits']):.0f}), and whether import and export give equal bytes of every tensor and equal logits when transformers loads them:", ""]
    lines += table(("case", "family", *(f"transformers {version}" for version in versions)), rows)
    rows = [(row["model"], f"{row['gib']:.1f}", *(text for way in ("import", "export") for text in (f"{row[way + '_s']:.1f}", f"{row[way + '_mib']:.0f}")), "yes" if row["equal_bytes"] else "NO")
            for row in data["sizes"]]
    return [*lines, "", "Random bfloat16 models of larger shapes:", "", *table(("model", "GiB", "import s", "peak MiB", "export s", "peak MiB", "bytes equal"), rows)]


def soak(data):
    first, last = zip(*(data["first_and_last_fifth"][key] for key in ("rss_mib", "open_files", "threads", "fastest_tenth_step_ms")))
    rows = [(f"{part} fifth", f"{memory:.1f}", str(files), str(threads), f"{step:.2f}")
            for part, (memory, files, threads, step) in (("first", first), ("last", last))]
    return [f"{data['steps']:,} steps of a tiny model in {data['seconds']:.0f} s on {data['cpu']}, {data['date']} (`{data['command']}`); what grows: {', '.join(data['grown']) or 'nothing'}.", "",
            *table(("after warm-up", "resident MiB", "open files", "threads", "ms of the fastest tenth of the steps"), rows)]


def searched(data):
    """Runs of scripts/sweep, the lowest loss first."""
    rows = []
    for row in sorted(data["rows"], key=lambda row: row.get("val_loss", float("inf"))):
        config, *keys = row["name"].split()
        changed = ", ".join(key.removeprefix("model.").removeprefix("optim.") for key in keys)
        ended = ("failed", "", "", "", "", "") if row["exit_code"] != 0 else (
            f"{row['tokens'] / 1e6:.0f}M", f"{row['seconds']:.0f}", f"{row['val_loss']:.3f}", f"{row['val_bpb']:.4f}", f"{row['tok_s'] / 1000:.0f}k",
            f"{row['load_max_mean']:.1f}")
        rows.append((f"`{config}`", f"`{changed}`", *ended))
    return [f"{len(rows)} runs (`{data['command']}`):", "",
            *table(("configuration", "changed", "tokens", "seconds", "validation loss", "bits per byte", "tok/s", "largest load"), rows)]


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
    figures = [figure("tok/s", "tok_s", 0), figure("ms per step", "step_ms", 1), figure("MFU, %", "mfu", 1, 100),
               figure("peak memory, GiB", "peak_gib", 1), figure("parameters, M", "total_parameters", 1, 1e-6),
               figure("active parameters, M", "active_parameters", 1, 1e-6), figure("MFLOPs per token", "flops_per_token", 0, 1e-6)]
    return [conditions(data), "", *table(("", f"`{first['config']}`", f"`{second['config']}`", "second / first"), figures), "",
            f"Equal in both: {', '.join(equal)}. Different: {', '.join(unequal)}."]


def learned(data):
    """Losses of `scatterlm compare`; figures down, models across."""
    first = data["rows"][0]["name"]
    share = lambda key: lambda row: "not reached" if row[key] is None else f"{row[key]:.3f}"
    spread = lambda row: "" if row["val_loss_min"] == row["val_loss_max"] else f" ({row['val_loss_min']:.4f} to {row['val_loss_max']:.4f})"
    time = "seconds in training steps" if "trained_tok_s" in data["rows"][0] else "seconds at the speed before training"
    figures = {"tokens": lambda row: f"{row['tokens'] / 1e6:.0f}M", time: lambda row: f"{row['seconds']:,.0f}",
               "tok/s before training": lambda row: f"{row['tok_s']:,.0f}", "validation loss": lambda row: f"{row['val_loss']:.4f}{spread(row)}",
               "bits per byte": lambda row: f"{row['val_bpb']:.4f}", f"tokens to the loss of `{first}` / its tokens": share("tokens_share"),
               "time to that loss / its time": share("seconds_share"), "largest load / mean load": lambda row: "" if row["load_max_mean"] is None else f"{row['load_max_mean']:.1f}",
               "parameters, M": lambda row: f"{row['total_parameters'] / 1e6:.0f}", "active parameters, M": lambda row: f"{row['active_parameters'] / 1e6:.0f}"}
    return [f"{data['gpu']}, {data['date']} (`{data['command']}`):", "",
            *table(("", *(f"`{row['name']}`" for row in data["rows"])), [(name, *map(figure, data["rows"])) for name, figure in figures.items()])]


def scaling(data):
    """Speed per GPU and what the collectives cost."""
    columns = {"config": lambda row: f"`{row['config']}`", "GPUs": number("gpus"), "ZeRO": lambda row: str(row.get("zero", 1)),
               "optimiser state": lambda row: row.get("state_dtype", "float32"), "gradients reduced in": lambda row: row["reduce_dtype"],
               "tok/s per GPU": lambda row: f"{row['tok_s_per_gpu']:,.0f}", "of one GPU": lambda row: f"{row['efficiency']:.0%}".replace("%", " %"),
               "GiB per GPU": number("peak_gib", 1),
               "exposed communication, ms per step": lambda row: f"{row['comm']['exposed_ms']:.1f}" if "comm" in row else "-"}
    rows = ([cell(row) for cell in columns.values()] for row in data["rows"] if "efficiency" in row)
    return [f"{data['num_gpus']} x {data['gpu']}, {data['date']} (`{data['command']}`):", "", *table(columns, rows), "",
            *table(("also measured", "result"), scaling_facts(data))]


MOMENTS = {"start": "at start-up", "mid-run": "during training", "mid-run, parts of 4 MiB and more": "during training, shards of 4 MiB and more",
           "while saving": "during a save", "while saving beside": "during an asynchronous save"}


STARTED = {"by hand": "ranks started without a launcher", "by hand, zero 1": "ranks started without a launcher, ZeRO 1",
           "by hand, zero 2": "ranks started without a launcher, ZeRO 2", "launch, zero 1": "`scatterlm launch`, ZeRO 1",
           "launch, zero 2": "`scatterlm launch`, ZeRO 2"}


def scaling_facts(data):
    """Label and figure of every other part of the file."""
    def of(part, **wanted):
        return [row for row in data["rows"] if row["part"] == part and all(row.get(key) == value for key, value in wanted.items())]

    for dtype in ("float32", "bfloat16"):
        if rows := of("losses", dtype=dtype):
            yield (f"losses of 50 steps in {dtype}, on {', '.join(str(n) for n in sorted({row['gpus'] for row in rows}))} GPUs with ZeRO 0, 1 and 2 and after resuming: largest difference",
                   f"{max(row['max_difference'] for row in rows):.1e}")
    for row in of("trace"):
        yield (f"one step of `{row['config']}` in the profiler", f"{row['wall_ms']:.0f} ms, GPU busy {row['busy_ms']:.0f}, collectives {row['collectives_ms']:.0f}, "
                                                                 f"of which {row['exposed_ms']:.1f} not overlapped by computation")
    for size in dict.fromkeys(row["size"] for row in of("comm")):
        speeds = ", ".join(f"{row['collective']} {row['link_gbps']:.0f}" for row in of("comm", size=size))
        yield f"`doctor comm`, {size}, GB/s per link", speeds
    for row in of("olmoe"):
        if "comm" in row:
            yield (f"the same inside a step of `{row['config']}`, gradients in {row['reduce_dtype']}",
                   f"reduce_scatter {row['comm']['reduce_scatter_gbps']:.0f}, all_gather {row['comm']['all_gather_gbps']:.0f}")
    for row in of("alone"):
        yield f"a step of `{row['config']}` on each GPU without communication, all GPUs at the same time", ", ".join(f"{ms:.0f}" for ms in row["step_ms"]) + " ms"
    for row in of("memory"):
        if "zero" in row:
            yield f"`{row['config']}` on {row['gpus']} GPUs, ZeRO {row['zero']}", f"{row['peak_gib']:.1f} GiB per GPU"
        else:
            yield f"the same, {row['what'].replace('zero', 'ZeRO')}", f"{row['measured_gib']:.2f} GiB"
    for row in of("failures"):
        after = f", with a timeout of {row['timeout_s']} s" if row["timeout_s"] else ""
        who = f"rank {row['rank']}" if "rank" in row else "a rank"
        yield f"{row['signal']} of {who} {MOMENTS[row['moment']]}: all processes have ended after", f"{row['seconds_to_all_gone']:.1f} s{after}"
    for row in of("resume"):
        yield (f"rank 0 killed after step {row['killed_after_step']} of {row['steps']}, then resumed, compared with an uninterrupted run",
               f"losses {'equal' if row['same_figures'] else 'differ'}, bytes of the last checkpoint {'equal' if row['same_bytes'] else 'differ'}")
    for row in of("async_save"):
        if "same_bytes" in row:
            yield f"`{row['config']}`, checkpoints saved asynchronously or not", f"bytes {'equal' if row['same_bytes'] else 'differ'}"
        else:
            stalls = ", ".join(f"{stall:.0f}" for stall in row["save_stall_ms"])
            yield f"training waited for each {'asynchronous' if row['async'] else 'synchronous'} save", f"{stalls} ms"
    for row in of("launchers"):
        if "max_difference" in row:
            yield f"losses under {row['launcher']} and `scatterlm launch`: largest difference", f"{row['max_difference']:.1e}"
    for row in of("nodes"):
        if "max_difference" in row:
            yield (f"the GPUs as two machines ({STARTED.get(row['started'], row['started'])}): losses of {row['steps']} steps, largest difference from one machine",
                   f"{row['max_difference']:.1e}")
        elif "signal" in row:
            after = f", with a timeout of {row['timeout_s']} s" if row["timeout_s"] else ""
            yield f"the same, {row['signal']} of rank {row['rank']}: all processes have ended after", f"{row['seconds_to_all_gone']:.1f} s{after}"
        else:
            yield (f"the same, `{row['config']}` through {row['through']}, gradients in {row['reduce_dtype']}",
                   f"{row['tok_s_per_gpu']:,.0f} tok/s per GPU, {row['comm']['exposed_ms']:.0f} ms of each step exposed")
    if rows := of("start"):
        yield f"start of the process to the end of the first step of `{rows[0]['config']}`", " and ".join(f"{row['first_step_s']:.1f} s" for row in rows)


def training(data):
    """How far losses are from those of the CPU and of plain LibTorch."""
    rows = data["rows"]
    facts = [(f"float32, 50 steps at a learning rate of {row['lr']:g}, GPU against CPU: largest difference of a loss", f"{row['max_difference_to_cpu']:.1e}")
             for row in rows if "max_difference_to_cpu" in row]
    for config in dict.fromkeys(row["config"] for row in rows if row["run"] == "kernels"):
        apart = {name: [row["mean_difference_to_float32"] for row in rows if (row["run"], row.get("config")) == (name, config)] for name in ("kernels", "plain")}
        facts.append((f"`{config}`, bfloat16, steps 100 to 200: mean difference to float32, these kernels and plain LibTorch, {len(apart['plain'])} seeds",
                      " and ".join(f"{statistics.fmean(of_seeds):.3f} ({min(of_seeds):.3f} to {max(of_seeds):.3f})" for of_seeds in apart.values())))
    for row in rows:
        if "difference_to_plain" in row:
            facts.append((f"the quickstart with token rounding, {row['steps']} steps: last validation loss minus that of plain top-k", f"{row['difference_to_plain']:.3f}"))
    facts += [("disagreement", problem) for problem in data.get("problems", [])]
    return [f"{data['gpu']}, {data['date']} (`{data['command']}`; the file has every loss):", "", *table(("runs", "result"), facts)]


def recipe(data):
    """Last validation losses by model and learning rate."""
    def tables(device, title):
        rows = [row for row in data["rows"] if row["device"] == device]
        rates = sorted({row["lr"] for row in rows})
        models = dict.fromkeys((row["config"], *row["sets"]) for row in rows)
        losses = {(row["config"], *row["sets"], row["lr"]): f"{row['val_loss']:.3f}" for row in rows}
        lines = ([f"`{config}`" + (f", `{' '.join(sets)}`" if sets else ""), *(losses.get((config, *sets, rate), "") for rate in rates)] for config, *sets in models)
        return [title, "", *table(["last validation loss, nats per token", *(f"lr {rate:g}" for rate in rates)], lines)]

    gpu, cpu = (next((row for row in data["rows"] if row["device"] == device), None) for device in ("cuda", "cpu"))
    lines = [*tables("cuda", f"{data['gpu']}, bf16, {data['date']}, {gpu['steps']} steps, {gpu['tokens'] / 1e6:.1f}M tokens (`{data['command']}`):")] if gpu else []
    return [*lines, *(["", *tables("cpu", f"On {data['cpu_threads']} threads of its CPU, {cpu['tokens'] / 1e6:.1f}M tokens:")] if cpu else [])]


SHAPE_NAMES = {"40960,768,256,128,8": "1.4B-fine", "24576,1536,256,128,8": "7B-fine", "24576,1536,512,64,4": "7B-mid", "24576,1536,1024,32,2": "7B-coarse",
               "32768,2048,768,128,8": "qwen3-30B-A3B", "32768,2048,1024,64,8": "olmoe-7B", "32768,4096,256,256,16": "30B-fine",
               "32768,4096,1024,128,8": "sonic-default"}  # lib/bench/moe_shape.cpp
IMPLEMENTATIONS = {"scatterlm": "scatterlm", "sonicmoe": "SonicMoE", "scattermoe": "ScatterMoE", "aten": "ATen `_grouped_mm`", "dense": "dense MLP",
                   "transformers_sonicmoe": "transformers, SonicMoE", "transformers_scattermoe": "transformers, ScatterMoE",
                   "transformers_grouped_mm": "transformers, `grouped_mm`", "nanogpt": "nanoGPT"}
CONFIG_NAMES = {"olmoe_1b_7b": "OLMoE-1B-7B", "dense_124m": "dense 124M", "moe_124m": "MoE 124M active, 521M in all"}


def step(data):
    """Whole steps, then the time that each class of kernels takes in them."""
    lines = [f"{data['gpu']}, {data['date']} (`{data['command']}`; the file lists every kernel):", ""]
    runs = data["rows"]
    rows = [(f"`{row['name'].split(',')[0]}`" + row["name"].removeprefix(row["config"]), f"{row['tok_s']:,.0f}", f"{row['step_ms']:.1f}", f"{100 * row['mfu']:.1f}",
             f"{row['peak_gib']:.1f}") for row in runs]
    lines += [*table(("run", "tok/s", "ms per step", "MFU, %", "peak GiB"), rows), "", "Share of the time of kernels in one traced step, in percent:", ""]
    sums = []
    for row in runs:
        by_class = {}
        for kind, _, _, ms in row["kernels"]:
            by_class[kind] = by_class.get(kind, 0) + ms
        sums.append(by_class)
    kinds = sorted({kind for by_class in sums for kind in by_class}, key=lambda kind: -sum(by_class.get(kind, 0) / sum(by_class.values()) for by_class in sums))
    cells = [[kind, *(f"{100 * by_class[kind] / sum(by_class.values()):.1f}" if kind in by_class else "" for by_class in sums)] for kind in kinds]
    totals = ["all kernels, ms of ms", *(f"{sum(by_class.values()):.1f} of {row['traced_ms']:.1f}" for by_class, row in zip(sums, runs))]
    return [*lines, *table(("class", *(row["name"] for row in runs)), [*cells, totals])]


def fuzzed(data):
    """Executions of each target, what they reached and what they found."""
    rows = [(f"`{row['target']}`", f"{row['runs']:,}", row["coverage"], str(len(row["inputs"])) if row["inputs"] or not row["failed"] else "failed", f"`{row['commit']}`")
            for row in sorted(data["rows"], key=lambda row: row["target"])]
    return [f"Inputs of at most {data['longest_input_bytes']} bytes:", "", *table(("target", "executions", "edges reached", "findings", "commit"), rows)]


def plans(data):
    """Planned and measured memory."""
    columns = {"configuration": lambda row: f"`{row['config']}`", "changed": lambda row: ", ".join(f"`{key}`" for key in row["sets"]), "GPUs": number("gpus"),
               "ZeRO": number("zero"), "planned GiB": number("planned_gib", 1), "measured GiB": number("measured_gib", 1),
               "measured / planned": lambda row: f"{row['measured_gib'] / row['planned_gib']:.3f}"}
    return [f"{data['num_gpus']} x {data['gpu']}, {data['date']} (`{data['command']}`):", "",
            *table(columns, ([cell(row) for cell in columns.values()] for row in data["rows"]))]


def headline_layers(peers, moe_mlp):
    """TFLOP/s of MoE layers by shape and implementation: of one session with the peers, or else of ours and ATen's alone."""
    if peers and any("shape" in row for row in peers["rows"]):
        source, speeds = peers, {(row["impl"], row["shape"]): (row["fwd_tflops"], row["fwdbwd_tflops"]) for row in peers["rows"] if "shape" in row}
    else:
        source, speeds = moe_mlp, {}
        for row in moe_mlp["rows"]:
            (_, sizes_of), = MOE.items()
            speeds["scatterlm", sizes_of(row)] = row["fwd_tflops"], row["fwdbwd_tflops"]
            for other in ("aten", "dense"):
                speeds[other, sizes_of(row)] = tuple(row[other][name]["tflops"] for name in ("fwd", "fwdbwd"))
    columns = [impl for impl in IMPLEMENTATIONS if any(key[0] == impl for key in speeds)]
    rows = []
    for sizes in dict.fromkeys(key[1] for key in speeds):
        cells = (speeds.get((impl, sizes)) for impl in columns)
        rows.append([SHAPE_NAMES.get(sizes, ""), sizes, *(f"{cell[0]:.0f} / {cell[1]:.0f}" if cell else "" for cell in cells)])
    caption = (f"TFLOP/s of one MoE MLP layer, forward / forward and backward, {source['gpu']}, bf16, {source['date']}; in the same run a large matrix product "
               f"reached {source['ceilings']['gemm_tflops']:.0f}:")
    return [caption, "", *table(("shape", "T,D,F,E,K", *(IMPLEMENTATIONS[impl] for impl in columns)), rows)]


# Runs of step_h200.json in README's table, and the sequences of a micro-batch.
HEADLINE_RUNS = {"dense_124m, 32 sequences": 32, "dense_124m, 64 sequences": 64, "moe_124m": 32, "olmoe_1b_7b": 4}


def headline_steps(peers, steps):
    """Tokens per second of whole training steps on one GPU, by model and implementation; ours of step_h200.json."""
    speeds = {}
    for row in (row for row in (peers or {"rows": []})["rows"] if "tok_s" in row):
        speeds.setdefault((row["config"], row["micro_batch"]), {})[row["impl"]] = row["tok_s"], row["peak_gib"]
    for row in (row for row in (steps or {"rows": []})["rows"] if row["name"] in HEADLINE_RUNS):
        speeds.setdefault((row["config"], HEADLINE_RUNS[row["name"]]), {})["scatterlm"] = row["tok_s"], row["peak_gib"]
    columns = [impl for impl in IMPLEMENTATIONS if any(impl in cells for cells in speeds.values())]
    rows = [[CONFIG_NAMES.get(config, config), str(batch), *(f"{cells[impl][0]:,.0f} ({cells[impl][1]:.1f})" if impl in cells else "" for impl in columns)]
            for (config, batch), cells in speeds.items()]
    return ["Whole training steps on one of these GPUs, tokens per second (peak GiB):", "",
            *table(["model", "micro-batch", *(IMPLEMENTATIONS[impl] for impl in columns)], rows)] if rows else []


def headline(moe_mlp, peers, steps):
    """README's table; each argument may be None, and what it would show is left out then."""
    return [*headline_layers(peers, moe_mlp), "", *headline_steps(peers, steps)] if moe_mlp or peers else ["Not measured yet."]


HEADLINE_FILES = ("moe_mlp_h200", "peers_h200", "step_h200")
TABLES = {"cpu_speed": cpu_speed, "tokenizer_cpu": tokenizer_cpu, "hf_families": hf_families, "moe_mlp_h200": moe_mlp, "grouped_gemm_h200": products, "gather_sum_h200": sums, "routing_h200": routing,
          "granularity_h200": sweep, "sparsity_h200": sweep, "moa_h200": moa, "parallel_linear_h200": parallel_linear,
          "router_h200": router, "token_rounding_h200": token_rounding, "inference_h200": inference, "portable_h200": moe_mlp, "compare_h200": comparison, "moe_against_dense_h200": learned, "plan_h200x2": plans,
          "scale_h200x2": scaling, "scale_h200x4": scaling, "scale_h200x8": scaling, "train_h200": training,
          "train_recipe_h200": recipe, "step_h200": step, "moe_mlp_skewed_h200": uneven, "decode_h200": decode, "soak_cpu": soak, "fuzz": fuzzed,
          "muon_h200": muon, "adamw_h200": adamw, "cross_entropy_h200": streamed({"T,V": shape("T", "V")}, "aten"), "rms_norm_h200": streamed({"T,D": shape("T", "D")}, "aten"),
          "qk_norm_rope_h200": streamed({"B,S,H,Hkv,P": shape("B", "S", "H", "Hkv", "P"), "norm": lambda row: row["norm"]}, "single"),
          **{f"recipe_search_{number}_h200": searched for number in (1, 2, 3, 4, 5)}}


@functools.cache
def current_hash(*sources):
    """What a binary built now would call these sources (cmake/source_hash.cmake)."""
    index = subprocess.run(["git", "ls-files", "-s", "--", *sources], cwd=ROOT, capture_output=True, check=True).stdout
    return hashlib.sha256(index).hexdigest()[:16]


def is_current(data):
    return data["source_hash"] == current_hash(*data["sources"])


def captioned(table, data):
    """The table of a file, which says so if it was measured with other sources than the present ones."""
    text = "\n".join(table(data))
    return text if "source_hash" not in data or is_current(data) else f"From earlier sources (`{data['source_hash']}`). {text}"


def headline_text():
    results = [read_result(name) for name in HEADLINE_FILES]
    stale = [f"`{name}.json`" for name, data in zip(HEADLINE_FILES, results) if data and not is_current(data)]
    return "\n".join(headline(*results)) + (f"\n\nMeasured with an earlier version of the sources ([meaning](docs/benchmarks.md)): {', '.join(stale)}." if stale else "")


def filled(text):
    """A page with the present tables between its markers."""
    bodies = {"headline": headline_text()} if "<!-- headline -->" in text else {}
    for name, table in TABLES.items():
        if f"<!-- {name} -->" in text:
            data = read_result(name)
            bodies[name] = captioned(table, data) if data else "Not measured yet."
    for name, body in bodies.items():
        text = re.sub(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", lambda m: f"{m[1]}{body}\n{m[2]}", text, flags=re.DOTALL)
    return text


def main():
    outdated = [page for page in PAGES if filled(page.read_text()) != page.read_text()]
    if "--check" in sys.argv:
        names = ", ".join(str(page.relative_to(ROOT)) for page in outdated)
        return f"out of date: {names}; run python scripts/update_tables.py" if outdated else 0
    for page in outdated:
        page.write_text(filled(page.read_text()))


if __name__ == "__main__":
    sys.exit(main())

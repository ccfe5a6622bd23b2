"""Tables of the program's own benches (`scatterlm bench`), from their evidence files; for update_tables.py."""
import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "tests/bench/results"


def read_result(name):
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def table(headings, rows):
    def line(cells):
        return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)

    return [line(headings), "|---" * len(headings) + "|", *map(line, rows)]


def conditions(data):
    """One line: where and how."""
    return (f"{data['gpu']}, bf16, {data['date']}; in the same run a large matrix product reached {data['ceilings']['gemm_tflops']:.0f} TFLOP/s, "
            f"a copy {data['ceilings']['copy_tbps']:.2f} TB/s (`{data['command']}`):")


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
sweep = rows_of({**MOE, **SPEED, "ms": number("fwdbwd_ms", 2), "ATen `_grouped_mm` ms": ms("aten"), "dense ms": ms("dense"), "dense of all experts, ms": ms("dense_all")})
moa = rows_of({**MOA, **SPEED, **OTHERS, **RESOURCES, "with attention, fwd+bwd ms": ms("with_attention")})
parallel_linear = rows_of({**MOA, "rows": lambda row: row["rows"].replace("_", " "), **SPEED, **OTHERS})
router = rows_of({**MOE, "fwd ms": number("fwd_ms", 3), "fwd+bwd ms": number("fwdbwd_ms", 3), "of roofline": number("fwdbwd_roofline_percent", unit=" %"),
                  "LibTorch ms": ms("aten", digits=3), "experts ms": ms("experts"), "share": number("share_percent", 1, " %")})
token_rounding = rows_of({**MOE, "fwd ms": number("fwd_ms", 3), "fwd+bwd ms": number("fwdbwd_ms", 3), "rows": number("rows"), "rows given, ms": ms("given", digits=3),
                          "vs. rows given": number("over_given_percent", 1, " %"), "plain top-k ms": ms("topk", digits=3),
                          "balanced ms": ms("balanced", digits=3), "time per row, vs. balanced": number("over_balanced_percent", 1, " %"),
                          "vs. top-k": number("over_topk_percent", 1, " %")})
inference = rows_of({**MOE, "experts": number("touched_experts"), "ms": number("fwd_ms", 3), "of reading the weights": number("fwd_roofline_percent", unit=" %"),
                     "as a CUDA graph": lambda row: f"{row['graph']['fwd']['ms']:.3f}, {row['graph']['fwd']['roofline_percent']:.0f} %",
                     "ATen `_grouped_mm` ms": ms("aten", "fwd", 3), "peak MiB": number("peak_mib"), "host us": number("host_us")})


def by_shape(*columns):
    """The table of a bench of kernels alone: one line per shape, one column per kernel and cell(row)."""
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
sums = by_shape(("ms", number("ms", 3)), ("GB/s", number("gbps")), ("of copy bandwidth", number("ceiling_percent", unit=" %")), ("ATen ms", number("aten_ms", 3)))
routing = by_shape(("ms", number("ms", 3)), ("ATen ms", number("aten_ms", 3)))


def uneven(data):
    """Layers whose experts have uneven loads beside the same with random ones, which the other file of that run holds."""
    even = {MOE["T,D,F,E,K"](row): row for row in read_result("moe_mlp_random_h200")["rows"]}
    pairs = [(sizes, even[sizes], row) for row in data["rows"] for sizes in [MOE["T,D,F,E,K"](row)]]
    rows = [(sizes, f"{random['fwdbwd_tflops']:.0f}", f"{row['fwdbwd_tflops']:.0f}", f"{100 * row['fwdbwd_tflops'] / random['fwdbwd_tflops']:.1f} %",
             *(f"{random['kernels'][kernel]['ms']:.3f}, {row['kernels'][kernel]['ms']:.3f}" for kernel in ("dw1", "dw2"))) for sizes, random, row in pairs]
    return [conditions(data), "", *table(("T,D,F,E,K", "random, TFLOP/s", f"{data['rows'][0]['routing']}", "of random", "dW1 ms: random, uneven", "dW2 ms"), rows)]


def speed(name):
    """Cell: time of a pass, and its share of what the machine reaches."""
    return lambda row: f"{row[name + '_ms']:.3f}, {row[name + '_ceiling_percent']:.0f} %"


def streamed(sizes, other):
    """Kernels that only pass over their operands, beside LibTorch's operations."""
    return rows_of({**sizes, "fwd ms, of a copy's speed": speed("fwd"), "fwd+bwd ms": speed("fwdbwd"),
                    "LibTorch fwd+bwd ms": lambda row: f"{row[other]['fwdbwd']['ms']:.3f}, {row[other]['fwdbwd']['ceiling_percent']:.0f} %"})


muon = rows_of({"D,F,E": shape("D", "F", "E"), "momentum ms, of a copy's speed": speed("momentum"), "momentum by LibTorch, ms": ms("aten", "momentum", 3),
                "apply ms, of a copy's speed": speed("apply"), "apply by LibTorch, ms": ms("aten", "apply", 3),
                "Newton-Schulz ms, of a product's speed": speed("newton_schulz")})
adamw = rows_of({"D,F,E": shape("D", "F", "E"), **{
    heading: cell for title, name in (("float32", "fp32_state"), ("bfloat16 state", "bf16_state"), ("bfloat16 gradients too", "bf16"), ("gradient norm", "norm"))
    for heading, cell in ((f"{title}: ms, of a copy's speed", speed(name)), (f"{title}: LibTorch, ms", ms("aten", name, 3)))}})
decode = rows_of({"configuration": lambda row: f"`{row['config']}`", "sequences": number("batch"), "prompt": number("prompt"), "prompt ms": number("prefill_ms", 2),
                  "ms per token": number("token_ms", 2), "tok/s": number("tok_s"), "reading the weights, ms": number("read_ms", 2), "of it": number("read_percent", unit=" %")})

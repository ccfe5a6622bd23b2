"""The tables of README.md and docs/ say what the evidence files say."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import bench_tables  # noqa: E402
import update_tables  # noqa: E402


def test_the_tables_are_those_of_the_evidence():
    result = subprocess.run([sys.executable, ROOT / "scripts/update_tables.py", "--check"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_tables_of_kernel_benches():
    data = {"gpu": "NVIDIA H200", "date": "2026-11-20", "ceilings": {"gemm_tflops": 722.6, "copy_tbps": 4.267}, "command": "COMMAND"}
    sizes = dict(zip("TDFEK", (24576, 1536, 256, 128, 8)))
    speed = {"fwd": {"tflops": 92.4}, "fwdbwd": {"tflops": 141.6}}
    op = {**sizes, "fwd_tflops": 400.2, "fwdbwd_tflops": 500.4, "fwdbwd_roofline_percent": 80.7, "aten": speed, "dense": speed,
          "saved_mib": 266.2, "peak_mib": 1100.0, "host_us": 80.4}
    lines = update_tables.TABLES["moe_mlp_h200"]({**data, "rows": [op]})
    assert lines[0].startswith("NVIDIA H200, bf16, 2026-11-20; ") and "product reached 723 TFLOP/s, a copy 4.27 TB/s (`COMMAND`)" in lines[0]
    assert lines[-1] == "| 24576,1536,256,128,8 | 400 | 500 | 81 % | 92, 142 | 92, 142 | 266 | 1100 | 80 |"

    assert update_tables.TABLES["portable_h200"] == update_tables.TABLES["moe_mlp_h200"]

    kernel = {**sizes, "kernel": "o", "ms": 0.1684, "gbps": 3771.2, "ceiling_percent": 88.4, "roofline_percent": 88.4, "aten_ms": 0.52}
    other = {**kernel, "kernel": "dx", "ms": 0.5}
    lines = update_tables.TABLES["gather_sum_h200"]({**data, "rows": [kernel, other, {**kernel, "T": 8}, {**other, "T": 8}]})
    assert lines[2].startswith("| T,D,F,E,K | o ms | o GB/s | o of copy bandwidth | o ATen ms | dx ms |") and lines[2].count("|") == lines[3].count("|")
    assert lines[4:] == ["| 24576,1536,256,128,8 | 0.168 | 3771 | 88 % | 0.520 | 0.500 | 3771 | 88 % | 0.520 |",
                         "| 8,1536,256,128,8 | 0.168 | 3771 | 88 % | 0.520 | 0.500 | 3771 | 88 % | 0.520 |"]
    kernel = {**kernel, "kernel": "up", "tflops": 560.2, "dense_ms": 0.5}
    assert update_tables.TABLES["grouped_gemm_h200"]({**data, "rows": [kernel]})[-1] == "| 24576,1536,256,128,8 | 0.168, 560 (0.500) |"


def test_table_of_recipes():
    row = {"config": "moe_124m", "lr": 3e-4, "sets": [], "device": "cuda", "steps": 160, "tokens": 83886080, "val_loss": 0.51234}
    rows = [row, {**row, "lr": 6e-4, "val_loss": 0.5}, {**row, "sets": ["optim.name=muon"], "val_loss": 0.4},
            {**row, "config": "quickstart", "device": "cpu", "tokens": 2498560, "val_loss": 0.93}]
    lines = update_tables.TABLES["train_recipe_h200"]({"gpu": "NVIDIA H200", "date": "2026-11-21", "command": "COMMAND", "cpu_threads": 4, "rows": rows})
    assert lines[0] == "NVIDIA H200, bf16, 2026-11-21, 160 steps, 83.9M tokens (`COMMAND`):"
    assert lines[2:6] == ["| last validation loss, nats per token | lr 0.0003 | lr 0.0006 |", "|---|---|---|", "| `moe_124m` | 0.512 | 0.500 |",
                          "| `moe_124m`, `optim.name=muon` | 0.400 | |"]
    assert lines[7] == "On 4 threads of its CPU, 2.5M tokens:" and lines[-1] == "| `quickstart` | 0.930 |"


def test_tables_of_sweeps_router_inference_and_moa():
    def last_line(name, **row):
        data = {"gpu": "NVIDIA H200", "date": "2026-11-20", "ceilings": {"gemm_tflops": 722.6, "copy_tbps": 4.267}, "command": "COMMAND"}
        heading, rule, line = update_tables.TABLES[name]({**data, "rows": [row]})[-3:]
        assert heading.count("|") == rule.count("|") == line.count("|")
        return line

    def timed(ms):
        return {"fwd": {"ms": ms, "tflops": 100}, "fwdbwd": {"ms": 3 * ms, "tflops": 200}}

    moe, moa = dict(zip("TDFEK", (16384, 4096, 512, 128, 16))), {**dict(zip("BSDEK", (8, 4096, 2048, 8, 2))), "heads": 16}
    speed = {"fwd_ms": 0.25, "fwdbwd_ms": 12.345, "fwd_tflops": 500.4, "fwdbwd_tflops": 510.4, "fwd_roofline_percent": 60.4, "fwdbwd_roofline_percent": 80.4}
    resources = {"saved_mib": 10, "peak_mib": 20, "host_us": 30}
    assert last_line("granularity_h200", **moe, **speed, aten=timed(2), dense=timed(3), dense_all=timed(4)) == (
        "| 16384,4096,512,128,16 | 500 | 510 | 80 % | 12.35 | 6.00 | 9.00 | 12.00 |")
    assert last_line("router_h200", **moe, **speed, aten=timed(2), experts=timed(3), share_percent=1.96) == (
        "| 16384,4096,512,128,16 | 0.250 | 12.345 | 80 % | 6.000 | 9.00 | 2.0 % |")
    assert last_line("token_rounding_h200", **moe, **speed, rows=32768, given=timed(1), over_given_percent=1.04, topk=timed(2), balanced=timed(3), over_balanced_percent=2.04, over_topk_percent=-9.4) == (
        "| 16384,4096,512,128,16 | 0.250 | 12.345 | 32768 | 3.000 | 1.0 % | 6.000 | 9.000 | 2.0 % | -9.4 % |")
    assert last_line("token_rounding_h200", **moe, **speed, rows=32768, given=timed(1), over_given_percent=1.04, topk=timed(2), balanced=timed(3), over_balanced_percent=None, over_topk_percent=-9.4) == (
        "| 16384,4096,512,128,16 | 0.250 | 12.345 | 32768 | 3.000 | 1.0 % | 6.000 | 9.000 | | -9.4 % |")
    assert last_line("inference_h200", **moe, **speed, **resources, touched_experts=8, aten=timed(2),
                     graph={"fwd": {"ms": 0.2, "roofline_percent": 75.2}}) == ("| 16384,4096,512,128,16 | 8 | 0.250 | 60 % | 0.200, 75 % | 2.000 | 20 | 30 |")
    assert last_line("moa_h200", **moa, **speed, **resources, aten=timed(2), dense=timed(3), with_attention=timed(4)) == (
        "| 8,4096,2048,8,2,16 | 500 | 510 | 80 % | 100, 200 | 100, 200 | 10 | 20 | 30 | 12.00 |")
    assert last_line("parallel_linear_h200", **moa, **speed, rows="token_to_expert", aten=timed(2), dense=timed(3)) == (
        "| 8,4096,2048,8,2,16 | token to expert | 500 | 510 | 80 % | 100, 200 | 100, 200 |")
    passes = {name: {"ms": 2 * i, "ceiling_percent": 40} for i, name in enumerate(("fp32_state", "bf16_state", "bf16", "norm"), 1)}
    assert last_line("adamw_h200", **moe, aten=passes, **{f"{name}_ms": row["ms"] / 2 for name, row in passes.items()},
                     **{f"{name}_ceiling_percent": 90.4 for name in passes}) == (
        "| 4096,512,128 | 1.000, 90 % | 2.000 | 2.000, 90 % | 4.000 | 3.000, 90 % | 6.000 | 4.000, 90 % | 8.000 |")


def test_table_of_fuzzing():
    row = {"target": "tokens", "runs": 10000002, "coverage": 661, "failed": False, "inputs": [], "commit": "abc"}
    lines = update_tables.TABLES["fuzz"]({"longest_input_bytes": 4096, "rows": [row, {**row, "target": "json", "failed": True, "inputs": ["crash-1"]},
                                                                                {**row, "target": "config", "failed": True}]})
    assert lines[0] == "Inputs of at most 4096 bytes:"
    assert lines[-3:] == ["| `config` | 10,000,002 | 661 | failed | `abc` |", "| `json` | 10,000,002 | 661 | 1 | `abc` |", "| `tokens` | 10,000,002 | 661 | 0 | `abc` |"]


def test_tables_of_scaling():
    run = {"part": "olmoe", "config": "olmoe_1b_7b", "zero": 2, "reduce_dtype": "float32", "tok_s_per_gpu": 35624.7, "peak_gib": 50.123}
    data = {"num_gpus": 8, "gpu": "NVIDIA H200", "date": "2026-11-20", "command": "COMMAND",
            "rows": [{"part": "comm", "size": "8 MiB", "collective": "all_reduce", "link_gbps": 114.4},
                     {"part": "comm", "size": "8 MiB", "collective": "all_gather", "link_gbps": 82.1},
                     {"part": "losses", "dtype": "float32", "gpus": 8, "max_difference": 2e-7}, {"part": "losses", "dtype": "float32", "gpus": 1, "max_difference": 0},
                     {"part": "failures", "signal": "SIGSTOP", "moment": "start", "timeout_s": 5, "seconds_to_all_gone": 8.04},
                     {"part": "failures", "signal": "SIGKILL", "moment": "mid-run", "rank": 0, "timeout_s": None, "seconds_to_all_gone": 0.77},
                     {"part": "resume", "steps": 300, "killed_after_step": 120, "same_figures": True, "same_bytes": False},
                     {"part": "async_save", "config": "dense_124m", "async": True, "save_stall_ms": [322.4, 3.9]},
                     {"part": "async_save", "config": "dense_124m", "same_bytes": True},
                     {"part": "alone", "config": "olmoe_1b_7b", "step_ms": [319.6, 322.41]},
                     {"part": "memory", "config": "olmoe_1b_7b", "gpus": 4, "zero": 2, "peak_gib": 60.59}, {"part": "memory", "what": "a difference", "measured_gib": 9.419},
                     {"part": "trace", "config": "olmoe_1b_7b", "wall_ms": 325.3, "busy_ms": 321.4, "collectives_ms": 151.0, "exposed_ms": 9.65},
                     {"part": "start", "config": "olmoe_1b_7b", "first_step_s": 14.66}, {"part": "launchers", "launcher": "mpirun", "missing": True},
                     {"part": "launchers", "launcher": "torchrun", "max_difference": 1.2e-7},
                     {"part": "nodes", "started": "by hand", "steps": 50, "max_difference": 2.4e-7},
                     {"part": "nodes", "signal": "SIGSTOP", "rank": 3, "timeout_s": 5, "seconds_to_all_gone": 5.73},
                     {"part": "nodes", "config": "dense_124m", "reduce_dtype": "bfloat16", "through": "sockets", "tok_s_per_gpu": 431530.1,
                      "comm": {"exposed_ms": 34.86}},
                     {**run, "gpus": 1, "state_dtype": "bfloat16", "efficiency": 1.0},
                     {**run, "gpus": 8, "efficiency": 0.918, "comm": {"exposed_ms": 3.5, "reduce_scatter_gbps": 233.6, "all_gather_gbps": 254.1}}]}
    assert update_tables.TABLES["scale_h200x8"](data)[4:] == [
        "| `olmoe_1b_7b` | 1 | 2 | bfloat16 | float32 | 35,625 | 100 % | 50.1 | - |",
        "| `olmoe_1b_7b` | 8 | 2 | float32 | float32 | 35,625 | 92 % | 50.1 | 3.5 |", "",
        "| also measured | result |", "|---|---|",
        "| losses of 50 steps in float32, on 1, 8 GPUs with ZeRO 0, 1 and 2 and after resuming: largest difference | 2.0e-07 |",
        "| one step of `olmoe_1b_7b` in the profiler | 325 ms, GPU busy 321, collectives 151, of which 9.7 not overlapped by computation |",
        "| `doctor comm`, 8 MiB, GB/s per link | all_reduce 114, all_gather 82 |",
        "| the same inside a step of `olmoe_1b_7b`, gradients in float32 | reduce_scatter 234, all_gather 254 |",
        "| a step of `olmoe_1b_7b` on each GPU without communication, all GPUs at the same time | 320, 322 ms |",
        "| `olmoe_1b_7b` on 4 GPUs, ZeRO 2 | 60.6 GiB per GPU |",
        "| the same, a difference | 9.42 GiB |",
        "| SIGSTOP of a rank at start-up: all processes have ended after | 8.0 s, with a timeout of 5 s |",
        "| SIGKILL of rank 0 during training: all processes have ended after | 0.8 s |",
        "| rank 0 killed after step 120 of 300, then resumed, compared with an uninterrupted run | losses equal, bytes of the last checkpoint differ |",
        "| training waited for each asynchronous save | 322, 4 ms |",
        "| `dense_124m`, checkpoints saved asynchronously or not | bytes equal |",
        "| losses under torchrun and `scatterlm launch`: largest difference | 1.2e-07 |",
        "| the GPUs as two machines (ranks started without a launcher): losses of 50 steps, largest difference from one machine | 2.4e-07 |",
        "| the same, SIGSTOP of rank 3: all processes have ended after | 5.7 s, with a timeout of 5 s |",
        "| the same, `dense_124m` through sockets, gradients in bfloat16 | 431,530 tok/s per GPU, 35 ms of each step exposed |",
        "| start of the process to the end of the first step of `olmoe_1b_7b` | 14.7 s |"]


def test_table_of_training():
    data = {"gpu": "NVIDIA H200", "date": "2026-11-20", "command": "COMMAND", "problems": ["moe_124m: losses differ"],
            "rows": [{"run": "50 steps", "lr": 1e-3, "losses": []}, {"run": "50 steps", "lr": 1e-3, "max_difference_to_cpu": 1.07e-5},
                     {"run": "float32", "config": "moe_124m"}, {"run": "kernels", "config": "moe_124m", "mean_difference_to_float32": 0.0578},
                     {"run": "plain", "config": "moe_124m", "mean_difference_to_float32": 0.047},
                     {"run": "kernels", "config": "moe_124m", "mean_difference_to_float32": 0.02},
                     {"run": "plain", "config": "moe_124m", "mean_difference_to_float32": 0.051},
                     {"run": "quickstart", "steps": 610, "rounding": "none"}, {"run": "quickstart", "steps": 610, "difference_to_plain": 0.00605}]}
    assert update_tables.TABLES["train_h200"](data)[4:] == [
        "| float32, 50 steps at a learning rate of 0.001, GPU against CPU: largest difference of a loss | 1.1e-05 |",
        "| `moe_124m`, bfloat16, steps 100 to 200: mean difference to float32, these kernels and plain LibTorch, 2 seeds | 0.039 (0.020 to 0.058) and 0.049 (0.047 to 0.051) |",
        "| the quickstart with token rounding, 610 steps: last validation loss minus that of plain top-k | 0.006 |",
        "| disagreement | moe_124m: losses differ |"]


def test_table_of_a_comparison():
    def row(config, tok_s, peak):
        spread = {f"{key}{end}": value * factor for key, value in (("tok_s", tok_s), ("step_ms", 1e5 / tok_s), ("mfu", tok_s / 1e6))
                  for end, factor in (("", 1), ("_p10", 0.9), ("_p90", 1.1))}
        return {"config": config, **spread, "peak_gib": peak, "total_parameters": 124e6, "active_parameters": 124e6, "flops_per_token": 798e6}

    data = {"gpu": "NVIDIA H200", "date": "2026-11-20", "ceilings": {"gemm_tflops": 722.6, "copy_tbps": 4.267}, "command": "COMMAND",
            "rows": [row("dense.yaml", 500000, 20), row("moe.yaml", 400000, 40)], "ratio": row("", 0.8, 2),
            "conditions": [{"name": "optimiser", "equal": True, "first": "", "second": ""},
                           {"name": "layers", "equal": False, "first": "gqa+dense*12", "second": "gqa+moe*12"}]}
    lines = update_tables.TABLES["compare_h200"](data)
    assert lines[2] == "| | `dense.yaml` | `moe.yaml` | second / first |"
    assert lines[4] == "| tok/s | 500,000 (450,000 to 550,000) | 400,000 (360,000 to 440,000) | 0.800 (0.720 to 0.880) |"
    assert "| peak memory, GiB | 20.0 | 40.0 | 2.000 |" in lines
    assert lines[-1] == "Equal in both: optimiser. Different: layers (gqa+dense*12 and gqa+moe*12)."


def test_a_table_from_earlier_sources_says_so():
    def lines(data):
        return [f"{data['gpu']}:", "| table |"]

    sources = ["kernels", "lib/ops"]
    current = update_tables.current_hash(*sources)
    assert len(current) == 16 and current != update_tables.current_hash("kernels")
    now = {"gpu": "NVIDIA H200", "sources": sources, "source_hash": current}
    assert update_tables.captioned(lines, now) == "NVIDIA H200:\n| table |"
    earlier = {**now, "source_hash": "0123456789abcdef"}
    assert update_tables.captioned(lines, earlier) == "From earlier sources (`0123456789abcdef`). NVIDIA H200:\n| table |"


def test_kernels_of_a_step_by_class():
    kernels = [["a", "kernel 1", 2, 3.0], ["b", "kernel 2", 1, 6.0], ["a", "kernel 3", 1, 1.0]]
    row = {"name": "dense_124m, documents", "config": "dense_124m", "tok_s": 1000.4, "step_ms": 12.34, "mfu": 0.5, "peak_gib": 7.0, "kernels": kernels, "traced_ms": 11}
    lines = update_tables.TABLES["step_h200"]({"gpu": "NVIDIA H200", "date": "2026-11-22", "command": "COMMAND", "rows": [row]})
    assert "| `dense_124m`, documents | 1,000 | 12.3 | 50.0 | 7.0 |" in lines
    assert lines[-3:] == ["| b | 60.0 |", "| a | 40.0 |", "| all kernels, ms of ms | 10.0 of 11.0 |"]


def test_the_headline_leaves_out_what_is_not_measured():
    def row(impl, shape, speed):
        return {"impl": impl, "shape": shape, "fwd_tflops": speed, "fwdbwd_tflops": speed + 1}

    about = {"gpu": "NVIDIA H200", "date": "2026-11-20", "ceilings": {"gemm_tflops": 722.6}}
    speed = {"fwd": {"tflops": 92.4}, "fwdbwd": {"tflops": 141.6}}
    moe_mlp = {**about, "rows": [{**dict(zip("TDFEK", (8, 768, 256, 128, 8))), "fwd_tflops": 400.2, "fwdbwd_tflops": 500.4, "aten": speed, "dense": speed}]}
    steps = {"rows": [{"name": "olmoe_1b_7b", "config": "olmoe_1b_7b", "tok_s": 50000.4, "peak_gib": 83.66},
                      {"name": "dense_124m, 64 sequences", "config": "dense_124m", "tok_s": 500000, "peak_gib": 30},
                      {"name": "dense_124m, documents", "config": "dense_124m", "tok_s": 1, "peak_gib": 1}]}
    assert update_tables.headline(None, None, steps) == ["Not measured yet."]
    assert update_tables.headline(moe_mlp, None, None)[2:5] == [
        "| shape | T,D,F,E,K | scatterlm | ATen `_grouped_mm` | dense MLP |", "|---|---|---|---|---|", "| | 8,768,256,128,8 | 400 / 500 | 92 / 142 | 92 / 142 |"]
    assert update_tables.headline(moe_mlp, None, steps)[-4:] == [
        "| model | micro-batch | scatterlm |", "|---|---|---|", "| OLMoE-1B-7B | 4 | 50,000 (83.7) |", "| dense 124M | 64 | 500,000 (30.0) |"]

    fine, olmoe = "24576,1536,256,128,8", "32768,2048,1024,64,8"
    peers = {**about, "rows": [row("scatterlm", fine, 500), row("scatterlm", olmoe, 600), row("scattermoe", olmoe, 200),
                               {"impl": "scatterlm", "config": "dense_124m", "micro_batch": 32, "tok_s": 490000, "peak_gib": 20},
                               {"impl": "scatterlm", "config": "dense_124m", "micro_batch": 64, "tok_s": 1, "peak_gib": 1},
                               {"impl": "nanogpt", "config": "dense_124m", "micro_batch": 64, "tok_s": 520000, "peak_gib": 40}]}
    lines = update_tables.headline(moe_mlp, peers, steps)
    assert lines[2:6] == ["| shape | T,D,F,E,K | scatterlm | ScatterMoE |", "|---|---|---|---|",
                          f"| 7B-fine | {fine} | 500 / 501 | |", f"| olmoe-7B | {olmoe} | 600 / 601 | 200 / 201 |"]
    assert lines[-5:] == ["| model | micro-batch | scatterlm | nanoGPT |", "|---|---|---|---|", "| dense 124M | 32 | 490,000 (20.0) | |",
                          "| dense 124M | 64 | 500,000 (30.0) | 520,000 (40.0) |", "| OLMoE-1B-7B | 4 | 50,000 (83.7) | |"]
    only_steps = {**peers, "rows": peers["rows"][3:]}
    assert update_tables.headline(moe_mlp, only_steps, None)[2] == "| shape | T,D,F,E,K | scatterlm | ATen `_grouped_mm` | dense MLP |"


def test_every_table_has_one_place_and_an_empty_one_says_so():
    pages = "".join(page.read_text() for page in update_tables.PAGES)
    for name in ["headline", *update_tables.TABLES]:
        assert pages.count(f"<!-- {name} -->\n") == 1 and pages.count(f"<!-- /{name} -->") == 1
        if name != "headline" and not (ROOT / f"tests/bench/results/{name}.json").exists():
            assert f"<!-- {name} -->\nNot measured yet.\n<!-- /{name} -->" in pages


def test_tables_of_a_sweep_and_of_uneven_experts(monkeypatch):
    run = {"name": "moe_124m model.moe.num_experts=32 optim.lr=1e-3", "exit_code": 0, "tokens": 16_384_000, "seconds": 18.0, "tok_s": 487_300.0, "val_loss": 1.8744, "val_bpb": 0.85592,
           "load_max_mean": 1.57, "curve": [[8_000_000, 9.0, 2.0, 0.9], [16_384_000, 18.0, 1.8744, 0.85592]]}
    failed = {"name": "dense_124m optim.lr=9", "exit_code": 1, "message": "diverged"}
    lines = update_tables.TABLES["recipe_search_1_h200"]({"command": "COMMAND", "rows": [failed, run]})
    assert lines[0] == "2 runs (`COMMAND`):"
    assert lines[-2:] == ["| `moe_124m` | `moe.num_experts=32, lr=1e-3` | 16M | 18 | 1.874 | 0.8559 | 487k | 1.6 |", "| `dense_124m` | `lr=9` | failed | | | | | |"]

    sizes = dict(zip("TDFEK", (8, 16, 32, 4, 2)))
    row = {**sizes, "routing": "random", "fwdbwd_tflops": 500.0, "kernels": {"dw1": {"ms": 0.3}, "dw2": {"ms": 0.2}}}
    data = {"gpu": "NVIDIA H200", "date": "2026-11-20", "ceilings": {"gemm_tflops": 722.6, "copy_tbps": 4.267}, "command": "COMMAND"}
    monkeypatch.setattr(bench_tables, "read_result", lambda name: {"rows": [{**row, "T": 7}, row]})
    skewed = {**row, "routing": "skewed", "fwdbwd_tflops": 475.0, "kernels": {"dw1": {"ms": 0.31}, "dw2": {"ms": 0.25}}}
    lines = update_tables.TABLES["moe_mlp_skewed_h200"]({**data, "rows": [skewed]})
    assert lines[-1] == "| 8,16,32,4,2 | 500 | 475 | 95.0 % | 0.300, 0.310 | 0.200, 0.250 |"


def test_what_compare_learned():
    dense = {"name": "dense", "tokens": 935e6, "seconds": 1395.4, "tok_s": 671_959.2, "trained_tok_s": 670_000.0, "val_loss": 1.34651, "val_loss_min": 1.34651, "val_loss_max": 1.34651, "val_bpb": 0.54478,
             "tokens_share": 1.0, "seconds_share": 1.0, "load_max_mean": None, "total_parameters": 97.5e6, "active_parameters": 97.5e6}
    moe = {**dense, "name": "moe", "val_loss": 1.2, "val_loss_min": 1.19, "val_loss_max": 1.21, "tokens_share": 0.5, "seconds_share": None, "load_max_mean": 2.82}
    lines = update_tables.TABLES["moe_against_dense_h200"]({"gpu": "GPU", "date": "2026-11-22", "command": "COMMAND", "rows": [dense, moe]})
    assert lines[0] == "GPU, 2026-11-22 (`COMMAND`):" and lines[2] == "| | `dense` | `moe` |"
    assert lines[4:11] == ["| tokens | 935M | 935M |", "| seconds in training steps | 1,395 | 1,395 |", "| tok/s before training | 671,959 | 671,959 |",
                           "| validation loss | 1.3465 | 1.2000 (1.1900 to 1.2100) |", "| bits per byte | 0.5448 | 0.5448 |",
                           "| tokens to the loss of `dense` / its tokens | 1.000 | 0.500 |", "| time to that loss / its time | 1.000 | not reached |"]
    assert lines[11] == "| largest load / mean load | | 2.8 |"


def test_planned_and_measured_memory():
    row = {"config": "moe_124m", "sets": ["train.recompute=layer"], "gpus": 2, "zero": 1, "planned_gib": 10.0, "measured_gib": 10.25}
    lines = update_tables.TABLES["plan_h200x2"]({"gpu": "GPU", "num_gpus": 2, "date": "2026-11-22", "command": "COMMAND", "rows": [row]})
    assert lines[0] == "2 x GPU, 2026-11-22 (`COMMAND`):"
    assert lines[-1] == "| `moe_124m` | `train.recompute=layer` | 2 | 1 | 10.0 | 10.2 | 1.025 |"

"""Times the experts of one MoE layer of a peer, in a process of its own; run.py starts it.

    python tests/bench/peers/layer.py sonicmoe|scattermoe DIR T,D,F,E,K

DIR is a clone of the peer. The first forward and backward compile the kernels; then the program prints "ready" and waits for a line on
standard input, so that run.py can compile many shapes at once and time them one at a time. It checks the output and the input's gradient
against plain PyTorch in float32, times, and prints one JSON line.

Inputs, measured region and timing are those of `scatterlm bench moe_mlp` (lib/bench/inputs.cpp, lib/bench/timer.cpp): expert ids and gates
are given; sorting, both projections, SwiGLU and the weighted sum are timed; 256 MB are zeroed before each run, so L2 is cold; the time is
the median between CUDA events.
"""
import gc
import json
import math
import random
import statistics
import sys

import torch
import torch.nn.functional as F
from triton.runtime.autotuner import Autotuner

TOLERANCE = 0.02  # relative Frobenius norm; bfloat16 gives 0.005


def make_inputs(T, D, width, E, K):
    """Tensors of one layer, all on the GPU: x_TD, w1 [E, 2F, D], w2 [E, D, F], ids_TK (int32), gates_TK (float32), dout_TD."""
    torch.manual_seed(0)
    bf16 = {"device": "cuda", "dtype": torch.bfloat16}
    x, w1 = torch.randn(T, D, **bf16).mul_(0.2), torch.randn(E, 2 * width, D, **bf16).mul_(0.02)
    w2 = torch.randn(E, D, width, **bf16).mul_(0.02)
    chosen, ids = torch.randn(T, E, device="cuda").topk(K, dim=1)
    dout = torch.randn(T, D, **bf16).mul_(0.2)
    return x, w1, w2, ids.int(), chosen.softmax(dim=1), dout


def sonicmoe(x, w1, w2, ids, gates):
    """Rows of w1 are gate, up, gate, up ..."""
    from sonicmoe.count_cumsum import count_cumsum
    from sonicmoe.enums import ActivationType
    from sonicmoe.functional import TC_topk_router_metadata, _DownProjection, _UpProjection
    (T, K), E = ids.shape, w1.size(0)
    stream = torch.cuda.current_stream().cuda_stream
    _, ends = count_cumsum(ids.view(-1), E, do_cumsum=True)
    offsets, *lists = TC_topk_router_metadata(ids, ends, K)
    a, h = _UpProjection.apply(x, w1.permute(1, 2, 0), None, offsets, T * K, K, stream, *lists, False, ActivationType.SWIGLU, False)
    return _DownProjection.apply(a, h, w2.permute(1, 2, 0), None, gates, offsets, T, K, stream, *lists, False, ActivationType.SWIGLU)


def scattermoe(x, w1, w2, ids, gates):
    """The first F rows of w1 are up, the others gate."""
    from scattermoe import flatten_sort_count, parallel_linear
    experts, slots, ends = flatten_sort_count(ids, num_experts=w1.size(0))
    up, gate = parallel_linear(x, w1.permute(0, 2, 1), ids.size(1), experts, slots, ends, grouped_out=True).chunk(2, dim=-1)
    return parallel_linear(F.silu(gate) * up, w2.permute(0, 2, 1), 1, experts, slots, ends, grouped_in=True, gates=gates)


def plain(x, w1, w2, ids, gates, interleaved):
    """The same in float32, expert by expert; w1 in either order of rows."""
    out = torch.zeros_like(x)
    for e in range(w1.size(0)):
        tokens, slots = (ids == e).nonzero(as_tuple=True)
        h = x[tokens] @ w1[e].t()
        gate, up = (h[:, ::2], h[:, 1::2]) if interleaved else reversed(h.chunk(2, dim=1))
        out = out.index_add(0, tokens, (F.silu(gate) * up) @ w2[e].t() * gates[tokens, slots, None])
    return out


def require_right(name, result, expected):
    error = ((result.float() - expected).norm() / expected.norm()).item()
    if not error < TOLERANCE:
        raise RuntimeError(f"{name} is wrong: relative error {error:.4f}")
    return error


def check(peer, leaves, ids, dout):
    """Largest relative error of the output and of the gradient of x."""
    x, w1, w2, gates = leaves
    out = PEERS[peer](x, w1, w2, ids, gates)
    out.backward(dout)
    wide = x.detach().float().requires_grad_()
    expected = plain(wide, w1.detach().float(), w2.detach().float(), ids, gates.detach().float(), peer == "sonicmoe")
    expected.backward(dout.float())
    return max(require_right("output", out, expected), require_right("gradient of x", x.grad, wide.grad))


def time_runs(variants, prepare, rounds):
    """Milliseconds of each run of each variant; every round runs all of them in another order."""
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    order, events = list(variants), {name: [] for name in variants}
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            prepare()
            flush.zero_()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            variants[name]()
            end.record()
            events[name].append((start, end))
    torch.cuda.synchronize()
    return {name: [start.elapsed_time(end) for start, end in runs] for name, runs in events.items()}


def median_times(variants, prepare):
    time_runs(variants, prepare, 1)
    once = {name: times[0] for name, times in time_runs(variants, prepare, 1).items()}
    time_runs(variants, prepare, int(min(100 / sum(once.values()), 100)))  # warm up
    rounds = min(max(math.ceil(300 / max(once.values())), 10), 100)
    return {name: statistics.median(times) for name, times in time_runs(variants, prepare, rounds).items()}


def peak_gib(prepare, run):
    """Memory that forward and backward allocate beyond inputs and weights, gradients included."""
    prepare()
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / (1 << 30)


PEERS = {"sonicmoe": sonicmoe, "scattermoe": scattermoe}


def main():
    peer, folder, shape = sys.argv[1:]
    sys.path.insert(0, folder)
    T, D, width, E, K = sizes = [int(size) for size in shape.split(",")]
    x, w1, w2, ids, gates, dout = make_inputs(*sizes)
    if peer == "scattermoe":
        ids, gates = ids.long(), gates.bfloat16()
    leaves = [tensor.requires_grad_() for tensor in (x, w1, w2, gates)]

    def prepare():
        for leaf in leaves:
            leaf.grad = None

    def forward():
        return PEERS[peer](x, w1, w2, ids, gates)

    def forward_backward():
        forward().backward(dout)

    forward_backward()
    print("ready", flush=True)
    sys.stdin.readline()
    for tuner in [thing for thing in gc.get_objects() if issubclass(type(thing), Autotuner)]:  # isinstance() would follow dead weak references
        tuner.cache.clear()  # other processes used the GPU while it chose
    prepare()
    error = check(peer, leaves, ids, dout)
    times = median_times({"fwd": forward, "fwdbwd": forward_backward}, prepare)
    flops = {"fwd": 6 * T * K * D * width, "fwdbwd": 18 * T * K * D * width}
    row = {"impl": peer, "shape": shape, "dtype": "bf16", "relative_error": error}
    for name, ms in times.items():
        row.update({f"{name}_ms": ms, f"{name}_tflops": flops[name] / ms / 1e9})
    print(json.dumps({**row, "peak_gib": peak_gib(prepare, forward_backward)}), flush=True)


if __name__ == "__main__":
    main()

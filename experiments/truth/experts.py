"""Published times of mixtures of experts beside predictions: DeepGEMM's grouped kernels, DeepEP's transfers.

Run: ``python -m experiments.truth.experts > experiments/truth/EXPERTS.md``.
"""

from collections.abc import Iterator

import numpy as np

import umm
from umm.cost import grouped_seconds
from umm.dtypes import itemsize
from umm.machines.curves import COLLECTIVE
from umm.plans.lower import lower
from umm.program import Combine, Dispatch, Outline
from umm.program.outline import Shape
from umm.program.routing import Routing
from umm.space.fusing import GATHER, SCATTER, flowing

GROUPED = (
    (4, 8192, 4096, 7168, 1346), (4, 8192, 7168, 2048, 1214), (8, 4096, 4096, 7168, 1346),
    (8, 4096, 7168, 2048, 1214), (1, 1024, 4096, 7168, 1233), (2, 512, 4096, 7168, 1040),
    (4, 256, 4096, 7168, 932), (4, 256, 7168, 2048, 815),
)  # fmt: skip
"""Groups, rows of each, n, k, Tflop/s on H800 in fp8. Source: DeepGEMM's README, April 2025."""
TRANSFERS = (
    (Dispatch, "float8_e4m3", 1, 153), (Dispatch, "float8_e4m3", 2, 43), (Dispatch, "float8_e4m3", 4, 58),
    (Combine, "bfloat16", 1, 158), (Combine, "bfloat16", 2, 43), (Combine, "bfloat16", 4, 57),
)  # fmt: skip
"""Nodes of 8 H800, GB/s at the bottleneck, 4,096 tokens a rank, top 8 of 256 experts, hidden 7,168.

Source: DeepEP, docs/legacy.md. Up to 4 nodes its tokens may go to all of them, as uniform routing lets them.
"""


LATENCY = (
    (Dispatch, "float8_e4m3:128", 1, 77), (Dispatch, "float8_e4m3:128", 2, 118),
    (Dispatch, "float8_e4m3:128", 4, 155), (Dispatch, "float8_e4m3:128", 8, 173),
    (Combine, "bfloat16", 1, 114), (Combine, "bfloat16", 2, 195), (Combine, "bfloat16", 4, 273),
    (Combine, "bfloat16", 8, 314),
)  # fmt: skip
"""Nodes of 8 H800, us of DeepEP's low-latency kernels, 128 tokens a rank. Source: DeepEP, docs/legacy.md."""
EXCHANGE = (137, 182)
"""us of this dispatch on 32 H800: Triton-distributed, and DeepEP as that measured it. Source: its README."""
FUSED = (
    ("l20-8", 32, 4, 1, 7.813, 7.976), ("l20-8", 32, 4, 2, 8.727, 8.445), ("l20-8", 8, 2, 1, 5.901, 6.744),
    ("l20-8", 8, 2, 2, 6.155, 7.009), ("h800-8", 32, 4, 1, 1.146, 1.863), ("h800-8", 8, 2, 1, 0.657, 1.019),
)  # fmt: skip
"""Machine, experts, top k, groups of experts, ms of layers 0 and 1: 8,192 tokens, k and n 8,192, bfloat16.

Source: bytedance/flux, docs/performance.md, Flux's columns.
"""


def grouped() -> Iterator[tuple[str, float, float]]:
    """Yield name, Tflop/s predicted and published."""
    machine = umm.machine("h800-8")
    for groups, rows, n, k, published in GROUPED:
        took = grouped_seconds(machine, "float8_e4m3", np.full(groups, rows), n, k, 2).sum()
        yield f"{groups} x {rows} x {n} x {k}", 2e-12 * groups * rows * n * k / took, published


def transfers() -> Iterator[tuple[str, float, float]]:
    """Yield name, GB/s as DeepEP counts them, and published.

    In one node what the rank gets of others that gets most; between nodes a row for each token and node with
    an expert of it, its own included (tests/test_internode.py).
    """
    for kind, dtype, nodes, published in TRANSFERS:
        ranks = 8 * nodes
        routed = Routing(4096 * ranks, 256, 8)
        edges = tuple(routed.edges.tolist())
        inward = kind is Dispatch
        tokens = Shape("X", routed.tokens, 7168, dtype, "input" if inward else "output")
        rows = Shape("R", routed.rows, 7168, dtype, "output" if inward else "input", edges, True)
        statement = Dispatch("R", "X", str(routed), again=True) if inward else Combine("X", "R", str(routed))
        chain = Outline("transfer", (tokens, rows), (statement,)).laid_out({"R": "experts"}, ranks)
        schedule = lower(chain, umm.machine("h800-8", nodes=nodes))
        between = schedule.src != schedule.dst
        most = np.bincount(schedule.dst[between], schedule.payload[between]).max()
        if nodes > 1:
            node = routed.expert_of // (256 // nodes)
            reached = np.unique(routed.token_of * nodes + node) // nodes // 4096
            most = np.bincount(reached).max() * 7168 * schedule.tensors[0].itemsize
        yield f"{kind.kind} of {ranks}", 1e-9 * most / umm.run(schedule).makespan_s, published


def low_latency() -> Iterator[tuple[str, float, float]]:
    """Yield name, us predicted and published."""
    for kind, dtype, nodes, published in LATENCY:
        yield f"{kind.kind} of {8 * nodes}", _by_choice(kind, dtype, nodes), published


def exchanges() -> Iterator[tuple[str, float, float]]:
    """Yield name, us predicted and published."""
    predicted = _by_choice(Dispatch, "float8_e4m3:128", 4)
    for name, published in zip(("Triton-distributed", "DeepEP"), EXCHANGE, strict=True):
        yield name, predicted, published


def _by_choice(kind: type[Dispatch | Combine], dtype: str, nodes: int) -> float:
    """Return the us of moving 128 tokens a rank, each choice by itself."""
    routed, inward = Routing(128 * 8 * nodes, 256, 8), kind is Dispatch
    tokens = Shape("X", routed.tokens, 7168, dtype, "input" if inward else "output")
    edges = tuple(routed.edges.tolist())
    rows = Shape("R", routed.rows, 7168, dtype, "output" if inward else "input", edges, True)
    ends = ("R", "X") if inward else ("X", "R")
    statement = kind(*ends, str(routed), each=True)
    chain = Outline("transfer", (tokens, rows), (statement,)).laid_out({"R": "experts"}, 8 * nodes)
    return 1e6 * umm.run(lower(chain, umm.machine("h800-8", nodes=nodes))).makespan_s


def fused_experts(
    machine: umm.Machine, tokens: int, n: int, k: int, experts: int, top_k: int, what: str = GATHER, *,
    groups: int = 1,
) -> float:  # fmt: skip
    """Return the seconds of a mixture's multiply in one kernel with its collective, rows spread evenly.

    Either tokens are gathered and multiplied with their experts' weights, or products are added up for each
    token and scattered. Blocks of the kernel communicate and the others multiply, so multiplies lose what a
    collective's kernels take; sums have a pass of their own, so what is sent is contiguous.

    Args:
        n: Columns of the product, over the ranks of a group.
        k: Length of the sums, over the ranks of a group.
        what: ``all-gather`` of tokens before, or ``reduce-scatter`` of their sums after.
        groups: Groups of experts; the ranks of one share each expert's columns.

    Source: Zhang et al. (2025), Comet: fine-grained computation-communication overlapping for mixtures.
    """
    p, dtype = machine.default_ranks, "bfloat16"
    parts, inward = p // groups, what == GATHER
    local = (n // parts, k) if inward else (n, k // parts)
    # Even loads, as the docstring says; a skewed router would make the fullest group bind.
    rows = np.full(experts // groups, tokens * top_k // experts)
    item = itemsize(dtype)
    product = float(grouped_seconds(machine, dtype, rows, *local, item).sum())
    nbytes = tokens * (k if inward else n) * item
    copies = flowing(machine, p, nbytes / p)[0] + (p - 1) * machine.transfer_overhead_s
    # The share of a device that communicating blocks take from the multiplies in one kernel.
    taken = machine.means[COLLECTIVE].interference if COLLECTIVE in machine.means else 0.0
    passes = 0.0 if inward else nbytes * (top_k / groups + 2.0 + 1.0 / p) / machine.work_bandwidth
    last = copies / max(1, p - 1)
    return float(max(product / (1.0 - taken), copies) + last + machine.step_fence_s + passes)


def fused() -> Iterator[tuple[str, float, float]]:
    """Yield name, ms predicted and published."""
    for name, experts, top_k, groups, *layers in FUSED:
        for number, (what, published) in enumerate(zip((GATHER, SCATTER), layers, strict=True)):
            took = fused_experts(umm.machine(name), 8192, 8192, 8192, experts, top_k, what, groups=groups)
            yield f"{name}, {experts} top {top_k}, {groups} groups, layer {number}", 1e3 * took, published


def main() -> None:
    """Print the tables."""
    print("# Mixtures of experts: predicted beside published\n")
    print(
        "Grouped kernels: `devices.grouped` of h800-8, fitted on six of these rows. Transfers: the number of"
    )
    print("parts that pass a relay, 8, was chosen of two (4 gives 45 to 56 GB/s), nothing else. Low latency:")
    print("`direct_start` of h800-8, fitted on the dispatch of 16. Flux: nothing fitted.\n")
    for title, unit, rows in (
        ("DeepGEMM, grouped, fp8, H800", "Tflop/s", grouped()),
        ("DeepEP, H800", "GB/s", transfers()),
        ("DeepEP, low latency, H800", "us", low_latency()),
        ("All-to-all of 32 H800", "us", exchanges()),
        ("Flux, mixtures", "ms", fused()),
    ):
        print(f"## {title}\n\n| what | predicted {unit} | published | off by |\n|---|---|---|---|")
        off = []
        for name, predicted, published in rows:
            off.append(abs(predicted / published - 1))
            print(f"| {name} | {predicted:.4g} | {published} | {predicted / published - 1:+.0%} |")
        print(f"\nMean: {np.mean(off):.0%}.\n")


if __name__ == "__main__":
    main()

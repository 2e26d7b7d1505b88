"""The fastest configurations of a step: all divisors, bounded first, the best simulated."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from umm.errors import InfeasibleError, ProblemError
from umm.machines import Machine
from umm.plans.collectives.library import domains
from umm.program.models.layers import LatentAttention, Mamba, Model
from umm.program.models.split import shared
from umm.step.parallel import Parallel, check_sizes, divisors
from umm.step.pipeline import FIXED_CHUNKS
from umm.step.rates import Rates
from umm.step.stacks import Stack
from umm.step.step import (
    MAX_PASSES,
    Question,
    Step,
    host_bytes,
    least_seconds,
    memory_bytes,
    predict,
    question,
    simulated,
)
from umm.units import format_bytes

MAX_TENSOR = 8
"""Tensor parallel ranks at most: more leave multiplies too narrow (Narayanan et al. 2021, section 5.4)."""
MAX_CONTEXT = 16  # context parallel ranks at most
MAX_STAGES = 32  # pipeline stages at most
MAX_VIRTUAL = 12  # chunks of a stage at most
MAX_MICRO_BATCH = 8  # sequences of a micro-batch at most
LONG = 16384  # tokens of a sequence from which context parallelism is tried
RESERVED = 14 * 2**30
"""Bytes of a device's visible memory that a step leaves by default.

Contexts, buffers of collectives, workspaces, and what the allocator cannot use again. Recipes of
Megatron-Bridge bound it, by memory as predicted here: llama-3-70b on H100 runs with 65.3 of 79.6 GiB. Only
llama-3-405b on GB200 leaves less, 11.7 GiB in fp8 and 6.2 in NVFP4, for which NVIDIA sets PyTorch's
expandable segments, and llama-3-70b in NVFP4 on GB300, 6.9.
"""
USABLE = 0.97  # share of a device's memory that a step may use where its file does not say what programs see
OFFLOADED = (0.25, 0.5, 0.75)  # shares of the layers whose activations may wait in the host's memory
MAX_SIMULATED = 400
"""Pipelines that are simulated at most; the answer says when that ended a search."""


@dataclass(frozen=True)
class SearchResult:
    """The best configurations of a step."""

    top: list[Step]  # the best, fastest first, each with its range
    priced: int  # configurations that were bounded
    fitting: int  # how many of them fit in memory
    simulated: int  # pipelines that were simulated
    gap: float  # by how much the best may exceed the optimum, a share; 0 where it is proven best

    @property
    def proven(self) -> bool:
        """Whether no other configuration is faster."""
        return self.gap == 0.0


def configurations(model: Model, given: Mapping[str, Any], node: int, stack: Stack) -> Iterator[Parallel]:
    """Yield each way to spread a step; sizes that were given stay.

    Args:
        model: Decides which sizes divide heads and experts.
        given: Fields of :class:`Parallel` that are fixed, ``ranks``, ``batch`` and ``length`` among them.
        node: Devices of a node, beyond which tensor parallel ranks do not reach.
        stack: Decides what is computed again, and whether data parallel ranks split weights.

    ProblemError for a given size that no others make right.
    """
    check_sizes(given)
    ranks, batch, long = given["ranks"], given["batch"], given["length"] >= LONG
    shards = not stack.splits_weights or given.get("precision", "bf16") in stack.splits_weights
    heads, experts = shared(model)
    layers = len(model.layers)
    # Of a dense model with plain attention no module that a stack names is there to be computed again.
    latent = any(isinstance(x.mixer, LatentAttention) for x in model.layers)
    again = [x for x in stack.recompute if "," not in x or experts or latent]
    chunked = stack.interleaves_states or not any(isinstance(x.mixer, Mamba) for x in model.layers)
    chunked = chunked and given.get("schedule") not in FIXED_CHUNKS

    def tried(name: str, values: Iterable[Any]) -> list[Any]:
        return [given[name]] if name in given else list(values)

    tensor = [
        tp
        for tp in tried("tp", divisors(ranks, min(MAX_TENSOR, node)))
        if "tp" in given or all(number % tp == 0 for number in heads)
    ]
    context = tried("cp", divisors(ranks, MAX_CONTEXT) if long else (1,))
    stages = tried("pp", divisors(ranks, min(MAX_STAGES, layers)))
    micro_batches = tried("micro_batch", divisors(batch, MAX_MICRO_BATCH))
    for tp, cp, pp, micro_batch in product(tensor, context, stages, micro_batches):
        each = tp * cp * pp
        if ranks % each or batch % (micro_batch * (ranks // each)):
            continue
        count = batch // (micro_batch * (ranks // each))
        # Experts are whole on a rank, so their ranks divide those of a stage and each layer's experts.
        inside = divisors(ranks // pp, max(experts, default=1))
        expert = tried("ep", tuple(x for x in inside if all(number % x == 0 for number in experts)))
        least = 2 if stack.chunks_experts and experts and pp > 1 else 1
        chunks = (x for x in _virtual(layers, pp, count, bool(model.mtp)) if x >= least)
        virtual = tried("vp", chunks if chunked else (1,))
        zeros = tried("zero", (1, 3) if shards and pp == 1 and not given.get("fsdp", 0) else (1,))
        for recompute, ep, vp, zero in product(tried("recompute", again), expert, virtual, zeros):
            sizes = {"tp": tp, "cp": cp, "pp": pp, "micro_batch": micro_batch, "ep": ep, "vp": vp}
            others = {"recompute": recompute, "zero": zero, "schedule": "interleaved" if vp > 1 else "1f1b"}
            for offload in tried("offload", _offloads(stack, layers, pp, zero, recompute)):
                try:
                    yield Parallel(**{**others, "offload": offload, **sizes, **given})
                except ProblemError:  # of sizes that were given and do not fit these
                    break


def _offloads(stack: Stack, layers: int, stages: int, zero: int, recompute: str) -> Iterator[str]:
    """Yield values of ``--offload`` to try: none, and activations of some layers beside split weights."""
    # Megatron-LM offloads without pipelines and recomputation alone (transformer_config.py), NVIDIA's recipes
    # beside split weights.
    yield "none"
    if stack.offloads and stages == 1 and zero == 3 and recompute == "none":
        yield from dict.fromkeys(f"activations:{max(1, round(share * layers))}" for share in OFFLOADED)


def _virtual(layers: int, stages: int, micro_batches: int, uneven: bool) -> Iterator[int]:
    """Yield the chunks a stage that split layers evenly, as Megatron-LM asks, or any if uneven."""
    yield 1
    if stages > 1 and micro_batches % stages == 0:
        for chunks in range(2, min(MAX_VIRTUAL, layers // stages) + 1):
            if uneven or layers % (stages * chunks) == 0 or (layers + 2) % (stages * chunks) == 0:
                yield chunks


def usable_memory(machine: Machine) -> float:
    """Return the bytes of a device that a search may use by default."""
    visible = machine.load.visible_memory
    return max(0.0, visible - RESERVED) if visible else USABLE * machine.memory


def search(model: Model, rates: Rates, given: Mapping[str, Any], memory: float, top: int = 5) -> SearchResult:
    """Return the fastest configurations that fit in memory.

    Configurations that fit are bounded from below by their busiest stage, then simulated in the order of
    these bounds until none that is left can be faster.

    Args:
        rates: Prices on the machine.
        given: Fields of :class:`Parallel` that are fixed, ``ranks``, ``batch`` and ``length`` among them.
        memory: Bytes of a device; infinity for no limit.
        top: How many to return.

    Raises:
        InfeasibleError: nothing fits; says what the nearest needs.
    """
    total = rates.machine.device_count
    node = len(domains(rates.machine, range(total), total)[0])
    room = rates.load.host_capacity or float("inf")
    bounded: list[tuple[float, int, Question]] = []
    priced, nearest, crowded = 0, float("inf"), float("inf")
    for priced, parallel in enumerate(configurations(model, given, node, rates.stack), 1):
        one = question(model, parallel, rates)
        try:
            needed = memory_bytes(one)
        except ProblemError:  # of more chunks than layers
            continue
        if needed > memory:
            nearest = min(nearest, needed)
        elif (waiting := host_bytes(one)) > room:
            crowded = min(crowded, waiting)
        else:
            bounded.append((least_seconds(one), priced, one))
    bounded.sort(key=lambda x: x[:2])
    best: list[tuple[float, int, Question]] = []
    count, bound, long = 0, float("inf"), None
    for least, number, one in bounded:
        if (len(best) == top and least >= best[-1][0]) or count >= MAX_SIMULATED:
            bound = min(bound, least)
            break
        if one.passes > MAX_PASSES:  # not simulated, so the best is proven only up to its bound
            bound, long = min(bound, least), one
            continue
        count += 1
        best = sorted([*best, (simulated(one), number, one)], key=lambda x: x[:2])[:top]
    if not priced:
        Parallel(**given)  # says why, if the given sizes alone forbid it
        raise ProblemError(
            f"{given['ranks']} ranks cannot share a batch of {given['batch']} sequences by any size; "
            "change --batch, --micro-batch or the sizes that were given"
        )
    if not best:
        if crowded < float("inf") and not bounded:
            raise InfeasibleError(
                f"what waits in the host's memory takes {format_bytes(crowded)} at least of a device's "
                f"{format_bytes(room)}; leave out --offload, or give more ranks"
            )
        if nearest == float("inf") and not bounded:
            raise ProblemError(
                f"the {len(model.layers)} layers of {model.name} cannot be split into --pp x --vp chunks; "
                "take fewer"
            )
        if long is not None:
            simulated(long)  # says that it is too long
        raise InfeasibleError(
            f"none of {priced} configurations fits in a device's {format_bytes(memory)}; the nearest needs "
            f"{format_bytes(nearest)}: give more ranks, or --memory none"
        )
    gap = max(0.0, best[0][0] / bound - 1.0)
    return SearchResult([predict(x) for *_, x in best], priced, len(bounded), count, gap)

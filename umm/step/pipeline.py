"""Pipelines: the order in which stages pass micro-batches forward and backward, and when each pass runs.

A pass is (stage, chunk, micro-batch). Chunk c of a pipeline of p stages is at stage c mod p; of DualPipeV,
whose chunks go down the stages and up again, at stage 2p − 1 − c in the second half. A forward pass waits for
that of the chunk before and its send; a backward pass for that of the chunk after. Where weights' gradients
are a pass of their own (zero bubble), nothing but the optimizer waits for them.

Another schedule is a name in :data:`SCHEDULES` and its order of passes in :func:`timeline`; all other modules
ask this one. ``umm/step/flags.py`` has what frameworks call it.

Sources: Narayanan et al. (2021), Efficient large-scale language model training on GPU clusters, section 2.2
(1F1B, interleaved); Qi et al. (2023), Zero bubble pipeline parallelism (ZB-H1); DeepSeek-AI, DualPipe, and
Qi et al., Pipeline parallelism with controllable memory (V-shaped).
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import NamedTuple

import numpy as np

FORWARD, BACKWARD, WEIGHT = 0, 1, 2
SCHEDULES = ("1f1b", "interleaved", "zero-bubble", "dualpipe-v")
ZERO_BUBBLE = ("zero-bubble", "dualpipe-v")  # schedules in which weights' gradients are passes of their own
FIXED_CHUNKS = {"1f1b": 1, "dualpipe-v": 2}  # chunks a stage of schedules that leave no choice


class Pass(NamedTuple):
    """One pass of a micro-batch through a chunk."""

    kind: int  # FORWARD, BACKWARD, or WEIGHT for gradients of weights alone
    chunk: int  # number of the chunk in the whole pipeline
    micro_batch: int  # number of the micro-batch


@dataclass(frozen=True)
class Chunk:
    """Seconds and bytes of one micro-batch in a chunk of layers."""

    forward: float  # seconds of the forward pass
    # Seconds of the backward pass; where weights' gradients are passes of their own, of the rest.
    backward: float
    # Seconds of weights' gradients as a pass of their own; 0 where they are part of `backward`.
    weight: float = 0.0
    kept: float = 0.0  # bytes kept from forward to backward
    send: float = 0.0  # seconds until the next chunk has a pass's result, or this one has the next one's
    busy: float = 0.0  # of those, seconds in which the sending stage does nothing else

    def seconds(self, kind: int) -> float:
        """Seconds of a pass of one kind."""
        return (self.forward, self.backward, self.weight)[kind]


class Timeline(NamedTuple):
    """When a pipeline's passes ran."""

    seconds: float  # from the first pass to the end of the last
    # Of each stage, its passes in order with their begin and end in seconds.
    passes: list[list[tuple[Pass, float, float]]]
    # Of each stage, the bytes that it keeps from moments in seconds on.
    curves: list[list[tuple[float, float]]]

    @property
    def peak(self) -> list[float]:
        """Most bytes that each stage keeps at a time."""
        return [max((nbytes for _, nbytes in curve), default=0.0) for curve in self.curves]

    @property
    def idle(self) -> list[float]:
        """Seconds in which each stage ran no pass."""
        return [self.seconds - sum(end - begin for _, begin, end in stage) for stage in self.passes]


def stage_of(chunk: int, stages: int, schedule: str) -> int:
    """Return the stage that has a chunk."""
    if schedule == "dualpipe-v":
        return chunk if chunk < stages else 2 * stages - 1 - chunk
    return chunk % stages


def in_turns(
    stage: int, stages: int, micro_batches: int, virtual: int = 1, apart: bool = False
) -> Iterator[Pass]:
    """Yield the passes of a stage by 1F1B: after a warm-up, forward and backward by turns.

    Micro-batches go through each of several chunks by ``stages``.

    Args:
        apart: Whether weights' gradients are passes of their own. Those of stage s follow s backward passes
            later, so that each stage keeps as many micro-batches as the first (ZB-H1).
    """
    groups = range(0, micro_batches, stages)
    numbers = [(x, i + j) for i in groups for x in range(virtual) for j in range(stages)]
    forward = [Pass(FORWARD, x * stages + stage, i) for x, i in numbers]
    backward = [Pass(BACKWARD, (virtual - 1 - x) * stages + stage, i) for x, i in numbers]
    ahead = _ahead(stage, stages, len(numbers) // virtual, virtual, apart)
    order = forward[:ahead]
    for number, one in enumerate(backward):
        order += [*forward[ahead + number : ahead + number + 1], one]
        if apart and number >= stage:
            order.append(backward[number - stage]._replace(kind=WEIGHT))
    if apart and stage:
        order += [x._replace(kind=WEIGHT) for x in backward[-stage:]]
    # The last group may lack micro-batches.
    return (x for x in order if x.micro_batch < micro_batches)


def v_shaped(stage: int, stages: int, micro_batches: int) -> Iterator[Pass]:
    """Yield the passes of a stage by DualPipeV, whose chunk 0 is on the way down, 1 on the way up."""
    # F is a forward pass, B a backward one and b one whose gradients of weights, W, come later. With fewer
    # micro-batches than DualPipeV asks for, the passes of those that lack are left out.
    before, total = stages - 1 - stage, max(micro_batches, 2 * stages)
    ends = ["B1", "B0"] * (stage + 1)
    steps = ["F0"] * 2 * before + ["F0", "F1"] * (stage + 1) + ["b1", "W", "F1"] * before
    steps += ["F0", "B1", "F1", "B0"] * (total - stages - before) + ["B1", "F1", "B0"] * before
    steps += [*ends[: stage + 1], *(x.lower() for x in ends[stage + 1 :])]
    steps += ["W", "b0"] * before + ["W"] * (stage + 1)
    later = deque[Pass]()
    numbers = {name: count() for name in ("F0", "F1", "B0", "B1")}
    for step in steps:
        if step == "W":
            order = [later.popleft()]
        else:
            chunk = 2 * stages - 1 - stage if step[1] == "1" else stage
            order = [Pass("FB".index(step[0].upper()), chunk, next(numbers[step.upper()]))]
            if step[0] != "F":
                later.append(order[0]._replace(kind=WEIGHT))
            if step[0] == "B":
                order.append(later.pop())
        yield from (x for x in order if x.micro_batch < micro_batches)


def _ahead(stage: int, stages: int, micro_batches: int, virtual: int, apart: bool = False) -> int:
    """Return how many forward passes a stage makes before forward and backward ones by turns."""
    total, after = micro_batches * virtual, stages - 1 - stage
    if virtual == 1 or apart:
        ahead = after + (virtual - 1) * stages
    else:
        # With as many micro-batches as stages all forward passes come first, as Megatron-LM has it.
        ahead = total if micro_batches == stages else after * 2 + (virtual - 1) * stages
    return min(ahead, total)


def order_of(stage: int, stages: int, micro_batches: int, virtual: int, schedule: str) -> Iterator[Pass]:
    """Yield the passes of a stage in their order."""
    if schedule == "dualpipe-v":
        return v_shaped(stage, stages, micro_batches)
    return in_turns(stage, stages, micro_batches, virtual, schedule in ZERO_BUBBLE)


@lru_cache(4096)
def kept_at_peaks(
    stage: int, stages: int, micro_batches: int, weights: tuple[bool, ...], schedule: str
) -> np.ndarray:
    """Return the micro-batches that each chunk of a stage keeps when it may keep most: a row for each moment.

    Its peak is the largest product of a row and the bytes of a micro-batch in each chunk.

    Args:
        weights: Whether each chunk has gradients of weights as passes of their own, which free what it keeps.

    >>> kept_at_peaks(0, 2, 4, (False, False), "interleaved").tolist()
    [[3, 2], [4, 1]]
    """
    # At most two groups of micro-batches are ahead when the first is freed, and the next is freed as passes
    # go by turns: from then on groups repeat the same counts, which only fall at the end. Four have all rows.
    few = min(micro_batches, 4 * stages)
    counts, rising, rows = [0] * len(weights), False, set[tuple[int, ...]]()
    for one in order_of(stage, stages, few, len(weights), schedule):
        chunk = one.chunk // stages
        if one.kind == FORWARD:
            counts[chunk] += 1
            rising = True
        elif one.kind == (WEIGHT if weights[chunk] else BACKWARD):
            if rising:
                rows.add(tuple(counts))
            counts[chunk] -= 1
            rising = False
    return np.array(sorted(rows))


def in_order(orders: Sequence[Sequence[Pass]], chunks: Sequence[Chunk], stages: int) -> Timeline:
    """Return when passes run, each stage's one after another in its order.

    ValueError if the orders wait for each other in a circle.
    """
    last = len(chunks) - 1
    ends: dict[Pass, float] = {}
    clock, place = [0.0] * stages, [0] * stages
    passes: list[list[tuple[Pass, float, float]]] = [[] for _ in range(stages)]
    waiting = list(range(stages))
    while waiting:
        later = []
        moved = False
        for stage in waiting:
            order, at, now = orders[stage], place[stage], clock[stage]
            while at < len(order):
                one = order[at]
                ready = _ready(one, ends, chunks, last)
                if ready is None:
                    break
                begin = max(now, ready)
                end = begin + chunks[one.chunk].seconds(one.kind)
                passes[stage].append((one, begin, end))
                ends[one] = end
                now = end + _busy(one, chunks)
                at += 1
            moved = moved or at > place[stage]
            place[stage], clock[stage] = at, now
            if at < len(order):
                later.append(stage)
        if later and not moved:
            raise ValueError("stages wait for each other")
        waiting = later
    return _timeline(passes, chunks)


def _busy(one: Pass, chunks: Sequence[Chunk]) -> float:
    """Return the seconds in which a stage sends the result of a pass and does nothing else."""
    if one.kind == FORWARD:
        return chunks[one.chunk].busy if one.chunk < len(chunks) - 1 else 0.0
    return chunks[one.chunk - 1].busy if one.kind == BACKWARD and one.chunk else 0.0


def _ready(one: Pass, ends: dict[Pass, float], chunks: Sequence[Chunk], last: int) -> float | None:
    """Return when the data of a pass are ready; None while a pass that it waits for has not run."""
    kind, chunk, i = one
    if kind == FORWARD:
        if chunk == 0:
            return 0.0
        end, send = ends.get(Pass(FORWARD, chunk - 1, i)), chunks[chunk - 1].send
        return None if end is None else end + send
    if kind == WEIGHT:
        return ends.get(Pass(BACKWARD, chunk, i))
    forward_end = ends.get(Pass(FORWARD, chunk, i))
    if chunk == last:
        return forward_end
    end = ends.get(Pass(BACKWARD, chunk + 1, i))
    return None if end is None or forward_end is None else max(forward_end, end + chunks[chunk].send)


def _timeline(passes: list[list[tuple[Pass, float, float]]], chunks: Sequence[Chunk]) -> Timeline:
    curves = []
    for stage in passes:
        now, curve = 0.0, list[tuple[float, float]]()
        for one, begin, end in stage:
            if one.kind == FORWARD:
                now += chunks[one.chunk].kept
                curve.append((begin, now))
            elif one.kind == (WEIGHT if chunks[one.chunk].weight else BACKWARD):
                now -= chunks[one.chunk].kept
                curve.append((end, now))
        curves.append(curve)
    return Timeline(max((stage[-1][2] for stage in passes if stage), default=0.0), passes, curves)


def timeline(chunks: Sequence[Chunk], stages: int, micro_batches: int, schedule: str) -> Timeline:
    """Return when the passes of all micro-batches run.

    Args:
        chunks: Of the whole pipeline in order, ``stages`` or a multiple of it.
        schedule: One of :data:`SCHEDULES`.

    Three equal stages and four micro-batches: the bubble is (p − 1)/(m + p − 1) of the time.

    >>> result = timeline([Chunk(1.0, 2.0)] * 3, 3, 4, "1f1b")
    >>> result.seconds, result.idle
    (18.0, [6.0, 6.0, 6.0])
    >>> timeline([Chunk(1.0, 1.0, 1.0)] * 3, 3, 4, "zero-bubble").seconds < 18.0
    True
    """
    virtual = len(chunks) // stages
    orders = [order_of(x, stages, micro_batches, virtual, schedule) for x in range(stages)]
    # A chunk without weights, such as the embedding alone, has no gradients of them.
    some = [[x for x in order if x.kind != WEIGHT or chunks[x.chunk].weight] for order in orders]
    return in_order(some, chunks, stages)

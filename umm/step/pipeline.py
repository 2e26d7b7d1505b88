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

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
    send: float = 0.0  # seconds from the end of a pass until the next chunk has its result
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


def chunks_per_stage(schedule: str, virtual: int = 1) -> int:
    """Return how many chunks each stage has; ``virtual`` unless the schedule fixes it."""
    return FIXED_CHUNKS.get(schedule, virtual)


def stage_of(chunk: int, stages: int, schedule: str) -> int:
    """Return the stage that has a chunk."""
    if schedule == "dualpipe-v":
        return chunk if chunk < stages else 2 * stages - 1 - chunk
    return chunk % stages


def one_f_one_b(stage: int, stages: int, micro_batches: int) -> list[Pass]:
    """Return the passes of a stage by 1F1B: after a warm-up, forward and backward by turns."""
    ahead = _ahead(stage, stages, micro_batches, 1)
    order = [Pass(FORWARD, stage, i) for i in range(ahead)]
    for i in range(micro_batches - ahead):
        order += [Pass(FORWARD, stage, ahead + i), Pass(BACKWARD, stage, i)]
    return order + [Pass(BACKWARD, stage, i) for i in range(micro_batches - ahead, micro_batches)]


def interleaved(stage: int, stages: int, micro_batches: int, virtual: int) -> list[Pass]:
    """Return the passes of a stage with several chunks: micro-batches go through each chunk by ``stages``."""
    total = micro_batches * virtual

    def at(number: int, backward: bool) -> tuple[int, int]:
        group, place = divmod(number, stages * virtual)
        turn, member = divmod(place, stages)
        return (virtual - 1 - turn if backward else turn), group * stages + member

    def one(kind: int, number: int) -> Pass:
        virtual_chunk, micro_batch = at(number, kind == BACKWARD)
        return Pass(kind, virtual_chunk * stages + stage, micro_batch)

    ahead = _ahead(stage, stages, micro_batches, virtual)
    order = [one(FORWARD, i) for i in range(ahead)]
    for i in range(total - ahead):
        order += [one(FORWARD, ahead + i), one(BACKWARD, i)]
    return order + [one(BACKWARD, i) for i in range(total - ahead, total)]


def _ahead(stage: int, stages: int, micro_batches: int, virtual: int) -> int:
    """Return how many forward passes a stage makes before forward and backward ones by turns."""
    total = micro_batches * virtual
    if virtual == 1:
        ahead = stages - 1 - stage
    else:
        # With as many micro-batches as stages all forward passes come first, as Megatron-LM has it.
        ahead = total if micro_batches == stages else (stages - stage - 1) * 2 + (virtual - 1) * stages
    return min(ahead, total)


def kept_first(stage: int, stages: int, micro_batches: int, virtual: int) -> list[int]:
    """Return how many micro-batches each chunk of a stage keeps before the first backward pass.

    >>> kept_first(0, 2, 4, 2)
    [3, 2]
    """
    number = min(_ahead(stage, stages, micro_batches, virtual) + 1, micro_batches * virtual)
    rounds, place = divmod(number, stages * virtual)
    return [rounds * stages + min(max(place - stages * x, 0), stages) for x in range(virtual)]


def in_order(
    orders: Sequence[Sequence[Pass]], chunks: Sequence[Chunk], stages: int, schedule: str
) -> Timeline:
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
                now = end + (chunks[one.chunk].busy if _sends(one, last) else 0.0)
                at += 1
            moved = moved or at > place[stage]
            place[stage], clock[stage] = at, now
            if at < len(order):
                later.append(stage)
        if later and not moved:
            raise ValueError("stages wait for each other")
        waiting = later
    return _timeline(passes, chunks)


def greedy(chunks: Sequence[Chunk], stages: int, micro_batches: int, schedule: str) -> Timeline:
    """Return a timeline in which a stage does whatever is ready: backward, then forward, then weights.

    A chunk keeps as many micro-batches at most as chunks that are still to come, as 1F1B does; without chunks
    that turn back any stage may keep as many as the first one.

    Args:
        schedule: One of :data:`ZERO_BUBBLE`.
    """
    last, count = len(chunks) - 1, len(chunks)
    places = [[c for c in range(count) if stage_of(c, stages, schedule) == s] for s in range(stages)]
    room = [count - c if schedule == "dualpipe-v" else count for c in range(count)]
    clock = [0.0] * stages
    ends: dict[Pass, float] = {}
    passes: list[list[tuple[Pass, float, float]]] = [[] for _ in range(stages)]
    next_of = {(kind, c): 0 for kind in (FORWARD, BACKWARD, WEIGHT) for c in range(count)}
    left = [micro_batches * sum(3 if chunks[c].weight else 2 for c in x) for x in places]
    events = [(0.0, s) for s in range(stages)]
    heapq.heapify(events)
    while any(left):
        now, stage = heapq.heappop(events)
        if now < clock[stage] or not left[stage]:
            continue  # it is busy until then, and looked at again
        choices, soonest = [], float("inf")
        for c in places[stage]:
            for rank, kind in enumerate((BACKWARD, FORWARD, WEIGHT)):
                i = next_of[kind, c]
                if i >= micro_batches or (kind == WEIGHT and not chunks[c].weight):
                    continue
                if kind == WEIGHT and next_of[BACKWARD, c] <= i:
                    continue
                if kind == FORWARD and i - next_of[BACKWARD, c] >= room[c]:
                    continue
                ready = _ready(Pass(kind, c, i), ends, chunks, last)
                if ready is None:
                    continue
                if ready <= now:
                    # Of forward passes that of the later chunk first: it is nearer to freeing what is kept.
                    choices.append((rank, -c if kind == FORWARD else c, kind, c))
                else:
                    soonest = min(soonest, ready)
        if not choices:
            if soonest < float("inf"):
                heapq.heappush(events, (soonest, stage))
            continue
        _, _, kind, c = min(choices)
        one = Pass(kind, c, next_of[kind, c])
        end = now + chunks[c].seconds(kind)
        passes[stage].append((one, now, end))
        ends[one] = end
        next_of[kind, c] += 1
        clock[stage] = end + (chunks[c].busy if _sends(one, last) else 0.0)
        left[stage] -= 1
        heapq.heappush(events, (clock[stage], stage))
        for other in range(stages):  # somebody may wait for this pass
            if other != stage and left[other]:
                heapq.heappush(events, (max(clock[other], end + chunks[c].send), other))
    return _timeline(passes, chunks)


def _sends(one: Pass, last: int) -> bool:
    return (one.kind == FORWARD and one.chunk < last) or (one.kind == BACKWARD and one.chunk > 0)


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
    return None if end is None or forward_end is None else max(forward_end, end + chunks[chunk + 1].send)


def _timeline(passes: list[list[tuple[Pass, float, float]]], chunks: Sequence[Chunk]) -> Timeline:
    curves = []
    for stage in passes:
        now, curve = 0.0, list[tuple[float, float]]()
        for one, begin, end in stage:
            if one.kind == FORWARD:
                now += chunks[one.chunk].kept
                curve.append((begin, now))
            elif one.kind == BACKWARD:
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
    if schedule in ZERO_BUBBLE:
        return greedy(chunks, stages, micro_batches, schedule)
    if len(chunks) > stages:
        virtual = len(chunks) // stages
        orders = [interleaved(stage, stages, micro_batches, virtual) for stage in range(stages)]
    else:
        orders = [one_f_one_b(stage, stages, micro_batches) for stage in range(stages)]
    return in_order(orders, chunks, stages, schedule)

"""Microbenchmarks of a host: multiplies and gets, all ranks at once.

Each is a program of a transport. Ranks start every measurement together, because in a run they are all busy;
what comes back is each repeat with the pace of the core about it. Repeats of one measurement are apart in
time, with all others in between, so that a disturbance of the host meets few of each.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from time import perf_counter, thread_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umm.dtypes import itemsize
from umm.program.functions.registry import function
from umm_hw.cores.pace import Pace, Paced, Reading, beside
from umm_hw.gemm import multiply
from umm_hw.transport import Block, Transport

SHORTEST = 2e-3  # seconds a repeat takes at least, by calling several times
SHARE_SECONDS = 0.5  # seconds of computing that show whether others use the cores
REGION = 2**25  # bytes that are gone through: of all ranks more than the caches they share hold
SLOTS = 3  # buffers that tiles are got into, one after the other, as in a run
PLACES = 1000  # tiles of a shape that are multiplied in turn, at most


class Stopwatch:
    """Takes the time of an action; a quick one is done many times for one time."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action
        action()
        began = perf_counter()
        action()
        self._calls = max(1, int(SHORTEST / max(perf_counter() - began, 1e-7)))

    def reading(self) -> Reading:
        """Return the seconds of one call, and the share of its core that the calling thread had."""
        if self._calls > 1:
            self._action()  # its data are in the cache again
        began, computed = perf_counter(), thread_time()
        for _ in range(self._calls):
            self._action()
        seconds = perf_counter() - began
        return Reading(seconds / self._calls, (thread_time() - computed) / seconds)


def timed(action: Callable[[], object], repeats: int) -> list[float]:
    """Return the seconds of one call, for each repeat."""
    stopwatch = Stopwatch(action)
    return [stopwatch.reading().seconds for _ in range(repeats)]


def share_of_core(transport: Transport) -> float:
    """Return which share of the time a rank that only computes gets a core, all ranks at once."""
    a, c = (np.full((256, 256), 1e-3, np.float32) for _ in range(2))
    transport.barrier()
    began, computed = perf_counter(), thread_time()
    while perf_counter() - began < SHARE_SECONDS:
        multiply(a, a, c, beta=1.0)
    return (thread_time() - computed) / (perf_counter() - began)


def gemms(
    transport: Transport, dtype: str, c_dtype: str, shapes: Sequence[tuple[int, int, int]], repeats: int
) -> list[list[Paced]]:
    """Return the repeats of a local multiply that adds to C, for each shape (m, n, k), all ranks at once."""
    factors = [_Tiles(transport, x) for x in (dtype, dtype, c_dtype)]
    return _in_turn(transport, [_multiply(factors, *shape) for shape in shapes], repeats)


def gets(transport: Transport, wanted: Sequence[tuple[int, int]], repeats: int) -> list[list[Paced]]:
    """Return the repeats of gets of whole tiles from the next rank.

    Args:
        transport: How this rank reaches the others.
        wanted: Of each its bytes, and how many ranks, from 0 on, do it at once while the others rest.
    """
    heap = transport.allocate([2 * REGION] * transport.size)
    actions = [_get(transport, heap, nbytes) if transport.rank < ranks else None for nbytes, ranks in wanted]
    return _in_turn(transport, actions, repeats)


def passes(transport: Transport, dtype: str, sizes: Sequence[int], repeats: int) -> list[list[Paced]]:
    """Return the repeats of passes of NumPy over arrays, all ranks at once: of each size each of KINDS.

    For arithmetic gelu is performed: a series of some 50 passes, with two of exp's kind and a choice.
    """
    rng = np.random.default_rng(transport.rank)
    actions = list[Callable[[], object]]()
    for size in sizes:
        a, b = rng.standard_normal((2, size // itemsize(dtype))).astype(dtype)
        actions += [
            partial(function("gelu").form, a),
            partial(np.exp, a),
            partial(lambda a, b: np.where(a, b, 1.0), a > 0, b),
            partial(lambda a: a**3, a),
        ]
    return _in_turn(transport, actions, repeats)


def _in_turn(
    transport: Transport, actions: Sequence[Callable[[], object] | None], repeats: int
) -> list[list[Paced]]:
    """Return the repeats of each action, one after the other again and again, all ranks at the same one."""
    # Where this rank has none it rests, and returns no repeats.
    pace = Pace()
    stopwatches: list[Stopwatch | None] = []
    results: list[list[Paced]] = [[] for _ in actions]
    for action in actions:
        transport.barrier()
        stopwatches.append(Stopwatch(action) if action else None)
    for _ in range(repeats):
        before = pace.reading()
        for place, stopwatch in enumerate(stopwatches):
            transport.barrier()
            if stopwatch:
                took, after = stopwatch.reading(), pace.reading()
                results[place].append(beside(took, before, after))
                before = after
    transport.barrier()
    return results


def _get(transport: Transport, heap: int, nbytes: int) -> Callable[[], object]:
    """Return a function that gets once, another tile into another buffer at each call, as a lane does."""
    peer, kind = (transport.rank + 1) % transport.size, np.dtype(np.uint8)
    tiles, buffers = (max(1, min(most, REGION // nbytes)) for most in (REGION, SLOTS))
    turn = cycle(
        Block(peer, heap, REGION + place * nbytes, 1, nbytes, nbytes, kind) for place in range(tiles)
    )
    into = cycle(
        transport.view(Block(transport.rank, heap, place * nbytes, 1, nbytes, nbytes, kind))
        for place in range(buffers)
    )
    return lambda: transport.get(next(turn), next(into))


class _Tiles:
    """Tiles of any shape in memory that all ranks reach, as those of a run are: more than the caches hold."""

    def __init__(self, transport: Transport, dtype: str) -> None:
        elements = REGION // itemsize(dtype)
        heap = transport.allocate([REGION] * transport.size)
        self._flat = transport.view(Block(transport.rank, heap, 0, 1, elements, elements, np.dtype(dtype)))[0]
        self._flat[...] = 1e-3
        self._of_shape: dict[tuple[int, int], list[NDArray[Any]]] = {}

    def of_shape(self, rows: int, cols: int) -> list[NDArray[Any]]:
        """Return tiles that do not overlap, at most PLACES."""
        if (rows, cols) not in self._of_shape:
            count = min(PLACES, self._flat.size // (rows * cols))
            tiles = self._flat[: count * rows * cols].reshape(count, rows, cols)
            self._of_shape[rows, cols] = list(tiles)
        return self._of_shape[rows, cols]


def _multiply(factors: Sequence[_Tiles], m: int, n: int, k: int) -> Callable[[], object]:
    """Return a function that multiplies once: in turn one of its three tiles is that of the call before."""
    # So it is in a run: gemms that follow one another share a tile, A's, B's or C's by the layout. Small ones
    # are 10 % faster where A is in the core's cache than where none is.
    sides = ((m, k), (k, n), (m, n))
    turns = [cycle(tiles.of_shape(*shape)) for tiles, shape in zip(factors, sides, strict=True)]
    now = [next(turn) for turn in turns]
    kept = cycle(range(3))

    def multiply_next() -> None:
        keep = next(kept)
        for place, turn in enumerate(turns):
            if place != keep:
                now[place] = next(turn)
        a, b, c = now
        multiply(a, b, c, beta=1.0)

    return multiply_next

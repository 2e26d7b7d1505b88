"""What a host does in small: multiplies, gets, accumulates, gemms disturbed by transfers; all ranks at once.

Each is a program of a transport. Ranks start every measurement together, because in a run they are all busy;
what comes back is seconds for each repeat, of which the caller takes quantiles. Repeats of one measurement
are apart in time, with all others in between, so that a disturbance of the host meets few of each.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from threading import Event, Thread
from time import perf_counter, thread_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umm_hw.gemm import multiply
from umm_hw.transport import Block, Transport

Seconds = list[float]
SHORTEST = 2e-3  # seconds a repeat takes at least, by calling several times
SHARE_SECONDS = 0.5  # seconds of computing that show whether others use the cores
REGION = 2**26  # bytes that transfers go through, more than most caches hold


class Stopwatch:
    """Takes the time of an action; a quick one is done many times for one time."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action
        action()
        began = perf_counter()
        action()
        self._calls = max(1, int(SHORTEST / max(perf_counter() - began, 1e-7)))

    def seconds(self) -> float:
        """Return the seconds of one call."""
        if self._calls > 1:
            self._action()  # its data are in the cache again
        began = perf_counter()
        for _ in range(self._calls):
            self._action()
        return (perf_counter() - began) / self._calls


def timed(action: Callable[[], object], repeats: int) -> Seconds:
    """Return the seconds of one call, for each repeat."""
    stopwatch = Stopwatch(action)
    return [stopwatch.seconds() for _ in range(repeats)]


def share_of_core(transport: Transport) -> float:
    """Return which share of the time a rank that only computes gets a core, all ranks at once."""
    a, c = _ones((256, 256), "float32"), _ones((256, 256), "float32")
    transport.barrier()
    began, computed = perf_counter(), thread_time()
    while perf_counter() - began < SHARE_SECONDS:
        multiply(a, a, c, beta=1.0)
    return (thread_time() - computed) / (perf_counter() - began)


def gemms(
    transport: Transport, dtype: str, c_dtype: str, shapes: Sequence[tuple[int, int, int]], repeats: int
) -> list[Seconds]:
    """Return the seconds of a local multiply that adds to C, for each shape (m, n, k), all ranks at once."""
    most = [max(sizes) for sizes in zip(*shapes, strict=True)]
    a, b = _ones((most[0], most[2]), dtype), _ones((most[2], most[1]), dtype)
    c = _ones((most[0], most[1]), c_dtype)
    # Blocks of larger matrices, as slices of tiles are.
    actions = [partial(multiply, a[:m, :k], b[:k, :n], c[:m, :n], True) for m, n, k in shapes]
    return _in_turn(transport, actions, repeats)


def transfers(
    transport: Transport, kind: str, sizes: Sequence[int], pairs: int, repeats: int
) -> list[Seconds]:
    """Return the seconds of a get from or an accumulate to the next rank, for each size in bytes.

    Args:
        transport: How this rank reaches the others.
        kind: ``get``, ``accumulate``, or ``local`` for an accumulate to this rank itself.
        sizes: Bytes.
        pairs: How many ranks, from 0 on, transfer at once; the others rest.
        repeats: How often.
    """
    heap = transport.allocate([2 * REGION] * transport.size)
    actions = [_transfer(transport, heap, kind, nbytes) for nbytes in sizes]
    return _in_turn(transport, actions, repeats, rests=transport.rank >= pairs)


def disturbed(
    transport: Transport, kind: str, nbytes: int, dtype: str, size: int, repeats: int
) -> list[tuple[float, float, float]]:
    """Return how gemms slow down while a lane of the same rank transfers, all ranks at once.

    Returns:
        For each repeat the seconds of a series of gemms alone, of the same series with transfers beside it
        all the time, and of these transfers alone.
    """
    heap = transport.allocate([2 * REGION] * transport.size)
    a, b, c = (_ones((size, size), dtype) for _ in range(3))
    action = _transfer(transport, heap, kind, nbytes)
    one = min(timed(lambda: multiply(a, b, c, beta=1.0), 3))
    series = max(1, int(0.1 / one))

    def seconds_of_gemms() -> float:
        began = perf_counter()
        for _ in range(series):
            multiply(a, b, c, beta=1.0)
        return perf_counter() - began

    found = []
    transfer = Stopwatch(action)
    for _ in range(repeats):
        transport.barrier()
        one_transfer = transfer.seconds()
        transport.barrier()
        alone = seconds_of_gemms()
        transport.barrier()
        enough, count = Event(), [0]

        def keep_moving(enough: Event = enough, count: list[int] = count) -> None:
            while not enough.is_set():
                action()
                count[0] += 1

        thread = Thread(target=keep_moving)
        thread.start()
        beside = seconds_of_gemms()
        enough.set()
        thread.join()
        found.append((alone, beside, count[0] * one_transfer))
    return found


def _in_turn(
    transport: Transport, actions: Sequence[Callable[[], object]], repeats: int, rests: bool = False
) -> list[Seconds]:
    """Return the seconds of each action, one after the other again and again, all ranks at the same one."""
    stopwatches: list[Stopwatch] = []
    found: list[Seconds] = [[] for _ in actions]
    for action in actions:
        transport.barrier()
        if not rests:
            stopwatches.append(Stopwatch(action))
    for _ in range(repeats):
        for place in range(len(actions)):
            transport.barrier()
            if not rests:
                found[place].append(stopwatches[place].seconds())
    transport.barrier()
    return found


def _transfer(transport: Transport, heap: int, kind: str, nbytes: int) -> Callable[[], object]:
    """Return what transfers once, each time other bytes of the heap, so that they come from memory."""
    peer = transport.rank if kind == "local" else (transport.rank + 1) % transport.size
    elements = nbytes // 4

    def block(rank: int, place: int, half: int) -> Block:
        offset = half * REGION + place * nbytes
        return Block(rank, heap, offset, 1, elements, elements, np.dtype(np.float32))

    places = range(max(1, REGION // nbytes))
    here = [transport.view(block(transport.rank, place, 0)) for place in places]
    there = [block(peer, place, 1) for place in places]
    turn = cycle(zip(here, there, strict=True))

    def move() -> None:
        array, other = next(turn)
        if kind == "get":
            transport.get(other, array)
        else:
            transport.accumulate(array, other)

    return move


def _ones(shape: tuple[int, int], dtype: str) -> NDArray[Any]:
    return np.full(shape, 1e-3, dtype)

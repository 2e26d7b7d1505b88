"""What a host does in small: multiplies, gets, accumulates, gemms beside transfers; all ranks at once.

Each is a program of a transport. Ranks start every measurement together, because in a run they are all busy;
what comes back is each repeat with the pace of the core about it. Repeats of one measurement are apart in
time, with all others in between, so that a disturbance of the host meets few of each.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle, islice, product
from threading import Thread
from time import perf_counter, sleep, thread_time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from umm.dtypes import itemsize
from umm_hw.cores.pace import Pace, Paced, beside
from umm_hw.cores.threads import answer_quickly
from umm_hw.gemm import multiply
from umm_hw.transport import Block, Transport

SHORTEST = 2e-3  # seconds a repeat takes at least, by calling several times
SHARE_SECONDS = 0.5  # seconds of computing that show whether others use the cores
REGION = 2**25  # bytes that are gone through: of all ranks more than the caches they share hold
WIDTH, STRIDE = 256, 768  # columns of the blocks that are accumulated into, and of the tiles they lie in
SERIES = 0.02  # seconds of gemms that transfers run beside
PLACES = 1000  # where the blocks lie that are multiplied in turn, at most
MOVING = 0.3  # share of that time the transfers take


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


def timed(action: Callable[[], object], repeats: int) -> list[float]:
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
) -> list[list[Paced]]:
    """Return the repeats of a local multiply that adds to C, for each shape (m, n, k), all ranks at once."""
    m, n, k = (max(sizes) for sizes in zip(*shapes, strict=True))
    a = _tiles(transport, m, k, dtype)
    b, c = (_tiles(transport, *sides, count=1) for sides in ((k, n, dtype), (m, n, c_dtype)))
    return _in_turn(transport, [_multiply(a, b, c, *shape) for shape in shapes], repeats)


def transfers(
    transport: Transport, wanted: Sequence[tuple[str, int, int]], repeats: int
) -> list[list[Paced]]:
    """Return the repeats of transfers from or to the next rank.

    Args:
        transport: How this rank reaches the others.
        wanted: Of each its kind, its bytes, and how many ranks, from 0 on, do it at once while the others
            rest. The kinds are ``get`` of a whole tile, ``accumulate`` into a block of a tile, and ``local``,
            an accumulate into a block of this rank's own.
        repeats: How often.
    """
    heap = transport.allocate([2 * REGION] * transport.size)
    actions = [
        _transfer(transport, heap, kind, nbytes) if transport.rank < pairs else None
        for kind, nbytes, pairs in wanted
    ]
    return _in_turn(transport, actions, repeats)


class Beside(NamedTuple):
    """A series of gemms with and without transfers beside it.

    Attributes:
        alone: The series without.
        both: The series with them.
        times: How many transfers.
        one: One of them alone.
    """

    alone: Paced
    both: Paced
    times: int
    one: Paced

    @property
    def share(self) -> float:
        """The least share of a core in the readings about them."""
        return min(self.alone.share, self.both.share, self.one.share)

    @property
    def reading(self) -> float:
        """The slowest of these readings, in seconds."""
        return max(self.alone.reading, self.both.reading, self.one.reading)


def gemms_beside(
    transport: Transport, wanted: Sequence[tuple[str, int]], dtype: str, repeats: int
) -> list[list[Beside]]:
    """Return how gemms slow down while a lane of the same rank transfers now and then, all ranks at once.

    Args:
        transport: How this rank reaches the others.
        wanted: Of each transfer its kind and its bytes, as for ``transfers``.
        dtype: Type of the gemms.
        repeats: How often.
    """
    heap = transport.allocate([2 * REGION] * transport.size)
    pace = Pace()
    a, b, c = (_ones(shape, dtype) for shape in ((WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH), (WIDTH, WIDTH)))
    series = max(1, int(SERIES / min(timed(lambda: multiply(a, b, c, beta=1.0), 3))))
    actions = [_transfer(transport, heap, kind, nbytes) for kind, nbytes in wanted]
    counts = [max(1, int(MOVING * SERIES / min(timed(action, 3)))) for action in actions]
    stopwatches = [Stopwatch(action) for action in actions]

    def gemms() -> float:
        began = perf_counter()
        for _ in range(series):
            multiply(a, b, c, beta=1.0)
        return perf_counter() - began

    def with_transfers(place: int) -> float:
        thread = Thread(target=_now_and_then, args=(actions[place], counts[place]))
        thread.start()
        seconds = gemms()
        thread.join()
        return seconds

    found: list[list[Beside]] = [[] for _ in wanted]
    for _ in range(repeats):
        for place, stopwatch in enumerate(stopwatches):
            readings, seconds = [], []
            for measured in (stopwatch.seconds, gemms, partial(with_transfers, place)):
                transport.barrier()
                readings.append(pace.reading())
                transport.barrier()
                seconds.append(measured())
            transport.barrier()
            readings.append(pace.reading())
            one, alone, both = (beside(x, *readings[i : i + 2]) for i, x in enumerate(seconds))
            found[place].append(Beside(alone, both, counts[place], one))
    return found


def _now_and_then(action: Callable[[], object], count: int) -> None:
    """Do something so many times, a while apart, as a lane does that waits for its gemms."""
    answer_quickly()
    began = perf_counter()
    for number in range(count):
        sleep(max(0.0, began + (number + 0.5) * SERIES / count - perf_counter()))
        action()


def _in_turn(
    transport: Transport, actions: Sequence[Callable[[], object] | None], repeats: int
) -> list[list[Paced]]:
    """Return the repeats of each action, one after the other again and again, all ranks at the same one.

    Where this rank has none it rests, and returns no repeats.
    """
    pace = Pace()
    stopwatches: list[Stopwatch | None] = []
    found: list[list[Paced]] = [[] for _ in actions]
    for action in actions:
        transport.barrier()
        stopwatches.append(Stopwatch(action) if action else None)
    for _ in range(repeats):
        before = pace.reading()
        for place, stopwatch in enumerate(stopwatches):
            transport.barrier()
            if stopwatch:
                seconds, after = stopwatch.seconds(), pace.reading()
                found[place].append(beside(seconds, before, after))
                before = after
    transport.barrier()
    return found


def _transfer(transport: Transport, heap: int, kind: str, nbytes: int) -> Callable[[], object]:
    """Return what transfers once, each time another tile into or out of one buffer, as a lane does."""
    peer = transport.rank if kind == "local" else (transport.rank + 1) % transport.size
    elements = nbytes // 4
    cols = elements if kind == "get" else min(WIDTH, elements)
    rows = elements // cols
    stride = cols if kind == "get" else STRIDE
    buffer = transport.view(Block(transport.rank, heap, 0, rows, cols, cols, np.dtype(np.float32)))
    apart = rows * stride * 4
    turn = cycle(
        Block(peer, heap, REGION + place * apart, rows, cols, stride, np.dtype(np.float32))
        for place in range(max(1, REGION // apart))
    )

    def move() -> None:
        if kind == "get":
            transport.get(next(turn), buffer)
        else:
            transport.accumulate(buffer, next(turn))

    return move


def _tiles(transport: Transport, rows: int, cols: int, dtype: str, count: int | None = None) -> NDArray[Any]:
    """Return tiles in memory that all ranks reach, as those of a run are; as many as REGION holds."""
    count = count or max(1, REGION // (rows * cols * itemsize(dtype)))
    elements = count * rows * cols
    heap = transport.allocate([elements * itemsize(dtype)] * transport.size)
    flat = transport.view(Block(transport.rank, heap, 0, 1, elements, elements, np.dtype(dtype)))
    flat[...] = 1e-3
    tiles: NDArray[Any] = flat.reshape(count, rows, cols)
    return tiles


def _multiply(
    a: NDArray[Any], b: NDArray[Any], c: NDArray[Any], m: int, n: int, k: int
) -> Callable[[], object]:
    """Return what multiplies blocks of tiles once, each time another one of A.

    So do the gemms of a rank, most of which find a block that they read or add to still in their caches.
    """
    turn = cycle(_blocks(a, m, k))
    right, into = b[0, :k, :n], c[0, :m, :n]

    def multiply_next() -> None:
        multiply(next(turn), right, into, beta=1.0)

    return multiply_next


def _blocks(tiles: NDArray[Any], rows: int, cols: int) -> list[NDArray[Any]]:
    """Return blocks of tiles that do not overlap, at most PLACES."""
    height, width = tiles.shape[1:]
    corners = product(range(0, height - rows + 1, rows), range(0, width - cols + 1, cols), range(len(tiles)))
    return [tiles[tile, i : i + rows, j : j + cols] for i, j, tile in islice(corners, PLACES)]


def _ones(shape: tuple[int, int], dtype: str) -> NDArray[Any]:
    return np.full(shape, 1e-3, dtype)

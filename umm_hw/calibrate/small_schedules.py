"""Small schedules that show an action's overhead: alone, in a chain, beside gemms."""

from itertools import product
from math import nan
from typing import NamedTuple

import numpy as np

from umm.algorithms.scheduling import schedule
from umm.algorithms.writing import brought
from umm.arrays import Floats
from umm.dtypes import itemsize
from umm.machines import Machine, machine
from umm.machines.files import shipped_folder
from umm.program.problem import Problem
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import ACCUMULATE, GEMM, GET
from umm.schedules.writer.builder import Builder
from umm_hw.cores.pace import Paced

KINDS = {"get": ("get",), "accumulate": ("accumulate", "in"), "local": ("local", "own in")}
"""Kinds of transfers beside gemms, and the schedules that show them: of tiles, then blocks of larger ones."""
TILES = 2**24  # bytes of C beside whose gemms transfers run, at least, of all ranks together
COLUMNS = 16  # of its tiles, at least: large tiles come from memory, small ones from caches, as in runs
TINY = 16  # rows, columns and length of the gemms
TINY_GEMMS = 400
SIGNALS = 200
GETS_AGAIN = 8


class Watched(NamedTuple):
    """A run of a small schedule."""

    seconds: float  # what all of it took
    reading: float  # the pace about it, in seconds
    share: float  # the least share of a core
    # Seconds from the end of a gemm to the end of the next, with a transfer of the rank meanwhile less those
    # without, in the means; nan if there is none.
    cost: float = nan
    own: float = nan  # what a transfer took from its start to its end, in the mean

    def at(self, pace: float) -> "Watched":
        """Return it as it would be at a pace, given by its reading in seconds."""
        scale = pace / self.reading
        return Watched(self.seconds * scale, pace, self.share, self.cost * scale, self.own * scale)


def watched(schedule: Schedule, paced: Paced, start: Floats, end: Floats) -> Watched:
    """Return a run of a schedule from the starts and ends of its actions."""
    moves = np.isin(schedule.kind, (GET, ACCUMULATE))
    if not moves.any():
        return Watched(*paced)
    times: list[list[float]] = [[], []]  # without and with a transfer
    for rank in range(schedule.ranks):
        ends = np.sort(end[(schedule.rank == rank) & (schedule.kind == GEMM)])
        begun = np.histogram(start[moves & (schedule.rank == rank)], ends)[0]
        for step, number in zip(np.diff(ends), np.minimum(begun, 1), strict=True):
            times[number].append(float(step))
    without, with_one = (float(np.mean(x)) if x else nan for x in times)
    return Watched(*paced, with_one - without, float((end - start)[moves].mean()))


def tiny_gemms(ranks: int, dtype: str) -> Schedule:
    """Return a schedule in which each rank multiplies its own tiny tiles, TINY_GEMMS of them."""
    columns = 20
    problem = Problem(
        m=TINY * ranks,
        n=TINY * columns,
        k=TINY * TINY_GEMMS // columns,
        a="row",
        b=f"cyclic:{TINY}x{TINY}:1x1@{ranks}",
        c="row",
        dtype=dtype,
        ranks=ranks,
    )
    return schedule(problem, _host(), stationary="C", prefetch=0, max_gemms=1, reuse=False)


def signals(ranks: int, dtype: str) -> Schedule:
    """Return a schedule in which a tiny tile goes round all ranks: each waits for the one before it."""
    problem = Problem(m=TINY * ranks, n=TINY, k=TINY, a="row", b="row", c="row", dtype=dtype, ranks=ranks)
    build = Builder("signals", problem, _host())
    piece = build.tile("A", 0, 0)
    for step in range(1, SIGNALS + 1):
        piece = brought(build, piece, step % ranks, step % 2)
    return build.schedule()


def gemms_beside(ranks: int, dtype: str, side: int, kind: str) -> Schedule:
    """Return a schedule of square gemms of all ranks, every second one with a transfer beside it.

    Args:
        dtype: Type of the tiles.
        side: Rows and columns of each.
        kind: ``get``: each gemm adds to a tile of C and reads one of B, every second of which a peer has.
            ``accumulate`` and ``local``: every second product is added to a tile of C of a peer, or an own.
            ``in`` and ``own in``: to a block in a larger tile.
    """
    columns = max(COLUMNS, TILES // (2 * ranks * side * side * itemsize(dtype)))
    everywhere, by_rows = f"cyclic:{side}x{side}:1x1@{ranks}", f"cyclic:{side}x{side}:{ranks}x1"
    gets, tiles = kind == "get", not kind.endswith("in")
    problem = Problem(
        m=2 * ranks * side,
        n=columns * side,
        k=ranks * side if gets else side,
        a=by_rows if gets else everywhere,
        b=by_rows if gets else everywhere,
        c=by_rows if tiles else "row",
        dtype=dtype,
        ranks=ranks,
    )
    build = Builder("gemms_beside", problem, _host())
    for step, rank in product(range(2 * columns), range(ranks)):
        block, j = divmod(step, columns)
        other = (rank + step % 2) % ranks  # the peer at every second step
        if gets:
            c = build.tile("C", rank + ranks * block, j)
            a, b = build.tile("A", rank + ranks * block, other), build.tile("B", other, j)
            build.gemm(c, a, brought(build, b, rank, step // 2 % 2))
            continue
        owner = other if kind in ("accumulate", "in") else rank
        row = owner + ranks * block if tiles else 2 * owner + block
        a, b = build.tile("A", row, 0, rank), build.tile("B", 0, j, rank)
        c = build.tile("C", row, j) if tiles else build.own("C", owner, a.rows, b.cols)
        aside = build.temporary(rank, "C", c.rows, c.cols, step % 4)
        build.gemm(aside, a, b, beta=0.0)
        if step % 2:
            build.accumulate(aside, c)
    return build.schedule()


def gets_again(ranks: int, dtype: str, nbytes: int) -> Schedule:
    """Return a schedule of gemms of all ranks, every second of which reads one and the same tile of a peer's.

    Each rank gets that tile, of so many bytes, GETS_AGAIN times, and multiplies an own one between.
    """
    rows, cols = 64, 512
    k = nbytes // (cols * itemsize(dtype))
    problem = Problem(
        m=2 * GETS_AGAIN * rows,
        n=ranks * cols,
        k=k,
        a=f"cyclic:{rows}x{k}:1x1@{ranks}",
        b=f"cyclic:{k}x{cols}:1x{ranks}",
        c=f"cyclic:{rows}x{cols}:1x1@{ranks}",
        dtype=dtype,
        ranks=ranks,
    )
    build = Builder("gets_again", problem, _host())
    for step, rank in product(range(2 * GETS_AGAIN), range(ranks)):
        j = (rank + step % 2) % ranks  # the peer's at every second step
        a, b, c = build.tile("A", step, 0, rank), build.tile("B", 0, j), build.tile("C", step, j, rank)
        build.gemm(c, a, brought(build, b, rank, step // 2 % 2))
    return build.schedule()


def _host() -> Machine:
    """Return the shipped file, not the user's, which may lack the type."""
    return machine(shipped_folder() / "localhost.toml")

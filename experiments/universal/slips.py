"""Slips of the paper's text: what it prints, and what that would do."""

from collections.abc import Iterator

import numpy as np

import umm
from experiments.common.ledger import Entry, given, refuted, reproduced
from experiments.common.machines import shipped
from experiments.common.published import published
from umm import Interval, Layout
from umm.executor import executor
from umm.schedules.kinds import ACCUMULATE
from umm.schedules.races import races

MISALIGNED = {"m": 6000, "n": 4500, "k": 5100, "a": "row", "b": "2d:3x2", "c": "col", "ranks": 6}


def entries() -> Iterator[Entry]:
    """Yield the entries of the slips."""
    m, n, k = 12, 12, 18
    as_printed, as_meant = (covered(m, n, k, use) for use in (0, 1))
    yield refuted(
        "the tiles of B that meet a tile of A are those that overlap `a_bounds[0]`",
        "algorithm 1, line 20",
        f"12x12x18 on 6 ranks: as printed {as_printed} of {m * n * k} multiply-adds are done, with "
        f"`a_bounds[1]` {as_meant}",
        as_printed != m * n * k == as_meant,
        "B's rows are indexed by k, A's column range",
    )
    yield refuted(
        "the slice of A is `{:,:b_bounds[0]}`, the op is `(a_idx, b_idx, {i, j}, …)`",
        "algorithm 2, lines 13 and 32",
        "algorithm 2 has no i, and the printed slice names no columns; `{:, b_bounds[0]}` and "
        "`(a_idx, {k, j}, c_idx)` are used: every multiply-add once, see algorithms 1 and 2 below",
        True,
        "a misprint",
    )
    dividing = [c for c in range(1, 13) if 12 % c == 0]
    yield refuted(
        "the replication factor must be divisible by the number of processes",
        "section 2.1",
        f"of p = 12 the factors are {', '.join(map(str, dividing))}: c divides p",
        all(12 % c == 0 for c in dividing) and 2 % 12 != 0,
        "the other way round",
    )
    yield from _links()
    yield _offset()
    yield _race()


def covered(m: int, n: int, k: int, use: int) -> int:
    """Return how many multiply-adds algorithm 1 does; B's rows meet A's rows (0) or columns (1)."""
    a, b, c = (
        Layout.parse(text, shape, 6)
        for text, shape in (("2d:3x2", (m, k)), ("2d:2x3", (k, n)), ("row", (m, n)))
    )
    done = np.zeros((m, n, k), dtype=bool)
    for i in range(c.grid_shape()[0]):
        rows, cols = c.tile_bounds((i, 0))
        for a_tile in a.overlapping_tiles(rows, Interval(0, k)):
            a_bounds = a.tile_bounds(a_tile)
            for b_tile in b.overlapping_tiles(a_bounds[use], cols):
                b_rows, b_cols = b.tile_bounds(b_tile)
                inner = a_bounds[1].intersect(b_rows)
                done[rows.intersect(a_bounds[0]).slice, cols.intersect(b_cols).slice, inner.slice] = True
    return int(done.sum())


def _links() -> Iterator[Entry]:
    said = published("universal")["pvc"]
    pvc, planes = (shipped(x).bandwidth_matrix() / 1e9 for x in ("pvc-12", "pvc-12-planes"))
    got = (
        f"`pvc-12` has {pvc[0, 2]:g} and {pvc[0, 1]:g} GB/s (section 5.2), `pvc-12-planes` {planes[0, 3]:g} "
        f"(table 2) and {planes[0, 1]:g} (measured on Aurora); the files say why"
    )
    yield given(
        "a PVC link has 26.5 GB/s, or 20 GB/s and 230 GB/s between the tiles of a GPU",
        "table 2; section 5.2",
        got,
        [planes[0, 3], pvc[0, 2]] == said["link_gbs"] and pvc[0, 1] == said["pair_gbs"],
        "fabric.bandwidth, fabric.group.bandwidth",
    )


def _offset() -> Entry:
    problem, makespan = umm.Problem(**MISALIGNED), executor("sim").makespan
    seconds = {
        x: makespan(umm.schedule(problem, shipped("pvc-12"), stationary="C", offset=x))
        for x in ("none", "index", "rotate")
    }
    said = ", ".join(f"{x} {1e3 * y:.2f} ms" for x, y in seconds.items())
    return reproduced(
        "the iteration offset adds the indices i + j; for misaligned tiles that is no offset in k",
        "section 4.2",
        f"row × 2-D 3x2 → column on 6 tiles of `pvc-12`: {said}; `rotate` goes over the merged k boundaries",
        len(set(seconds.values())) == len(seconds),
        "offset",
    )


def _race() -> Entry:
    problem = umm.Problem(m=96, n=96, k=96, a="col", b="row", c="row", ranks=8)
    schedule = umm.schedule(problem, shipped("h100-8"), stationary="B")
    adds = schedule.kind == ACCUMULATE
    own = int((adds & (schedule.src == schedule.dst)).sum())
    return refuted(
        "a local tile of C is updated in place by the local GEMM",
        "section 4.2",
        f"col × row → row, stationary B, 8 ranks: {own} of {int(adds.sum())} accumulates are a "
        "rank's into its "
        f"own tile, and {len(races(schedule))} races are left",
        own == 8 and not races(schedule),
        "others accumulate into the same tile at the same time; it takes its owner's part by accumulate too",
    )

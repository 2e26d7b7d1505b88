"""Slips of the paper's text: the printed form, and its effect."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

import umm
from experiments.common.ledger import Entry, given, refuted, reproduced
from experiments.common.machines import shipped
from experiments.common.published import published
from umm import Interval, Layout
from umm.errors import LayoutError
from umm.executor import executor
from umm.schedules.races import races
from umm.schedules.table.details import ACCUMULATE, GEMM

MISALIGNED = {"m": 6000, "n": 4500, "k": 5100, "a": "row", "b": "2d:3x2", "c": "col", "ranks": 6}
SIZES = (12, 12, 18)  # m, n, k of what algorithms 1 and 2 are tried on


def entries() -> Iterator[Entry]:
    """Yield the entries of the slips."""
    m, n, k = SIZES
    as_printed, as_meant = (algorithm1(use) for use in (0, 1))
    yield refuted(
        "the tiles of B that meet a tile of A are those that overlap `a_bounds[0]`",
        "algorithm 1, line 20",
        f"12x12x18 on 6 ranks: as printed {as_printed} of {m * n * k} multiply-adds are done, with "
        f"`a_bounds[1]` {as_meant}",
        as_printed != m * n * k == as_meant,
        "B's rows are indexed by k, A's column range",
    )
    yield _algorithm2()
    yield _divides()
    yield from _links()
    yield _offset()
    yield _race()


def algorithm1(use: int) -> int:
    """Return how many multiply-adds algorithm 1 does; B's rows meet A's rows (0) or columns (1)."""
    a, b, c = layouts("2d:3x2", "2d:2x3", "row")
    done = np.zeros(SIZES, dtype=bool)
    for i in range(c.grid_shape()[0]):
        rows, cols = c.tile_bounds((i, 0))
        for a_tile in a.overlapping_tiles(rows, Interval(0, SIZES[2])):
            a_bounds = a.tile_bounds(a_tile)
            for b_tile in b.overlapping_tiles(a_bounds[use], cols):
                b_rows, b_cols = b.tile_bounds(b_tile)
                inner = a_bounds[1].intersect(b_rows)
                done[rows.intersect(a_bounds[0]).slice, cols.intersect(b_cols).slice, inner.slice] = True
    return int(done.sum())


def algorithm2(as_printed: bool) -> tuple[int, int, int]:
    """Return the multiply-adds that algorithm 2 does, its ops, and those whose tile of C has B's index.

    Args:
        as_printed: Whether A's slice has the columns up to where B's rows begin, or those of B's rows.
    """
    a, b, c = layouts("2d:3x2", "2d:2x3", "2d:3x2")
    done, ops, same = np.zeros(SIZES, dtype=bool), 0, 0
    for b_tile in product(*map(range, b.grid_shape())):
        b_rows, b_cols = b.tile_bounds(b_tile)
        columns = Interval(0, b_rows.start) if as_printed else b_rows
        for a_tile in a.overlapping_tiles(Interval(0, SIZES[0]), columns):
            a_rows, a_cols = a.tile_bounds(a_tile)
            for c_tile in c.overlapping_tiles(a_rows, b_cols):
                c_rows, c_cols = c.tile_bounds(c_tile)
                inner = a_cols.intersect(b_rows)
                done[a_rows.intersect(c_rows).slice, b_cols.intersect(c_cols).slice, inner.slice] = True
                ops, same = ops + 1, same + (c_tile == b_tile)
    return int(done.sum()), ops, same


def layouts(*texts: str) -> tuple[Layout, Layout, Layout]:
    """Return layouts of A, B and C on six ranks."""
    m, n, k = SIZES
    a, b, c = (Layout.parse(x, y, 6) for x, y in zip(texts, ((m, k), (k, n), (m, n)), strict=True))
    return a, b, c


def _algorithm2() -> Entry:
    full = int(np.prod(SIZES))
    (printed, _, _), (meant, ops, same) = (algorithm2(x) for x in (True, False))
    return refuted(
        "the slice of A is `{:,:b_bounds[0]}`, the op is `(a_idx, b_idx, {i, j}, …)`",
        "algorithm 2, lines 13 and 32",
        f"12x12x18 on 6 ranks: with A's columns up to `b_bounds[0]` {printed} of {full} multiply-adds are "
        f"done, with `{{:, b_bounds[0]}}` {meant}; there is no i, and with k, the row that there is, "
        f"{{k, j}} is C's tile in {same} of {ops} ops: it is B's, `(a_idx, {{k, j}}, c_idx)`",
        printed < full == meant and same < ops,
        "misprints",
    )


def _divides() -> Entry:
    """Which factors a layout on twelve ranks takes, and which the words allow."""
    taken = []
    for c in range(1, 25):
        try:
            taken.append(Layout.parse(f"row@{c}", (48, 36), 12).replicas)
        except LayoutError:
            continue
    printed = [c for c in range(1, 25) if c % 12 == 0]
    return refuted(
        "the replication factor must be divisible by the number of processes",
        "section 2.1",
        f"of p = 12 that is {', '.join(map(str, printed))}; taken are {', '.join(map(str, taken))}, for "
        "which p/c is whole, as its bracket says: c divides p",
        taken != printed and taken == [c for c in range(1, 25) if 12 % c == 0],
        "the other way round",
    )


def _links() -> Iterator[Entry]:
    result = published("universal")["pvc"]
    pvc, planes = (shipped(x).bandwidth_matrix() / 1e9 for x in ("pvc-12", "pvc-12-planes"))
    got = (
        f"`pvc-12` has {pvc[0, 2]:g} and {pvc[0, 1]:g} GB/s (section 5.2), `pvc-12-planes` {planes[0, 3]:g} "
        f"(table 2) and {planes[0, 1]:g} (measured on Aurora before production, with "
        f"{result['public_gbs'][0]:g} between GPUs); the files say why"
    )
    yield given(
        "a PVC link has 26.5 GB/s, or 20 GB/s and 230 GB/s between the tiles of a GPU",
        "table 2; section 5.2",
        got,
        [planes[0, 3], pvc[0, 2]] == result["link_gbs"]
        and (pvc[0, 1], planes[0, 1]) == (result["pair_gbs"], result["public_gbs"][1]),
        "fabric.bandwidth, fabric.group.bandwidth",
    )


def _offset() -> Entry:
    problem, makespan = umm.Problem(**MISALIGNED), executor("sim").makespan
    seconds = {
        x: makespan(umm.schedule(problem, shipped("pvc-12"), stationary="C", offset=x))
        for x in ("none", "index", "rotate")
    }
    result = ", ".join(f"{x} {1e3 * y:.2f} ms" for x, y in seconds.items())
    return reproduced(
        "the iteration offset adds the indices i + j; for misaligned tiles that is no offset in k",
        "section 4.2",
        f"row × 2-D 3x2 → column on 6 tiles of `pvc-12`: {result}; "
        "`rotate` goes over the merged k boundaries",
        seconds["rotate"] < seconds["index"] < seconds["none"],
        "offset",
    )


def _race() -> Entry:
    problem = umm.Problem(m=96, n=96, k=96, a="col", b="row", c="row", ranks=8)
    schedule = umm.schedule(problem, shipped("h100-8"), stationary="B")
    adds = schedule.kind == ACCUMULATE
    local = adds & (schedule.src == schedule.dst)
    # A local GEMM writes what it updates in place: it is not atomic, as an accumulate is.
    in_place = races(replace(schedule, kind=np.where(local, GEMM, schedule.kind)))
    return refuted(
        "a local tile of C is updated in place by the local GEMM",
        "section 4.2",
        f"col × row → row, stationary B, 8 ranks: {local.sum()} of {adds.sum()} updates are of a rank's own "
        f"tile; in place by its GEMM they leave {len(in_place)} races, by accumulate {len(races(schedule))}",
        bool(in_place) and not races(schedule),
        "others accumulate into the same tile at that time",
    )

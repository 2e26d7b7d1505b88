"""A ring that multiplies while it passes on: the all-gather of A before a multiply, or the sum of C after.

To gather, A lies in rows, B and C in columns. At step i rank r multiplies shard r + i mod p of A while it
puts it to rank r − 1. That rank has room for all p − 1 shards, so nobody waits for room. To scatter, A lies
in columns, B and C in rows: at step i rank r multiplies for shard r + 1 + i mod p of C, to which rank r + 1
adds what the ranks before it have summed.
"""

from typing import Any

from umm.algorithms.algorithm import Algorithm, Formula, Names, Native
from umm.layouts.layout import Layout
from umm.plans.option import Option
from umm.program.problem import MATRICES, Problem
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder, Row
from umm.units import format_seconds

GATHER, SCATTER = "all-gather", "reduce-scatter"


def native(problem: Problem, collective: str, **options: Any) -> Native:
    """A or C in rows or columns that every rank needs or adds to; the other two fit."""
    rows, cols = (problem.p, 1), (1, problem.p)
    grids = (rows, cols, cols) if collective == GATHER else (cols, rows, rows)
    return Native(*(Layout.block(problem.shape(x), grid) for x, grid in zip(MATRICES, grids, strict=True)))


def write(build: Builder, names: Names, collective: str, fence_s: float, start_s: float) -> None:
    """Go round once."""
    ring, lane = (_gather, "copy_out.0") if collective == GATHER else (_scatter, "accumulate.0")
    start: list[Row] = [None] * build.ranks
    # Only transfers wait for the start: the first gemm needs local shards alone.
    if start_s and build.ranks > 1:
        start = [build.wait(rank, start_s, lane) for rank in range(build.ranks)]
    ring(build, names, fence_s + build.machine.step_fence_s, start)


def _gather(build: Builder, names: Names, fence: float, ready: list[Row]) -> None:
    """Multiply with every shard of A in turn; each rank's first put waits for its row of ``ready``."""
    ranks, p = range(build.ranks), build.ranks
    shards = [build.tile(names.a, rank, 0) for rank in ranks]
    fences: list[Row] = [None] * p
    for step in ranks:
        brought: dict[int, Slice] = {}
        sent: dict[int, Row] = {}
        # Puts are written before the gemms: a shard travels on while it is multiplied.
        for rank in ranks if step < p - 1 else ():
            shard, to = shards[rank], (rank - 1) % p
            # A slot for every step: no rank waits for its neighbour to free room.
            brought[to] = build.temporary(to, names.a, shard.rows, shard.cols, ("A", step))
            sent[rank] = build.put(shard, brought[to], after=[ready[rank]])
        for rank in ranks:
            b, c = build.tile(names.b, 0, rank), build.tile(names.c, 0, rank)
            build.gemm(c.cut(shards[rank].rows, c.cols), shards[rank], b, after=[fences[rank]])
        if sent:
            shards = [brought[rank] for rank in ranks]
            if fence:
                # A fence covers what a rank has sent and what it receives from rank + 1.
                both = [[sent[rank], sent[(rank + 1) % p]] for rank in ranks]
                ready = fences = [build.wait(rank, fence, after=both[rank]) for rank in ranks]


def _scatter(build: Builder, names: Names, fence: float, ready: list[Row]) -> None:
    """Multiply for every shard of C in turn; each rank's first addition waits for its row of ``ready``."""
    ranks, p = range(build.ranks), build.ranks
    sums: list[Slice] = []
    fences: list[Row] = [None] * p
    for step in ranks:
        before, sums = sums, []
        for rank in ranks:
            c = build.tile(names.c, (rank + 1 + step) % p, 0)
            a, b = build.tile(names.a, 0, rank), build.tile(names.b, rank, 0)
            # The last sum is the rank's own shard of C. Three slots before: the next product, the one that is
            # receiving, and the one on its way to the neighbour are alive together.
            last = step == p - 1
            sums.append(c if last else build.temporary(rank, names.c, c.rows, c.cols, ("C", step % 3)))
            build.gemm(sums[rank], a.cut(c.rows, a.cols), b, beta=float(last), after=[fences[rank]])
        for rank, partial in enumerate(before):
            build.accumulate(partial, sums[(rank - 1) % p], after=[ready[rank]])
        if fence and step < p - 1:
            ready = fences = [build.wait(rank, fence) for rank in ranks]


ALGORITHM = Algorithm(
    "ring",
    "A ring that multiplies while it passes on shards of A, or sums of C.",
    "JAX's collective matmul (Pallas, 2025); Wang et al. (2023)",
    native,
    write,
    options=(
        Option(
            "collective", GATHER, "What goes round: A, gathered, or the sums of C, scattered.",
            (GATHER, SCATTER),
        ),
        Option(
            "fence_s", 0.0, "Seconds between two steps of a rank, beside the machine's own fence.",
            words=lambda fence: f"a fence of {format_seconds(fence)} a step" if fence else "",
        ),
        Option(
            "start_s", 0.0, "Seconds before the first transfer.",
            words=lambda start: f"{format_seconds(start)} to start" if start else "",
        ),
    ),
    words=Formula("n²(1 − 1/p)", lambda n, p: n * n * (1 - 1 / p)),
    messages=Formula("p − 1", lambda n, p: p - 1),
    published="p − 1 shards",
)  # fmt: skip

"""A product as a schedule, and so the seconds it takes on a machine.

Rows, columns and k are put in the order of who holds them, which changes no byte and no multiply: then every
piece that a rank reads of another is a tile, and block-cyclic layouts of any fineness are a few large tiles.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from umm.arrays import Ints, offsets_of
from umm.executor import executor
from umm.interval import Interval
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.program.problem import Problem
from umm.schedules.schedule import Schedule
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder
from umm_hw.arrays.axes import Joint, join
from umm_hw.arrays.product import Product
from umm_hw.bfloat16 import dtype_name

LANE = "compute"
"""A rank copies and multiplies on one thread, one after another."""


def predictor(machine: Machine | str, ranks: int) -> Callable[[Product], float]:
    """Return what predicts the seconds of a product on a machine, by simulating its schedule.

    Args:
        machine: A machine, its name, or its file.
        ranks: How many it must hold.

    Raises:
        MachineError: for an unknown machine, or too many ranks.
    """
    found = machine if isinstance(machine, Machine) else find_machine(machine)
    found.check_ranks(ranks)
    simulator = executor("sim")
    return lambda product: simulator.makespan(schedule_of(product, found))


def schedule_of(product: Product, machine: Machine) -> Schedule:
    """Return the multiplies and copies of a product, all of k in one step, as a schedule on a machine."""
    return _Writer(product, machine).schedule()


class _Cuts:
    """One dimension in the order of its owners: work, then the outer operand, then the inner one, fastest.

    Args:
        joint: Segments; their places by inner operand, outer operand and work.
        counts: How many places each has.
    """

    def __init__(self, joint: Joint, counts: tuple[int, int, int]) -> None:
        inner, outer, work = joint.places
        self.inner, self.outer, works = counts
        sizes = np.zeros(works * self.outer * self.inner, dtype=np.int64)
        np.add.at(sizes, (work * self.outer + outer) * self.inner + inner, joint.sizes)
        self.fine: Ints = offsets_of(sizes)
        self.coarse: Ints = self.fine[:: self.inner]

    def tile(self, work: int, outer: int, inner: int) -> int:
        """Return the number of a tile along this dimension, of the inner operand."""
        return (work * self.outer + outer) * self.inner + inner

    def span(self, work: int, outer: int) -> Interval:
        """Return the indices of one tile of the outer operand."""
        number = work * self.outer + outer
        return Interval(int(self.coarse[number]), int(self.coarse[number + 1]))


class _Writer:
    def __init__(self, product: Product, machine: Machine) -> None:
        self.product = product
        a, b, c, work = product.a, product.b, product.c, product.work
        grid = work.ranks.shape
        of_a, of_b, of_c = a.places.shape[1:], b.places.shape[1:], c.places.shape[1:]
        self.m = _Cuts(join(a.axes[0], c.axes[0], work.m), (of_a[0], of_c[0], grid[0]))
        self.n = _Cuts(join(b.axes[1], c.axes[1], work.n), (of_b[1], of_c[1], grid[1]))
        self.k = _Cuts(join(a.axes[1], b.axes[0], work.k), (of_a[1], of_b[0], grid[2]))
        (m, k), n = a.shape, c.shape[1]
        problem = Problem(
            m,
            n,
            k,
            a=_layout((m, k), self.m.fine, self.k.fine, a.places),
            b=_layout((k, n), self.k.coarse, self.n.fine, b.places),
            c=_layout((m, n), self.m.coarse, self.n.coarse, c.places),
            ranks=product.ranks,
            dtype=dtype_name(a.dtype),
            c_dtype=dtype_name(product.compute_dtype),
        )
        self.build = Builder(work.name, problem, machine)

    def schedule(self) -> Schedule:
        """Return the schedule: every rank's multiplies, then the sums that C is made of."""
        sums = dict[tuple[int, int], list[tuple[int, Slice]]]()
        for (i, j, depth), rank in np.ndenumerate(self.product.work.ranks):
            for row in range(self.m.outer):
                for col in range(self.n.outer):
                    self._multiply((i, j, depth), int(rank), row, col, sums)
        for place, pieces in sums.items():
            self._sum(place, pieces)
        return self.build.schedule()

    def _multiply(
        self,
        place: tuple[int, int, int],
        rank: int,
        row: int,
        col: int,
        sums: dict[tuple[int, int], list[tuple[int, Slice]]],
    ) -> None:
        """Write what a rank multiplies of one tile of C, over all k of its work."""
        i, j, depth = place
        rows, cols = self.m.span(i, row), self.n.span(j, col)
        if not rows.size or not cols.size:
            return
        at = i * self.m.outer + row, j * self.n.outer + col
        if self.product.work.direct:
            into = self.build.tile("C", *at, 0)
        else:
            into = self.build.temporary(rank, "C", rows, cols, slot=("P", rank, at))
        beta = 0.0
        for b in range(self.k.outer):
            for a in range(self.k.inner):
                tile = self.k.tile(depth, b, a)
                deep = Interval(int(self.k.fine[tile]), int(self.k.fine[tile + 1]))
                if deep.size:
                    left = self._panel(rank, "A", (i, row, rows), (tile, a, deep))
                    right = self._panel(rank, "B", (j, col, cols), (tile, b, deep))
                    self.build.gemm(into, left, right, beta=beta, lane=LANE)
                    beta = 1.0
        if not self.product.work.direct and beta:
            sums.setdefault(at, []).append((rank, into))

    def _panel(
        self, rank: int, name: str, side: tuple[int, int, Interval], deep: tuple[int, int, Interval]
    ) -> Slice:
        """Return a panel at a rank: its own tile if it has it whole, else got piece by piece."""
        of_a = name == "A"
        cuts, operand = (self.m, self.product.a) if of_a else (self.n, self.product.b)
        (work, outer, span), (tile, place, depth) = side, deep
        pieces = []
        for inner in range(cuts.inner):
            number = cuts.tile(work, outer, inner)
            part = Interval(int(cuts.fine[number]), int(cuts.fine[number + 1]))
            if part.size:
                at, owner = ((number, tile), (inner, place)) if of_a else ((tile, number), (place, inner))
                source = operand.source(*owner, rank)
                pieces.append((source, self._cut(name, at, source, part, depth)))
        if len(pieces) == 1 and pieces[0][0] == rank:
            return pieces[0][1]
        rows, cols = (span, depth) if of_a else (depth, span)
        panel = self.build.temporary(rank, name, rows, cols, slot=(name, rank, rows, cols))
        for _, piece in pieces:
            self.build.get(piece, panel.cut(piece.rows, piece.cols), lane=LANE)
        return panel

    def _cut(self, name: str, at: tuple[int, int], source: int, part: Interval, depth: Interval) -> Slice:
        """Return a piece of a rank's own tile; B's tiles are longer in k than the pieces."""
        layout = self.build.layout(name)
        if name == "A":
            return self.build.tile("A", *at, layout.replica(source))
        coarse = at[0] // self.k.inner
        return self.build.tile("B", coarse, at[1], layout.replica(source)).cut(depth, part)

    def _sum(self, at: tuple[int, int], pieces: list[tuple[int, Slice]]) -> None:
        """Write what adds products into a tile of C, in every replica."""
        layout = self.build.layout("C")
        for replica in range(layout.replicas):
            into = self.build.tile("C", *at, replica)
            for number, (_, piece) in enumerate(pieces):
                if number:
                    self.build.accumulate(piece, into)
                else:
                    self.build.put(piece, into)


def _layout(shape: tuple[int, int], rows: Ints, cols: Ints, places: Ints) -> Layout:
    grid: Any = places.shape[1:]
    return Layout(shape, rows, cols, grid, replicas=len(places), places=places)

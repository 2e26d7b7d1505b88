"""A product as a schedule, and so the seconds it takes on a machine.

Rows, columns and k are put in the order of who holds them, which changes no byte and no multiply: then every
piece that a rank reads of another is a tile, and block-cyclic layouts of any fineness are a few large tiles.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import product as pairs
from typing import Any

import numpy as np

from umm.arrays import Ints, offsets_of
from umm.errors import InfeasibleError, LayoutError, ProblemError
from umm.executor import executor
from umm.host.collector import without_collector
from umm.interval import Interval
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.plans.movement.choice import host_count
from umm.program.problem import Problem
from umm.schedules.schedule import Schedule
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder
from umm_hw.arrays.axes import Joint, join
from umm_hw.arrays.operand import Operand
from umm_hw.arrays.panels import Numbers, Panels
from umm_hw.arrays.product import Product
from umm_hw.arrays.sharing import stepped
from umm_hw.bfloat16 import dtype_name

LANE = "compute"  # on one host a rank copies and multiplies on one thread, one after another


def predictor(machine: Machine | str, ranks: int) -> Callable[[Product], float]:
    """Return a function from a product to its seconds on a machine, by simulating its schedule.

    MachineError for an unknown machine, or too many ranks.

    Args:
        machine: A machine, its name, or its file.
        ranks: Ranks that it must have room for.
    """
    target = machine if isinstance(machine, Machine) else find_machine(machine)
    target.check_ranks(ranks)
    simulator = executor("sim")
    return lambda product: simulator.makespan(schedule_of(product, target))


def schedule_of(
    product: Product, machine: Machine, name: str = "", options: Mapping[str, Any] | None = None
) -> Schedule:
    """Return the multiplies and copies of a product as a schedule on a machine.

    On one host all of k is one step, for ranks read each other's panels where these are. Between hosts the
    panels of a step move while those of the step before are multiplied, as messages do.

    Args:
        product: Who multiplies what, in how many steps.
        name: Name of the schedule; that of the work if empty.
        options: How it was made, as plain values.
    """
    return _Writer(product, machine, name or product.work.name, options).schedule()


def panels(problem: Problem, machine: Machine, stationary: str, options: Mapping[str, Any]) -> Schedule:
    """Return the schedule by which :func:`umm.multiply` and ``pgemm`` multiply matrices in some layouts.

    ProblemError for a type without arrays in NumPy. InfeasibleError where the steps are more than a schedule
    holds.

    Args:
        problem: What is multiplied; every layout is taken, the local matrices as in Fortran.
        options: All choices of the schedule as plain values.
    """
    several = host_count(machine, problem.p) > 1
    product = stepped(operands_of(problem), f"stationary {stationary}", several)
    try:
        return schedule_of(product, machine, stationary, options)
    except LayoutError as error:
        raise InfeasibleError(f"panels with {stationary} stationary take too many steps: {error}") from None


def operands_of(problem: Problem) -> tuple[Operand, Operand, Operand]:
    """Return A, B and C of a problem as a program in Fortran would hold them.

    ProblemError for a type without arrays in NumPy.
    """
    if problem.dtype not in ("float64", "float32", "float16"):
        raise ProblemError(f"movement panels multiplies float64, float32 and float16, not {problem.dtype}")

    def operand(layout: Layout, dtype: str) -> Operand:
        rows, cols = (Interval(0, size) for size in layout.shape)
        return Operand(layout, rows, cols, False, np.dtype(dtype), "F" * problem.p)

    a, b, c = problem.layouts
    return operand(a, problem.dtype), operand(b, problem.dtype), operand(c, problem.c_dtype)


class _Cuts:
    """One dimension in the order of its owners: work, then the outer operand, then the inner one, fastest.

    Args:
        joint: Segments; their places by inner operand, outer operand and work.
        counts: How many places each has.
        steps: Parts of each work, each of all places: a step's k follow each other.
    """

    def __init__(self, joint: Joint, counts: tuple[int, int, int], steps: int = 1) -> None:
        inner, outer, work = joint.places
        self.inner, self.outer, works = counts
        self.steps = steps
        sizes = np.zeros((works, self.outer * self.inner), dtype=np.int64)
        np.add.at(sizes, (work, outer * self.inner + inner), joint.sizes)
        step = np.arange(steps + 1)[:, None]
        parts = np.diff(sizes[:, None] * step // steps, axis=1)
        self.fine: Ints = offsets_of(parts.ravel())
        self.coarse: Ints = self.fine[:: self.inner]

    def tile(self, work: int, outer: int, inner: int) -> int:
        """Return the number of a tile along this dimension, of the inner operand; work counts steps too."""
        return (work * self.outer + outer) * self.inner + inner

    def span(self, work: int, outer: int) -> Interval:
        """Return the indices of one tile of the outer operand."""
        number = work * self.outer + outer
        return Interval(int(self.coarse[number]), int(self.coarse[number + 1]))


class _Writer:
    """Writes a product step by step: the gets of each rank for a step, then its multiplies."""

    def __init__(
        self, product: Product, machine: Machine, name: str, options: Mapping[str, Any] | None
    ) -> None:
        self.product = product
        a, b, c, work = product.a, product.b, product.c, product.work
        grid = work.ranks.shape
        of_a, of_b, of_c = a.places.shape[1:], b.places.shape[1:], c.places.shape[1:]
        self.m = _Cuts(join(a.axes[0], c.axes[0], work.m), (of_a[0], of_c[0], grid[0]))
        self.n = _Cuts(join(b.axes[1], c.axes[1], work.n), (of_b[1], of_c[1], grid[1]))
        self.overlaps = host_count(machine, product.ranks) > 1
        self.groups = {rank: Panels(product, rank).groups for rank in map(int, work.ranks.flat)}
        stepwise = self.overlaps or any(len(x) > 1 for groups in self.groups.values() for x in groups)
        self.steps = product.steps if stepwise else 1
        self.k = _Cuts(join(a.axes[1], b.axes[0], work.k), (of_a[1], of_b[0], grid[2]), self.steps)
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
        self.build = Builder(name, problem, machine, options=options)
        self._begun = dict[tuple[int, tuple[int, int]], Slice]()

    def schedule(self) -> Schedule:
        """Return the schedule: every rank's multiplies, then the sums that C is made of."""
        sums = dict[tuple[int, int], list[tuple[int, Slice]]]()
        ranks = [(at, int(rank)) for at, rank in np.ndenumerate(self.product.work.ranks)]
        with without_collector():
            for step in range(self.steps):
                for place, rank in ranks:
                    for turn, group in enumerate(self.groups[rank]):
                        self._multiply(place, rank, self._deep(place[2], group, step), (step, turn), sums)
            for at, pieces in sums.items():
                self._sum(at, pieces)
            return self.build.schedule()

    def _deep(self, work: int, group: Numbers, step: int) -> list[tuple[int, int, int, Interval]]:
        """Return the k of a panel in a step: tile of A, place of A, place of B, and the interval of k."""
        spans = []
        for number in group:
            part = self.product.classes[number]
            tile = self.k.tile(work * self.steps + step, part.b, part.a)
            spans.append((tile, part.a, part.b, Interval(int(self.k.fine[tile]), int(self.k.fine[tile + 1]))))
        return sorted(spans)

    def _multiply(
        self,
        place: tuple[int, int, int],
        rank: int,
        deep: list[tuple[int, int, int, Interval]],
        turn: tuple[int, int],
        sums: dict[tuple[int, int], list[tuple[int, Slice]]],
    ) -> None:
        """Write a rank's multiplies for a panel of k, over all its tiles of C."""
        i, j, _ = place
        left = list(self._panels("A", i, rank, deep, turn))
        right = list(self._panels("B", j, rank, deep, turn))
        for (row, a), (col, b) in pairs(left, right):
            at = i * self.m.outer + row, j * self.n.outer + col
            begun = (rank, at) in self._begun
            if not begun:
                self._begun[rank, at] = self._target(rank, at, a.rows, b.cols)
                if not self.product.work.direct:
                    sums.setdefault(at, []).append((rank, self._begun[rank, at]))
            self.build.gemm(self._begun[rank, at], a, b, beta=float(begun), lane=LANE)

    def _target(self, rank: int, at: tuple[int, int], rows: Interval, cols: Interval) -> Slice:
        """Return where a rank multiplies into: its tile of C, or room of its own whose sum C is."""
        if self.product.work.direct:
            return self.build.tile("C", *at, self.build.layout("C").replica(rank))
        return self.build.temporary(rank, "C", rows, cols, slot=("P", rank, at))

    def _panels(
        self,
        name: str,
        work: int,
        rank: int,
        deep: list[tuple[int, int, int, Interval]],
        turn: tuple[int, int],
    ) -> Iterator[tuple[int, Slice]]:
        """Yield the panels of A or B at a rank, one for each place of C along it, with that place."""
        cuts = self.m if name == "A" else self.n
        depth = Interval(deep[0][3].start, deep[-1][3].stop)
        for outer in range(cuts.outer):
            span = cuts.span(work, outer)
            if span.size and depth.size:
                yield outer, self._panel(name, (work, outer, span), rank, (deep, depth), turn)

    def _panel(
        self,
        name: str,
        side: tuple[int, int, Interval],
        rank: int,
        deep_and_span: tuple[list[tuple[int, int, int, Interval]], Interval],
        turn: tuple[int, int],
    ) -> Slice:
        """Return a panel at a rank: its own tile, a message that has all of it, or a concatenation."""
        of_a = name == "A"
        cuts, operand = (self.m, self.product.a) if of_a else (self.n, self.product.b)
        (work, outer, span), (deep, depth) = side, deep_and_span
        pieces = []
        for tile, a, b, part in deep:
            for inner in range(cuts.inner):
                number = cuts.tile(work, outer, inner)
                along = Interval(int(cuts.fine[number]), int(cuts.fine[number + 1]))
                if along.size and part.size:
                    at, owner = ((number, tile), (inner, a)) if of_a else ((tile, number), (b, inner))
                    source = operand.source(*owner, rank)
                    pieces.append((source, self._cut(name, at, source, along, part)))
        if len(pieces) == 1 and pieces[0][0] == rank:
            return pieces[0][1]
        step, place = turn
        rows, cols = (span, depth) if of_a else (depth, span)
        came = []
        for number, (source, piece) in enumerate(pieces):
            if self.overlaps and source != rank:
                slot = (name, outer, step % 2, place, number)
                message = self.build.temporary(rank, name, piece.rows, piece.cols, slot=slot)
                self.build.get(piece, message)
                piece = message
            came.append(piece)
        if self.overlaps and len(pieces) == 1:
            return came[0]
        panel = self.build.temporary(rank, name, rows, cols, slot=(name, outer))
        for piece in came:
            self.build.get(piece, panel.cut(piece.rows, piece.cols), lane=LANE)
        return panel

    def _cut(self, name: str, at: tuple[int, int], source: int, along: Interval, part: Interval) -> Slice:
        """Return a piece of a rank's own tile; B's tiles are longer in k than the pieces."""
        layout = self.build.layout(name)
        if name == "A":
            return self.build.tile("A", *at, layout.replica(source)).cut(along, part)
        coarse = at[0] // self.k.inner
        return self.build.tile("B", coarse, at[1], layout.replica(source)).cut(part, along)

    def _sum(self, at: tuple[int, int], pieces: list[tuple[int, Slice]]) -> None:
        """Write the sum of products into a tile of C, in every replica."""
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

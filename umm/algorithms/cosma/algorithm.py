"""COSMA: a grid of ranks as near to cubes as p allows, and steps in time where memory is short.

On a grid of pₘ×pₙ×pₖ every rank multiplies one brick of each part in time. A parallel step along n leaves A
whole, so its pₙ ranks gather A; one along m gathers B; one along k sums C. What a rank holds lies by parts in
time first: of each part it has its share, so that all ranks have something to give for every part. COSMA
leaves out ranks where less than 200 of a dimension were left for one; here all ranks take part.
"""

import builtins
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, cast

import numpy as np

from umm.algorithms.algorithm import Algorithm, Formula, Mesh, Names, Native
from umm.algorithms.cosma import splits
from umm.algorithms.cosma.splits import MOST_PARTS
from umm.algorithms.writing import SUM, cut_again, gathered, laid, scatter_sum
from umm.arrays import Ints
from umm.interval import Interval
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.plans.option import Option
from umm.program.problem import Problem
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder

AXES = {"A": ("m", "k"), "B": ("k", "n"), "C": ("m", "n")}
SHARED = {"A": "n", "B": "m", "C": "k"}
"""The dimension that a matrix does not have: the ranks along it share each of its blocks."""
Place = dict[str, int]


def mesh(ranks: int, steps: str, **options: Any) -> Mesh | None:
    """Parts of m, n and k over ranks: of the steps if given, else for square matrices."""
    if not steps:
        return splits.nearest_cube((1, 1, 1), ranks)
    given = splits.read_strategy(steps)
    return tuple(splits.parts_of(given, "p").values()) if splits.ranks_of(given) == ranks else None


def steps_of(problem: Problem, steps: str, memory: float) -> splits.Strategy | None:
    """Return the steps for a problem: those given, or COSMA's choice; None if memory does not suffice."""
    if steps:
        return splits.read_strategy(steps)
    return splits.strategy((problem.m, problem.n, problem.k), problem.p, memory)


def refuses(problem: Problem, machine: Machine, steps: str, memory: float, **options: Any) -> str | None:
    """Too little memory, or too many parts in time."""
    if steps and memory:
        return f"steps {steps} need the memory they need; leave out memory or steps"
    if steps and prod(splits.parts_of(splits.read_strategy(steps), "s").values()) > MOST_PARTS:
        return f"steps {steps} make more than {MOST_PARTS} parts in time; choose fewer"
    if steps_of(problem, steps, memory) is not None:
        return None
    # Try rising limits for the advice in the error: the smallest that ends in a strategy.
    limits = (x for x in (1.1, 1.25, 1.5, 2, 3, 4, 6) if x > memory)
    works = next((x for x in limits if steps_of(problem, steps, x) is not None), 0)
    return (
        f"with {memory:g} times (mk + kn + mn)/p elements a rank its steps come to no end; "
        f"choose memory={works:g}{'' if works else ', which is no limit'}"
    )


@dataclass(frozen=True)
class Grid:
    """Where the ranks of a strategy stand, and how the matrices lie over them."""

    steps: splits.Strategy  # the strategy

    @cached_property
    def over(self) -> dict[str, int]:
        """Parts of each dimension over ranks."""
        return splits.parts_of(self.steps, "p")

    @cached_property
    def times(self) -> dict[str, int]:
        """Parts of each dimension in time."""
        return splits.parts_of(self.steps, "s")

    @cached_property
    def ranks(self) -> Ints:
        """The rank at each place, shape (pₘ, pₙ, pₖ): a parallel step gives groups of consecutive ranks."""
        # Each parallel step is one digit of the rank number, the first the most significant. The transpose
        # puts the digits of one dimension side by side, and the reshape joins them.
        parallel = [step for step in self.steps if step.kind == "p"]
        ranks = np.arange(splits.ranks_of(self.steps), dtype=np.int64).reshape(
            [step.parts for step in parallel]
        )
        order = [i for x in splits.DIMENSIONS for i, step in enumerate(parallel) if step.dimension == x]
        return ranks.transpose(order).reshape(list(self.over.values()))

    @property
    def places(self) -> Iterable[Place]:
        """Every place of the grid."""
        return (dict(zip(splits.DIMENSIONS, place, strict=True)) for place in np.ndindex(*self.over.values()))

    def rank(self, place: Place) -> int:
        """Return the rank at a place."""
        return int(self.ranks[place["m"], place["n"], place["k"]])

    def line(self, place: Place, dimension: str) -> list[Place]:
        """Return the places along a dimension, a place's own among them."""
        return [place | {dimension: i} for i in range(self.over[dimension])]

    def layout(self, matrix: str, shape: tuple[int, int]) -> Layout:
        """Return how a matrix lies: its blocks in time, over ranks, then over those that share each."""
        rows, cols = AXES[matrix]
        shared = SHARED[matrix]
        over = self.over
        # Time outermost: every rank then owns a share of each part in time. The last cut divides a block
        # among the ranks of the line that shares it, so that each matrix is stored once.
        cuts = {x: [self.times[x], over[x]] for x in (rows, cols)}
        axis = matrix == "A"  # A is shared by columns, B and C by rows
        cuts[cols if axis else rows].append(over[shared])
        order = [rows, cols, shared] if axis else [rows, shared, cols]
        owners = self.ranks.transpose([splits.DIMENSIONS.index(x) for x in order])
        grid = (over[rows], over[cols] * over[shared]) if axis else (over[rows] * over[shared], over[cols])
        row_edges, col_edges = cut_again(shape[0], *cuts[rows]), cut_again(shape[1], *cuts[cols])
        return laid(shape, row_edges, col_edges, owners.reshape(grid))

    def depth(self, matrix: str) -> int:
        """Return how many sequential steps come before the last parallel one that leaves a matrix whole."""
        # A sequential step before that parallel one changes what is gathered; one after it works inside the
        # gathered block, which is how COSMA buys less traffic with more memory.
        last = max((i for i, s in enumerate(self.steps) if s[:2] == ("p", SHARED[matrix])), default=0)
        return sum(step.kind == "s" for step in self.steps[:last])

    @cached_property
    def gathers(self) -> list[str]:
        """A and B in the order in which they are gathered: first that of an earlier parallel step."""
        steps = [step[:2] for step in self.steps]
        last = {x: max((i for i, s in enumerate(steps) if s == ("p", SHARED[x])), default=-1) for x in "AB"}
        return sorted(last, key=last.__getitem__)

    def moments(self) -> Iterable[tuple[tuple[int, ...], dict[str, int]]]:
        """Yield every part in time: its number in each sequential step, and that in each dimension."""
        sequential: list[splits.Split] = [step for step in self.steps if step.kind == "s"]
        for numbers in product(*(range(step.parts) for step in sequential)):
            part = dict.fromkeys(splits.DIMENSIONS, 0)
            for step, number in zip(sequential, numbers, strict=True):
                # Mixed radix: each further step in a dimension cuts the parts of those before it.
                part[step.dimension] = part[step.dimension] * step.parts + number
            yield numbers, part


def native(problem: Problem, steps: str, memory: float, **options: Any) -> Native:
    """Every matrix once, over all ranks."""
    grid = Grid(steps_of(problem, steps, memory) or ())
    return Native(*(grid.layout(x, problem.shape(x)) for x in AXES))


def write(
    build: Builder,
    names: Names,
    steps: str,
    memory: float,
    gather: str,
    sum: str,  # noqa: A002
    overlap: bool,
) -> None:
    """Part after part: gather A and B where a step before left them whole, multiply, sum C."""
    problem = cast(Problem, build.program)
    grid = Grid(steps_of(problem, steps, memory) or ())
    run = _Run(build, grid, dict(zip(AXES, names, strict=True)), gather, sum, overlap)
    for numbers, part in grid.moments():
        # With overlap all gathers of a part are written before its gemms, to be on their way together.
        # Without, the first rank of a line that needs a block triggers its gather.
        run.begin(numbers)
        if overlap:
            # Of a part all of A and B, those that an earlier parallel step leaves complete first.
            for matrix, place in product(grid.gathers, grid.places):
                run.block(matrix, place, part)
        for place in grid.places:
            run.multiply(place, part)
    run.sum_up()


class _Run:
    """The gathered blocks and partial sums of ranks while the parts follow each other.

    Args:
        grid: Places of the ranks.
        names: Of A, B and C.
        gather: A way to do an all-gather.
        sum_way: A way to do a reduce-scatter.
        overlap: Whether a rank multiplies received pieces of a block while the rest comes, and has room for
            the next part besides.
    """

    def __init__(
        self, build: Builder, grid: Grid, names: Mapping[str, str], gather: str, sum_way: str, overlap: bool
    ) -> None:
        self.build, self.grid, self.names = build, grid, names
        self.gather, self.sum_way, self.overlap = gather, sum_way, overlap
        # since: the steps at which the blocks of a matrix were last begun anew; turn: how often that was.
        # held: by block (place and part in the two dimensions of the matrix), then by rank.
        self.since: dict[str, tuple[int, ...] | None] = dict.fromkeys(AXES)
        self.turn = dict.fromkeys(AXES, -1)
        self.held: dict[str, dict[tuple[int, ...], dict[int, Slice]]] = {x: {} for x in AXES}

    def begin(self, numbers: tuple[int, ...]) -> None:
        """Drop gathered blocks, and sum products, before the steps that are now done anew."""
        for matrix in AXES:
            # Only the sequential steps that come before the gather decide whether its block is still the
            # same.
            before = numbers[: self.grid.depth(matrix)]
            if before != self.since[matrix]:
                # Partial sums must reach the owners of C before their pool slots are used again.
                if matrix == "C":
                    self.sum_up()
                self.held[matrix].clear()
                self.since[matrix] = before
                self.turn[matrix] += 1

    def multiply(self, place: Place, part: Place) -> None:
        """Write the gemms of a rank for a part."""
        rank = self.grid.rank(place)
        a, b = (self.block(x, place, part) for x in "AB")
        sums = self._held("C", place, part)
        # The first product sets a sum; later parts in time along k add to it.
        beta = float(rank in sums)
        if not beta and self.grid.over["k"] == 1:
            sums[rank] = self._piece("C", place, part)
        # Several ranks along k have a sum each for the same block of C, so none may write C itself yet.
        elif not beta:
            slot = self._slot("C", rank)
            sums[rank] = self.build.temporary(rank, self.names["C"], a.rows, b.cols, slot)
        # A brick without any k is one turn too: its sum is zero, and somebody has to write that.
        turns = self._in_turn(place, part) if self.overlap else []
        for number, k in enumerate(turns or [a.cols]):
            added = 1.0 if number else beta
            self.build.gemm(sums[rank], a.inner(a.rows, k), b.inner(k, b.cols), added)

    def _in_turn(self, place: Place, part: Place) -> list[Interval]:
        """Return the parts of k of which a rank has A and B one after another, its own first."""
        # Rotated to begin with the rank's own piece, which it can multiply before anything has arrived.
        turns = []
        for matrix in self.grid.gathers:
            line, first_place = self.grid.line(place, SHARED[matrix]), place[SHARED[matrix]]
            pieces = (self._piece(matrix, x, part) for x in line[first_place:] + line[:first_place])
            turns.append([x.cols if matrix == "A" else x.rows for x in pieces])
        first, then = turns
        # The matrix gathered first is the inner loop: when a piece of the second arrives, all of the first
        # are there. Pieces of A and B cut k differently, so each turn is an intersection.
        return [k for y in then for x in first if (k := x.intersect(y)).size]

    def sum_up(self) -> None:
        """Write the sums of all that has been multiplied, over the ranks that have worked on the same."""
        if self.grid.over["k"] == 1:
            return
        for where, sums in self.held["C"].items():
            m, n, *part = where
            # The key of a sum is its block: the place along m and n, then the part in time along both.
            line = self.grid.line({"m": m, "n": n, "k": 0}, "k")
            time = dict(zip("mn", part, strict=True))
            owners = {self.grid.rank(x): self._piece("C", x, time) for x in line}
            scatter_sum(self.build, self.sum_way, sums, owners)

    def block(self, matrix: str, place: Place, part: Place) -> Slice:
        """Return a rank's block of A or B for a part, after it has been gathered once."""
        if self.grid.over[SHARED[matrix]] == 1:
            return self._piece(matrix, place, part)
        blocks = self._held(matrix, place, part)
        if not blocks:
            line = self.grid.line(place, SHARED[matrix])
            pieces = {self.grid.rank(x): self._piece(matrix, x, part) for x in line}
            # One gather serves the whole line: the other ranks' calls find their block in the table.
            blocks.update(gathered(self.build, pieces, self.gather, self._slot(matrix, next(iter(pieces)))))
        return blocks[self.grid.rank(place)]

    def _held(self, matrix: str, place: Place, part: Place) -> dict[int, Slice]:
        """Return where ranks hold the block of a place and a part since the last step that was done anew."""
        where = (*(place[x] for x in AXES[matrix]), *(part[x] for x in AXES[matrix]))
        return self.held[matrix].setdefault(where, {})

    def _slot(self, matrix: str, rank: int) -> tuple[str, int, int]:
        """Return the pool slot of one more block of a matrix at a rank."""
        # A rank may hold several blocks of a matrix between two drops, each in a slot of its own. With
        # overlap, slots alternate by turn: the next block arrives while the last is still being read.
        at_once = builtins.sum(rank in ranks for ranks in self.held[matrix].values())
        return matrix, at_once, self.turn[matrix] % (1 + self.overlap)

    def _piece(self, matrix: str, place: Place, part: Place) -> Slice:
        """Return a rank's piece of a matrix for a part."""
        over, shared = self.grid.over, SHARED[matrix]
        # The tile numbers of Grid.layout: part in time, then place, then share of the line.
        i, j = (part[x] * over[x] + place[x] for x in AXES[matrix])
        if matrix == "A":
            return self.build.tile(self.names[matrix], i, j * over[shared] + place[shared])
        return self.build.tile(self.names[matrix], i * over[shared] + place[shared], j)


def piped(problem: Problem) -> list[dict[str, Any]]:
    """Return its own steps with overlap, and the same after some in time along k."""
    plain = splits.strategy((problem.m, problem.n, problem.k), problem.p, 0.0)
    if plain is None:
        return []
    # A strategy without limits has no parts in time, so nothing to overlap from part to part. Cuts along k
    # give some, and leave the gathered pieces of A and B disjoint.
    after = ",".join(f"{step.kind}{step.dimension}{step.parts}" for step in plain)
    steps = [after, *(f"sk{parts},{after}" for parts in (4, 8))]
    return [{"steps": x, "memory": 0.0, "overlap": True} for x in steps]


WAYS = ("direct", "ring")
ALGORITHM = Algorithm(
    "cosma",
    "Splits the largest dimension over ranks as long as memory allows, else in time; 2-D to 2.5-D to 3-D.",
    "Kwasniewski et al. (2019); eth-cscs/COSMA",
    native,
    write,
    refuses,
    options=(
        Option(
            "steps", "", "Its steps, such as sm2,pn2,pk2; its own choice if not given.",
            words=lambda steps: steps and f"steps {steps}",
        ),
        Option(
            "memory", 0.0, "Elements a rank may hold, in shares (mk + kn + mn)/p; 0 for any number.",
            words=lambda x: f"memory {x:g}x" if x else "",
        ),
        Option("gather", "direct", "How blocks are gathered.", WAYS, words="gather {}".format),
        SUM,
        Option(
            "overlap", False,
            "Whether ranks multiply what they have while the rest comes, as with "
            "COSMA_OVERLAP_COMM_AND_COMP=ON.",
            words=lambda overlaps: "overlap on" if overlaps else "no overlap, as by default",
        ),
    ),
    piped=piped,
    mesh=mesh,
    words=Formula(
        "n²/(pₘpₖ) · (1 − 1/pₙ), and so for B and C",
        # Of the block of n²·x/p elements that x ranks share, a rank lacks all but one share in x; for A, x =
        # pₙ and n²·x/p = n²/(pₘpₖ).
        lambda n, *over: sum(n * n * x / prod(over) * (1 - 1 / x) for x in over),
    ),
    messages=Formula("pₘ + pₙ + pₖ − 3", lambda n, *over: sum(over) - 3),
    published="min(2n³/(p√S) + S, 3n²/p^⅔) words at least, with room for S",
)  # fmt: skip

"""Who orthogonalises which matrix: the longest first, or by an integer linear program of all weights.

With x[i, p] = 1 where weight i has placement p, n[i, r] of its matrices at rank r where it has owners, T the
seconds of the busiest owner, and groups of ranks that have different experts:

    least Z
    T + Σ_i Σ_p compute[i, p] · x[i, p] ≤ Z      with collectives added where nothing overlaps
    Σ_i Σ_p moved[i, p] · x[i, p] - hidden ≤ Z   where collectives overlap with compute
    Σ_p x[i, p] = 1                              for each weight
    Σ_{r in group} n[i, r] = count[i, group] · x[i, owners]
    Σ_i each[i] · n[i, r] ≤ T                    for each rank
    n[0, r] ≥ n[0, r + 1]                        of one weight in one group: ranks are alike

Sources: Graham (1969), Bounds on multiprocessing timing anomalies; Huangfu and Hall (2018), https://highs.dev.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from highspy._core import _Highs

MAX_NODES = 400
"""Nodes of the solver's branch and bound: the bound at its end is one, if not the best."""
MAX_SHARES = 600
"""Weights times ranks whose owners the program chooses; beyond, it bounds their mean alone."""
TOLERANCE = 1e-6
"""Share by which the solver's optimum may be off."""


@dataclass(frozen=True)
class Owned:
    """Equal matrices that have owners.

    Attributes:
        each: Seconds of one.
        count: Number of matrices.
        groups: Groups of consecutive ranks that share them out evenly; experts stay in theirs.
    """

    each: float
    count: int
    groups: int = 1

    def spans(self, ranks: int) -> Iterator[tuple[range, int]]:
        """Yield each group's ranks and its number of matrices."""
        size = ranks // self.groups
        for group in range(self.groups):
            first, last = (self.count * x // self.groups for x in (group, group + 1))
            yield range(group * size, (group + 1) * size), last - first


def longest_first(owned: Mapping[str, Owned], ranks: int) -> dict[str, list[int]]:
    """Return how many matrices of each name each rank owns: the longest go first, to the least loaded.

    Source: Graham (1969): at most 4/3 - 1/(3p) of the optimum.

    >>> longest_first({"a": Owned(3.0, 2), "b": Owned(1.0, 3)}, 2)
    {'a': [1, 1], 'b': [2, 1]}
    """
    loads = [0.0] * ranks
    shares = {name: [0] * ranks for name in owned}
    for name, weight in sorted(owned.items(), key=lambda x: -x[1].each):
        for span, count in weight.spans(ranks):
            rounds, rest = divmod(count, len(span))
            # Rounds in which every rank gets one keep the order of loads.
            heap = [(loads[rank] + rounds * weight.each, rank) for rank in span]
            shares[name][span.start : span.stop] = [rounds] * len(span)
            heapq.heapify(heap)
            for _ in range(rest):
                load, rank = heap[0]
                shares[name][rank] += 1
                heapq.heapreplace(heap, (load + weight.each, rank))
            for load, rank in heap:
                loads[rank] = load
    return shares


def loads_of(owned: Mapping[str, Owned], shares: Mapping[str, Sequence[int]], ranks: int) -> list[float]:
    """Return the seconds of each rank that owns some matrices of each name."""
    return [sum(x.each * shares[name][rank] for name, x in owned.items()) for rank in range(ranks)]


class Weight(NamedTuple):
    """A weight's seconds by placement.

    Attributes:
        compute: Of each placement, on every rank.
        moved: Of each placement, in collectives.
        owners: Number of the placement that has owners.
        owned: Its matrices where they have owners.
    """

    compute: Sequence[float]
    moved: Sequence[float]
    owners: int
    owned: Owned


class Mix(NamedTuple):
    """An answer of the program.

    Attributes:
        bound: Seconds that no mix of placements goes below.
        placements: Of each weight the number of its placement.
        shares: Of each weight the matrices at each rank; [] where the program chose none.
    """

    bound: float
    placements: list[int]
    shares: list[list[int]]


def solve(weights: Sequence[Weight], ranks: int, hidden: float | None = None) -> Mix:
    """Return the best mix of placements and owners that the program meets, and a bound below all.

    Args:
        weights: Prices of each weight.
        ranks: Who can own matrices.
        hidden: Seconds of collectives behind other work, where they overlap with compute; None where each
            waits for the other.
    """
    # In units of a sure solution numbers are near one, as the solver's tolerances want them.
    unit = sum(
        max(map(sum, zip(x.compute, x.moved, strict=True))) + x.owned.each * x.owned.count for x in weights
    )
    unit = unit / ranks or 1.0
    program = _Program()
    total, longest = program.column(1.0, np.inf, False), program.column(0.0, np.inf, False)
    choices = [[program.column(0.0, 1.0, True) for _ in x.compute] for x in weights]
    for columns in choices:
        program.row(columns, [1.0] * len(columns), 1.0, 1.0)
    chosen = [columns[x.owners] for columns, x in zip(choices, weights, strict=True)]
    every = [column for columns in choices for column in columns]
    compute, moved = (np.concatenate([np.array(x[i]) for x in weights]) / unit for i in (0, 1))
    program.row([total, longest, *every], [-1.0, 1.0, *(compute + moved * (hidden is None))], -np.inf, 0.0)
    if hidden is not None:
        program.row([total, *every], [-1.0, *moved], -np.inf, hidden / unit)
    each = [x.owned.each / unit for x in weights]
    means = [x.owned.each * x.owned.count / ranks / unit for x in weights]
    program.row([longest, *chosen], [-1.0, *means], -np.inf, 0.0)
    for column, seconds in zip(chosen, each, strict=True):
        program.row([longest, column], [-1.0, seconds], -np.inf, 0.0)
    shares: list[list[int]] = [[] for _ in weights]
    if len(weights) * ranks <= MAX_SHARES:
        for i, weight in enumerate(weights):
            shares[i] = [program.column(0.0, weight.owned.count, True) for _ in range(ranks)]
            for span, count in weight.owned.spans(ranks):
                columns = [chosen[i], *shares[i][span.start : span.stop]]
                program.row(columns, [-float(count), *[1.0] * len(span)], 0.0, 0.0)
        for rank in range(ranks):
            program.row([longest, *(x[rank] for x in shares)], [-1.0, *each], -np.inf, 0.0)
        alike = ranks // max(x.owned.groups for x in weights)
        first = shares[int(np.argmax(each))]
        for rank in range(ranks - 1):
            if (rank + 1) % alike:
                program.row([first[rank], first[rank + 1]], [1.0, -1.0], 0.0, np.inf)
    solver = program.solver()
    solver.run()
    values = np.array(solver.getSolution().col_value)
    # The dual bound is valid even where the solver stops at its limit of nodes.
    bound = max(0.0, solver.getInfo().mip_dual_bound) * unit * (1 - TOLERANCE)
    counts = [np.rint(values[x]).astype(int).tolist() if x else [] for x in shares]
    return Mix(bound, [int(values[columns].argmax()) for columns in choices], counts)


class _Program:
    """Columns and rows of a linear program."""

    def __init__(self) -> None:
        self._cost: list[float] = []
        self._upper: list[float] = []
        self._whole: list[bool] = []
        self._rows: list[tuple[Sequence[int], Sequence[float], float, float]] = []

    def column(self, cost: float, upper: float, integer: bool) -> int:
        """Add a variable of at least 0 and return its number."""
        self._cost.append(cost)
        self._upper.append(upper)
        self._whole.append(integer)
        return len(self._cost) - 1

    def row(self, columns: Sequence[int], values: Sequence[float], lower: float, upper: float) -> None:
        """Add a constraint on some variables."""
        self._rows.append((columns, values, lower, upper))

    def solver(self) -> "_Highs":
        """Return a solver of the program: one thread and a fixed seed, so the same answer anywhere."""
        import highspy
        from highspy._core import _Highs  # its own Highs prints a banner on standard output

        program = highspy.HighsLp()
        program.num_col_, program.num_row_ = len(self._cost), len(self._rows)
        program.col_cost_ = np.array(self._cost)
        program.col_lower_, program.col_upper_ = np.zeros(len(self._cost)), np.array(self._upper)
        program.row_lower_ = np.array([x[2] for x in self._rows])
        program.row_upper_ = np.array([x[3] for x in self._rows])
        program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        program.a_matrix_.start_ = np.cumsum([0, *(len(x[0]) for x in self._rows)])
        program.a_matrix_.index_ = np.concatenate([np.asarray(x[0]) for x in self._rows])
        program.a_matrix_.value_ = np.concatenate([np.asarray(x[1]) for x in self._rows])
        kinds = {True: highspy.HighsVarType.kInteger, False: highspy.HighsVarType.kContinuous}
        program.integrality_ = [kinds[x] for x in self._whole]
        solver = _Highs()
        for name, value in (
            ("output_flag", False), ("threads", 1), ("random_seed", 0), ("mip_max_nodes", MAX_NODES),
            ("mip_rel_gap", TOLERANCE), ("mip_abs_gap", 0.0),
        ):  # fmt: skip
            solver.setOptionValue(name, value)
        solver.passModel(program)
        return solver

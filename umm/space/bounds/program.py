"""The integer linear program of a chain's layouts, solved by HiGHS: the least bound below all assignments.

Each statement s has a load on each resource r for every combination p of its groups' choices, so the busiest
resource of an assignment is a sum over statements. With x[g, c] = 1 where group g of tensors has choice c:

    least T
    Σ_s Σ_p load[s, p, r] · y[s, p] ≤ T            for each resource r
    Σ_{p: p_g = c} y[s, p] = x[g, c]               for each statement, its groups g and their choices c
    Σ_c x[g, c] = 1                                for each group
    Σ_g Σ_c bytes[g, c, k] · x[g, c] ≤ limit       for each rank k
    x in {0, 1}, y ≥ 0

Source: Huangfu and Hall (2018), Parallelizing the dual revised simplex method; https://highs.dev.
"""

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from umm.arrays import Floats, Ints
from umm.linear_program import TOLERANCE, Rows, solver
from umm.space.assignments import Place

MOST_NODES = 200  # nodes of the solver's branch and bound: the bound at its end is one, if not the least
ENTRIES_OF_AN_ACTION, NUMBERS_OF_AN_ACTION = 2_000, 10_000
"""Entries of the matrix that the solver goes through while an action is simulated, and numbers added up."""
MAX_SUMMED_AT_ONCE = 2**20
"""Numbers that are added up at once: more need more memory, and leave a signal waiting."""


class LayoutProgram:
    """Assignments of layouts as an integer linear program.

    Args:
        tables: Groups of each statement and, by choice of each and by resource, seconds.
        shares: By group and choice the bytes on each rank, as a share of the budget.
    """

    def __init__(self, tables: Sequence[tuple[Sequence[int], Floats]], shares: Sequence[Floats]) -> None:
        self.shape = tuple(map(len, shares))  # number of choices of each group
        self.work = 0.0  # actions that could have been simulated meanwhile, about; the same on every host
        self._first = 1 + np.cumsum([0, *self.shape])[:-1]
        tables = _joined(tables)
        resources = tables[0][1].shape[-1]
        # In units of a sure bound numbers are near one, as the solver's tolerances want them.
        least = np.sum([x.reshape(-1, x.shape[-1]).min(axis=0) for _, x in tables], axis=0).max()
        self._unit = float(least) or 1.0
        rows = Rows(resources)
        count = 1 + sum(self.shape)
        for resource in range(resources):
            # Column 0 is T: each resource's load minus T is at most 0, and minimising T gives the bound.
            rows.add([0], [-1.0], -np.inf, 0.0, resource)
        for groups, seconds in tables:
            loads = seconds.reshape(-1, resources) / self._unit
            columns = self._columns(groups, count)
            count = max(count, int(columns.max()) + 1)
            for resource in range(resources):
                some = loads[:, resource] > 0
                rows.add(columns[some], loads[some, resource], -np.inf, 0.0, resource)
            if len(groups) == 1:
                continue
            # The y of a statement sum to x for each choice: with x integer
            # this makes y the product of choices.
            choices = np.indices(seconds.shape[:-1]).reshape(len(groups), -1)
            for group, choice in zip(groups, choices, strict=True):
                for x in range(self.shape[group]):
                    alike = columns[choice == x]
                    rows.add([*alike, self._first[group] + x], [*np.ones(len(alike)), -1.0], 0.0, 0.0)
        for group, choices_of in enumerate(self.shape):
            rows.add(self._first[group] + np.arange(choices_of), np.ones(choices_of), 1.0, 1.0)
        # Ranks are alike, so their rows of memory repeat; each different one is enough.
        for row in np.unique(np.concatenate([x.T for x in shares], axis=1), axis=0):
            rows.add(1 + np.arange(len(row)), row, -np.inf, 1.0)
        self._tables, self._entries = tables, rows.entries
        self._bounds = [np.zeros(count) for count in self.shape]
        integer = [0 < column <= sum(self.shape) for column in range(count)]
        self._solver = solver(np.eye(1, count)[0], [np.inf, *np.ones(count - 1)], integer, rows, MOST_NODES)

    def least(self) -> tuple[float, Place | None]:
        """Return a bound below all assignments that are left, in seconds, and the best that the solver met.

        The bound is infinite where none is left; the assignment None where it met none.
        """
        solver = self._solver
        solver.setOptionValue("solve_relaxation", False)
        self._run()
        info = solver.getInfo()
        if solver.getModelStatus().name == "kInfeasible":
            return np.inf, None
        # The dual bound is valid even where the solver stops at its limit of nodes.
        bound = max(0.0, info.mip_dual_bound) * self._unit * (1 - TOLERANCE)
        return bound, self._rounded() if np.isfinite(info.objective_function_value) else None

    def by_choice(self) -> list[Place]:
        """Bound each choice's assignments by the relaxation, and return those nearest to these bounds."""
        solver, places = self._solver, dict[Place, None]()
        solver.setOptionValue("solve_relaxation", True)
        for first, bounds in zip(self._first.tolist(), self._bounds, strict=True):
            for choice in range(len(bounds)):
                # Changed bounds of columns keep the last basis dual feasible, so
                # each relaxation takes few iterations.
                solver.changeColBounds(first + choice, 1.0, 1.0)
                self._run()
                if solver.getModelStatus().name == "kOptimal":
                    seconds = solver.getInfo().objective_function_value * self._unit
                    bounds[choice] = seconds * (1 - TOLERANCE)
                    places[self._rounded()] = None
                elif solver.getModelStatus().name == "kInfeasible":
                    bounds[choice] = np.inf
                solver.changeColBounds(first + choice, 0.0, 1.0)
        return [*places]

    def _rounded(self) -> Place:
        """Return the assignment nearest to the solver's solution."""
        values = np.array(self._solver.getSolution().col_value)
        parts = zip(self._first.tolist(), self.shape, strict=True)
        return tuple(int(values[first : first + count].argmax()) for first, count in parts)

    def left(self, most: float) -> list[Ints]:
        """Return for each group the choices that may be in an assignment below some seconds."""
        return [np.flatnonzero(bounds < most) for bounds in self._bounds]

    def below(self, most: float, left: Sequence[Ints]) -> tuple[Floats, Ints]:
        """Return the busiest resource of each assignment below some seconds, ascending, and these, one a row.

        Args:
            left: For each group the choices to look at.
        """
        shape, size = tuple(map(len, left)), self._tables[0][1].shape[-1]
        tables = [(groups, x[np.ix_(*(left[g] for g in groups))]) for groups, x in self._tables]
        bounds, places = [np.zeros(0)], [np.zeros((0, len(shape)), dtype=np.int64)]
        for first, total in summed(shape, tables):
            busiest = total.max(axis=-1)
            inner = np.argwhere(busiest < most)
            bounds.append(busiest[tuple(inner.T)])
            places.append(np.column_stack((np.tile(np.array(first, dtype=np.int64), (len(inner), 1)), inner)))
        # Numbers are places among the choices left; the last step maps them to those of the space.
        seconds, numbers = np.concatenate(bounds), np.concatenate(places)
        self.work += prod(shape) * size * len(tables) / NUMBERS_OF_AN_ACTION
        order = seconds.argsort(kind="stable")
        numbers = np.column_stack([x[numbers[order, g]] for g, x in enumerate(left)])
        return seconds[order], numbers

    def _run(self) -> None:
        self._solver.run()
        # Iterations are the same on every host, so that the search ends at the same point, unlike seconds.
        iterations = max(1, self._solver.getInfo().simplex_iteration_count)
        self.work += iterations * self._entries / ENTRIES_OF_AN_ACTION

    def _columns(self, groups: Sequence[int], count: int) -> Ints:
        """Return the columns of a table's combinations; a single group's choices are these."""
        if len(groups) == 1:
            return np.asarray(self._first[groups[0]] + np.arange(self.shape[groups[0]]))
        return count + np.arange(prod(self.shape[x] for x in groups))


def summed(
    shape: Sequence[int], terms: Sequence[tuple[Sequence[int], Floats]]
) -> Iterator[tuple[tuple[int, ...], Floats]]:
    """Yield the sums of terms for all choices of groups, in blocks, with the choices of the first groups.

    Args:
        shape: Number of choices of each group.
        terms: The groups that each depends on, ascending, and by choice of each its parts.
    """
    size, apart = terms[0][1].shape[-1], 0
    # The first groups are looped over until a block of the others fits into memory.
    while apart < len(shape) and prod(shape[apart:]) * size > MAX_SUMMED_AT_ONCE:
        apart += 1
    for first in np.ndindex(*shape[:apart]):
        total = np.zeros((*shape[apart:], size))
        for groups, numbers in terms:
            part = numbers[tuple(first[x] for x in groups if x < apart)]
            total += part.reshape(*(n if x in groups else 1 for x, n in enumerate(shape) if x >= apart), size)
        yield first, total


def _joined(tables: Sequence[tuple[Sequence[int], Floats]]) -> list[tuple[Sequence[int], Floats]]:
    """Return tables with each added to a larger one that has all of its groups, if there is one."""
    joined: list[tuple[Sequence[int], Floats]] = []
    # Fewer tables mean fewer y columns, and a tighter relaxation: loads on the same choices add up exactly.
    for groups, seconds in sorted(tables, key=lambda x: -len(x[0])):
        at = next((i for i, (larger, _) in enumerate(joined) if set(groups) <= set(larger)), None)
        if at is None:
            joined.append((groups, seconds))
            continue
        larger, total = joined[at]
        shape = [n if x in groups else 1 for x, n in zip(larger, total.shape, strict=False)]
        joined[at] = larger, total + seconds.reshape(*shape, -1)
    return joined

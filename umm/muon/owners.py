"""Who orthogonalises which matrix: the longest first, or by an integer linear program of all weights.

x[i, p] = 1 where weight i has placement p; n[i, r] of its matrices are at rank r where it has owners. T is
the seconds of the busiest owner; groups of ranks have different experts:

    least Z
    T + Σ_i Σ_p (compute[i, p] + moved[i, p]) · x[i, p] ≤ Z
    Σ_p x[i, p] = 1                              for each weight
    Σ_{r in group} n[i, r] = count[i, group] · x[i, owners]
    Σ_i each[i] · n[i, r] ≤ T                    for each rank
    n[0, r] ≥ n[0, r + 1]                        of one weight in one group: ranks are alike

Where collectives overlap with compute, Z has these bounds in place of the first row: both lanes' sums, that
of compute with the first gather and the last result. A flow shop adds two, for each weight's first and last
bucket: all gathers up to it, then all compute from it on; or those gathers, its compute and all results from
it on.

Sources: Graham (1969), Bounds on multiprocessing timing anomalies; Huangfu and Hall (2018), https://highs.dev.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from umm.linear_program import TOLERANCE, Rows, solver

MAX_NODES = 400  # nodes of the solver's branch and bound: the bound at its end is one, if not the best
MAX_SHARES = 600  # weights times ranks whose owners the program chooses; beyond, it bounds their mean alone


@dataclass(frozen=True)
class Owned:
    """Equal matrices that have owners."""

    each: float  # seconds of one
    count: int  # number of matrices
    groups: int = 1  # groups of consecutive ranks that share them out evenly; experts stay in theirs

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
    """A weight's seconds by placement."""

    compute: Sequence[float]  # of each placement, on every rank
    before: Sequence[float]  # of each placement, in collectives that gather momenta
    after: Sequence[float]  # of each placement, in collectives that follow
    parts: Sequence[int]  # of each placement the number of equal buckets
    owners: int  # number of the placement that has owners
    owned: Owned  # its matrices where they have owners


class Mix(NamedTuple):
    """An answer of the program."""

    bound: float  # seconds that no mix of placements goes below
    placements: list[int]  # of each weight the number of its placement
    shares: list[list[int]]  # of each weight the matrices at each rank; [] where the program chose none


def solve(weights: Sequence[Weight], ranks: int, hidden: float | None = None) -> Mix:
    """Return the best mix of placements and owners that the program meets, and a bound below all.

    Args:
        hidden: Seconds of collectives behind other work, where they overlap with compute; None where each
            waits for the other.
    """
    compute, before, after, parts = (np.concatenate([np.array(x[i]) for x in weights]) for i in range(4))
    # In units of a sure solution numbers are near one, as the solver's tolerances want them.
    owned = sum(x.owned.each * x.owned.count for x in weights)
    unit = (float(np.sum(compute + before + after)) + owned) / ranks or 1.0
    compute, before, after = compute / unit, before / unit, after / unit
    columns, rows = list[tuple[float, float, bool]](), Rows()  # cost, upper bound, whether it is integer

    def column(cost: float, upper: float, integer: bool) -> int:
        columns.append((cost, upper, integer))
        return len(columns) - 1

    total, longest = column(1.0, np.inf, False), column(0.0, np.inf, False)
    choices = [[column(0.0, 1.0, True) for _ in x.compute] for x in weights]
    for choice in choices:
        rows.add(choice, [1.0] * len(choice), 1.0, 1.0)
    chosen = [choice[x.owners] for choice, x in zip(choices, weights, strict=True)]
    every = [x for choice in choices for x in choice]
    each = [x.owned.each / unit for x in weights]
    means = [x.owned.each * x.owned.count / ranks / unit for x in weights]
    index = np.repeat(np.arange(len(weights)), [len(x.compute) for x in weights])
    if hidden is None:
        rows.add([total, longest, *every], [-1.0, 1.0, *(compute + before + after)], -np.inf, 0.0)
    else:
        work = compute.copy()
        work[[x - every[0] for x in chosen]] += means
        late, last = hidden / unit, after / parts * (index == index[-1])
        first = np.maximum(0.0, before / parts - late) * (index == 0)
        rows.add([total, longest, *every], [-1.0, 1.0, *(compute + first + last)], -np.inf, 0.0)
        rows.add([total, *every], [-1.0, *(before + after)], -np.inf, late)
        # The last momenta are complete when the backward pass ends.
        rows.add(
            [total, *every], [-1.0, *(((before + work) / parts + last) * (index == index[-1]))], -np.inf, 0.0
        )
        for i in range(len(weights)):
            for gathered, left in ((1 / parts, 1.0), (1.0, 1 / parts)):
                head = before * np.where(index == i, gathered, index < i)
                rest = np.where(index == i, left, index > i)
                for tail in (work * rest + last, work / parts * (index == i) + after * rest):
                    rows.add([total, *every], [-1.0, *(head + tail)], -np.inf, late)
                    # Compute, and so results, begin at the backward pass's end.
                    rows.add([total, *every], [-1.0, *tail], -np.inf, 0.0)
    rows.add([longest, *chosen], [-1.0, *means], -np.inf, 0.0)
    for choice_of, seconds in zip(chosen, each, strict=True):
        rows.add([longest, choice_of], [-1.0, seconds], -np.inf, 0.0)
    shares: list[list[int]] = [[] for _ in weights]
    if len(weights) * ranks <= MAX_SHARES:
        for i, weight in enumerate(weights):
            shares[i] = [column(0.0, weight.owned.count, True) for _ in range(ranks)]
            for span, count in weight.owned.spans(ranks):
                rows.add(
                    [chosen[i], *shares[i][span.start : span.stop]],
                    [-float(count), *[1.0] * len(span)],
                    0.0,
                    0.0,
                )
        for rank in range(ranks):
            rows.add([longest, *(x[rank] for x in shares)], [-1.0, *each], -np.inf, 0.0)
        alike = ranks // max(x.owned.groups for x in weights)
        first = shares[int(np.argmax(each))]
        for rank in range(ranks - 1):
            if (rank + 1) % alike:
                rows.add([first[rank], first[rank + 1]], [1.0, -1.0], 0.0, np.inf)
    costs, uppers, integers = zip(*columns, strict=True)
    highs = solver(costs, uppers, integers, rows, MAX_NODES)
    highs.run()
    values = np.array(highs.getSolution().col_value)
    # The dual bound is valid even where the solver stops at its limit of nodes.
    bound = max(0.0, highs.getInfo().mip_dual_bound) * unit * (1 - TOLERANCE)
    counts = [np.rint(values[x]).astype(int).tolist() if x else [] for x in shares]
    return Mix(bound, [int(values[choice].argmax()) for choice in choices], counts)

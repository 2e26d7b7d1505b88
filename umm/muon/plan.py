"""The plan of all weights: the placement of each, the owners of those that have one, and its seconds."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from umm.muon.placements import OWNERS, PLACEMENTS, Price, local, possible
from umm.muon.weights import Grid, Matrix
from umm.step.rates import Rates

LAYERS, BEST = "layers", "best"
MAX_MIXES = 50_000
"""Mixes of placements that are bounded at most: four of eight shapes."""


@dataclass(frozen=True)
class Row:
    """A plan by one placement.

    Attributes:
        placement: Its name.
        seconds: Of the optimizer's step: moved, then the rank that computes longest.
        memory: Bytes beside the weights at a time.
        busiest: Seconds of compute of the busiest rank.
        idlest: The same of the rank that computes least.
    """

    placement: str
    seconds: float
    memory: float
    busiest: float
    idlest: float


@dataclass(frozen=True)
class MuonPlan:
    """All placements, and the best mix of them.

    Attributes:
        rows: One for each placement, the best mix last.
        best: Placement of each matrix in the best mix.
        owners: For each matrix with owners, the number of matrices at each rank.
        gap: By how much the best mix may exceed the optimum of all mixes, a share; 0 where it is proven best.
    """

    rows: list[Row]
    best: dict[str, str]
    owners: dict[str, list[int]]
    gap: float

    @property
    def proven(self) -> bool:
        """Whether no other mix is faster."""
        return self.gap == 0.0


def longest_first(
    seconds: Mapping[str, tuple[float, int]], ranks: int
) -> tuple[list[float], dict[str, list[int]]]:
    """Return each rank's seconds, and how many matrices of each name it owns: the longest go first.

    Args:
        seconds: For each name the seconds of one matrix, and how many there are.
        ranks: Who can own them.

    Source: Graham (1969): at most 4/3 - 1/(3p) of the optimum.

    >>> longest_first({"a": (3.0, 2), "b": (1.0, 3)}, 2)
    ([5.0, 4.0], {'a': [1, 1], 'b': [2, 1]})
    """
    loads = [(0.0, rank) for rank in range(ranks)]
    owned = {name: [0] * ranks for name in seconds}
    for name, (each, count) in sorted(seconds.items(), key=lambda x: -x[1][0]):
        rounds, rest = divmod(count, ranks)
        # Rounds in which every rank gets one keep the order of loads.
        loads = [(load + rounds * each, rank) for load, rank in loads]
        owned[name] = [rounds] * ranks
        heapq.heapify(loads)
        for _ in range(rest):
            load, rank = heapq.heappop(loads)
            owned[name][rank] += 1
            heapq.heappush(loads, (load + each, rank))
    result = [0.0] * ranks
    for load, rank in loads:
        result[rank] = load
    return result, owned


def plan(weights: Sequence[Matrix], grid: Grid, rates: Rates) -> MuonPlan:
    """Return the seconds of each placement for all weights, and the best mix.

    A mix is bounded by its collectives, the compute of all ranks, and that of owners if spread evenly.
    Mixes are balanced in the order of these bounds until none that is left can be faster.

    Args:
        weights: The matrices.
        grid: The ranks that split them.
        rates: Prices on the machine.
    """
    rates.machine.check_alike()
    prices = [
        {name: PLACEMENTS[name](x, *local(x, grid), rates) for name in possible(x, grid)} for x in weights
    ]
    names = list(dict.fromkeys(name for each in prices for name in each))
    rows = [
        _row(name, weights, [each.get(name, each["duplicated"]) for each in prices], grid) for name in names
    ]
    rows.append(_by_layers(weights, [each[OWNERS] for each in prices], grid))
    choices = [sorted(each, key=lambda name, each=each: _alone(each[name], grid)) for each in prices]  # type: ignore[misc]
    while _mixes(choices) > MAX_MIXES:
        choices = [x[:-1] if len(x) > 2 else x for x in choices]
    bounded = sorted((_bound(weights, mix, prices, grid), mix) for mix in product(*choices))
    best: Row | None = None
    chosen: tuple[str, ...] = ()
    gap = 0.0
    for bound, mix in bounded:
        if best is not None and bound >= best.seconds:
            break
        row = _row(BEST, weights, [each[name] for each, name in zip(prices, mix, strict=True)], grid)
        if best is None or row.seconds < best.seconds:
            best, chosen = row, mix
    assert best is not None
    by_layers = rows[-1]
    if by_layers.seconds < best.seconds:
        best, chosen = replace(by_layers, placement=BEST), (LAYERS,) * len(weights)
    if best.seconds > bounded[0][0] * (1 + 1e-9):
        gap = best.seconds / bounded[0][0] - 1
    owned = _owned(
        weights, [each.get(x, each[OWNERS]) for each, x in zip(prices, chosen, strict=True)], grid
    )[1]
    mixed = {x.name: name for x, name in zip(weights, chosen, strict=True)}
    return MuonPlan([*rows, best], mixed, owned, gap)


def _alone(price: Price, grid: Grid) -> float:
    return price.moved + price.shared + price.owned / grid.ranks


def _mixes(choices: Sequence[Sequence[str]]) -> int:
    return prod(map(len, choices))


def _owned(
    weights: Sequence[Matrix], prices: Sequence[Price], grid: Grid
) -> tuple[list[float], dict[str, list[int]]]:
    # Experts of each group are owned within it; groups are alike, so this is all experts over all ranks.
    owned = {x.name: (price.owned, x.count) for x, price in zip(weights, prices, strict=True) if price.owned}
    return longest_first(owned, grid.ranks)


def _row(name: str, weights: Sequence[Matrix], prices: Sequence[Price], grid: Grid) -> Row:
    loads, _ = _owned(weights, prices, grid)
    moved, shared = sum(x.moved for x in prices), sum(x.shared for x in prices)
    memory = max(x.memory for x in prices)
    return Row(name, moved + shared + max(loads), memory, shared + max(loads), shared + min(loads))


def _by_layers(weights: Sequence[Matrix], prices: Sequence[Price], grid: Grid) -> Row:
    """Return owners of whole layers: all matrices of a layer are one rank's."""
    layers = max(x.layers for x in weights)
    each = sum(price.owned * x.count for x, price in zip(weights, prices, strict=True)) / layers
    busiest = -(-layers // grid.ranks) * each
    moved = sum(x.moved for x in prices)
    return Row(LAYERS, moved + busiest, max(x.memory for x in prices), busiest, layers // grid.ranks * each)


def _bound(
    weights: Sequence[Matrix], mix: Sequence[str], prices: Sequence[Mapping[str, Price]], grid: Grid
) -> float:
    chosen = [each[name] for each, name in zip(prices, mix, strict=True)]
    owned = [price.owned * x.count for x, price in zip(weights, chosen, strict=True)]
    longest = max((price.owned for price in chosen), default=0.0)
    return sum(x.moved + x.shared for x in chosen) + max(sum(owned) / grid.ranks, longest)

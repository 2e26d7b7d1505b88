"""A bound below every assignment of a chain too large to go through, and assignments near it.

The busiest of some resources is at least their mean by any weights, and that mean is a sum over statements.
So for given weights the least sum over all assignments is a bound, found exactly by eliminating one group of
tensors after another; better weights give a better one.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from umm.arrays import Floats, Ints
from umm.space.assignments import Place
from umm.space.bounds.tables import Tables

IN_LINE = 1
MOST = 1_000_000  # entries of one table while eliminating
ROUNDS = 80
BRANCH_ROUNDS = 3
FEW = 64
"""Choices by which resources are compared before they are by all."""
FULL = 1e-9
"""Share of the budget that a sum of means over ranks may be too large by rounding."""
ENOUGH = 1.25
"""Times the bound of all, at which a choice counts as ruled out."""


@dataclass(frozen=True, eq=False)
class Factor:
    """A cost for every choice of some groups, whose numbers ascend."""

    groups: tuple[int, ...]
    cost: Floats


@dataclass(frozen=True, eq=False)
class Relaxed:
    """The sums whose busiest is bounded from below.

    Attributes:
        tables: Groups and, by choice of each and by resource, seconds; see ``StatementTable``.
        held: By group and choice the mean over ranks of the bytes of its tensors, as a share of the budget.
    """

    tables: tuple[tuple[tuple[int, ...], Floats], ...]
    held: tuple[Floats, ...]

    @classmethod
    def of(cls, tables: Tables, limit: int) -> "Relaxed":
        """Return the sums of a chain.

        Args:
            tables: Of the chain.
            limit: Bytes a rank may hold; the mean over ranks is priced so that it pays to keep it.
        """
        held = tuple(of.mean(axis=-1) / limit for of in tables.held)
        kept = _undominated(np.concatenate([x.seconds.reshape(-1, x.seconds.shape[-1]) for x in tables.all]))
        return cls(tuple(_joined([(x.groups, x.seconds[..., kept]) for x in tables.all])), held)

    def chosen(self, group: int, choice: int) -> "Relaxed":
        """Return what is left where one group has one choice alone, which is its only one then."""

        def left(groups: tuple[int, ...], seconds: Floats) -> tuple[tuple[int, ...], Floats]:
            if group not in groups:
                return groups, seconds
            less = np.asarray(seconds.take(choice, axis=groups.index(group)))
            return tuple(x for x in groups if x != group), less

        held = tuple(of[[choice]] if g == group else of for g, of in enumerate(self.held))
        return Relaxed(tuple(left(*x) for x in self.tables), held)

    @property
    def least(self) -> float:
        """Seconds of the busiest resource where each has the least of every table: a bound below all."""
        return float(np.sum([x.reshape(-1, x.shape[-1]).min(axis=0) for _, x in self.tables], axis=0).max())

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of choices of each group."""
        return tuple(len(of) for of in self.held)

    @property
    def entries(self) -> int:
        """Seconds of all resources in all assignments together."""
        return prod(self.shape) * int(self.tables[0][1].shape[-1])

    @property
    def work(self) -> float:
        """Actions that could be written while weights are tried once: 12 µs each, most of it calls."""
        return len(self.tables) + len(self.held) + sum(x.size for _, x in self.tables) / 5_000

    def below(self, most: float) -> tuple[Floats, Ints]:
        """Return the seconds of the busiest resource, ascending, of all assignments that fit, and these.

        Args:
            most: Seconds from which on an assignment is left out.
        """

        def spread(groups: tuple[int, ...], of: Floats) -> Floats:
            return of.reshape(
                *(n if x in groups else 1 for x, n in enumerate(self.shape)), *of.shape[len(groups) :]
            )

        total: Floats = np.zeros((*self.shape, self.tables[0][1].shape[-1]))
        for groups, seconds in self.tables:
            total += spread(groups, seconds)
        held: Floats = sum((spread((x,), of) for x, of in enumerate(self.held)), start=np.zeros(self.shape))
        busiest = total.max(axis=-1)
        places = np.argwhere((busiest < most) & (held <= 1.0 + FULL))
        found = busiest[tuple(places.T)]
        order = found.argsort(kind="stable")
        return found[order], places[order]

    def by_choice(self, group: int, weighted: "Round") -> Floats:
        """Return for each choice of a group a bound below all assignments that have it, by given weights."""
        factors = self._factors(weighted.weights, weighted.price)
        return cheapest_by(factors, self.shape, group) - weighted.price

    def _factors(self, weights: Floats, price: float) -> list[Factor]:
        factors = [Factor(groups, seconds @ weights) for groups, seconds in self.tables]
        held = (((number,) if len(of) > 1 else (), of) for number, of in enumerate(self.held))
        return factors + [Factor(groups, price * (of if groups else of[0])) for groups, of in held]

    def rounds(self, count: int, first: "Round | None" = None) -> Iterator["Round"]:
        """Yield bounds below every assignment that fits, each with better weights as a rule.

        Args:
            count: How many.
            first: Whose weights to begin with; None for equal ones.
        """
        resources = self.tables[0][1].shape[-1]
        weights = _first_weights(resources) if first is None else first.weights
        price, unit = 0.0 if first is None else first.price, 0.0
        for step in range(count):
            least, place = cheapest(self._factors(weights, price), self.shape)
            yield Round(least - price, place, weights, price)
            busy = np.sum([x[tuple(place[g] for g in groups)] for groups, x in self.tables], axis=0)
            unit = unit or float(busy.max())
            rate = 4.0 / (1.0 + step) ** 0.5
            weights = weights * np.exp(rate * (busy / busy.max() - 1.0))
            weights /= weights.sum()
            over = sum(of[chosen] for of, chosen in zip(self.held, place, strict=True)) - 1.0
            price = max(0.0, price + 0.2 * rate * unit * float(over))


def _joined(tables: Sequence[tuple[tuple[int, ...], Floats]]) -> list[tuple[tuple[int, ...], Floats]]:
    """Return tables with each added to a larger one that has all of its groups, if there is one."""
    found: list[tuple[tuple[int, ...], Floats]] = []
    for groups, seconds in sorted(tables, key=lambda x: -len(x[0])):
        at = next((i for i, (of, _) in enumerate(found) if set(groups) <= set(of)), None)
        if at is None:
            found.append((groups, seconds))
            continue
        of, total = found[at]
        shape = [n if x in groups else 1 for x, n in zip(of, total.shape, strict=False)]
        found[at] = of, total + seconds.reshape(*shape, -1)
    return found


def _undominated(seconds: Floats) -> list[int]:
    """Return the columns that are not everywhere at most another one, and the last few, which are in line."""
    count, kept = seconds.shape[1] - IN_LINE, list[int]()
    some = seconds[:: max(1, len(seconds) // FEW)]
    for x in np.argsort(-seconds[:, :count].sum(axis=0), kind="stable").tolist():
        able = np.flatnonzero((some[:, [x]] <= some[:, kept]).all(axis=0))  # few are, and that takes little
        if not any((seconds[:, x] <= seconds[:, kept[i]]).all() for i in able.tolist()):
            kept.append(x)
    return [*sorted(kept), *range(count, seconds.shape[1])]


def _first_weights(resources: int) -> Floats:
    """Return weights to begin with: half of all for the few sums in line, which bind most often."""
    weights = np.full(resources, 0.5 / resources)
    weights[-IN_LINE:] += 0.5 / IN_LINE
    return np.asarray(weights / weights.sum())


@dataclass(frozen=True, eq=False)
class Round:
    """A bound below every assignment that fits.

    Attributes:
        bound: The bound, in seconds.
        place: An assignment that attains it without a budget.
        weights: Of each resource.
        price: Of the budget, in seconds.
    """

    bound: float
    place: Place
    weights: Floats
    price: float


@dataclass(frozen=True, eq=False)
class _Node:
    """Assignments that share the choices of some groups.

    Attributes:
        chosen: By group the choice.
        relaxed: The sums that are left.
        best: The best bound below them.
    """

    chosen: dict[int, int]
    relaxed: Relaxed
    best: Round


@dataclass(frozen=True, eq=False)
class _Leaves:
    """Assignments with a bound of each, ascending, from one of them on."""

    bounds: Floats
    places: Ints
    first: int


class Branches:
    """A bound below every assignment that fits, better than that of one set of weights for all.

    Whatever a group of tensors is laid out like, it is one of its choices, and each choice alone has better
    weights. So the assignments with the lowest bound are divided by the choice of one more group, until they
    are so few that each gets its own bound, that of its busiest resource.

    Source: Land and Doig (1960), branch and bound, with Lagrangian bounds.

    Args:
        relaxed: The sums.
        root: The best bound without choices.

    Attributes:
        work: Actions that could have been written meanwhile, about; the same on every host.
    """

    def __init__(self, relaxed: Relaxed, root: Round) -> None:
        self.work = 0.0
        self._number, self._waiting = 0, list[tuple[float, int, _Node | _Leaves]]()
        self._order = _most_telling(relaxed, root)
        self._wait(root.bound, _Node({}, relaxed, root))

    @property
    def lowest(self) -> float:
        """The bound, in seconds, of all assignments that no choice has ruled out; infinite without any."""
        return self._waiting[0][0] if self._waiting else np.inf

    def next(self, most: float) -> Place | None:
        """Divide the assignments with the lowest bound; return it if it is one alone, which is left out now.

        Args:
            most: Seconds from which on a bound is of no interest.
        """
        least, _, node = heapq.heappop(self._waiting)
        self.work += 1
        if isinstance(node, _Leaves):
            self._wait_each(least, node.bounds, node.places, node.first + 1)
            return tuple(node.places[node.first].tolist())
        if len(node.chosen) == len(self._order):
            return node.best.place
        if node.relaxed.entries <= MOST:
            self.work += node.relaxed.entries * len(node.relaxed.tables) / 10_000
            bounds, places = node.relaxed.below(most)
            for group, choice in node.chosen.items():
                places[:, group] = choice
            self._wait_each(least, bounds, places, 0)
            return None
        group = self._order[len(node.chosen)]
        self.work += 2 * node.relaxed.work
        for choice in np.flatnonzero(node.relaxed.by_choice(group, node.best) < most).tolist():
            relaxed = node.relaxed.chosen(group, choice)
            alone = relaxed.least
            if alone >= most:
                continue
            self.work += BRANCH_ROUNDS * relaxed.work
            best = _best(relaxed.rounds(BRANCH_ROUNDS, node.best), most)
            bound, chosen = max(least, best.bound, alone), {**node.chosen, group: choice}
            if bound < most:
                place = tuple(chosen.get(x, y) for x, y in enumerate(best.place))
                self._wait(bound, _Node(chosen, relaxed, replace(best, place=place)))
        return None

    def again(self, place: Place, bound: float) -> None:
        """Let an assignment wait with a better bound."""
        alone = dict(enumerate(place))
        self._wait(bound, _Node(alone, Relaxed((), ()), Round(bound, place, np.zeros(0), 0.0)))

    def _wait_each(self, least: float, bounds: Floats, places: Ints, first: int) -> None:
        """Let assignments wait, from one of them on, all of which have at least some bound together."""
        if first < len(bounds):
            self._wait(max(least, float(bounds[first])), _Leaves(bounds, places, first))

    def _wait(self, bound: float, node: "_Node | _Leaves") -> None:
        self._number += 1
        heapq.heappush(self._waiting, (bound, self._number, node))


def _best(rounds: Iterator[Round], most: float) -> Round:
    """Return the round with the best bound, or the first whose bound is enough."""
    best = next(rounds)
    for x in rounds:
        if best.bound >= most:
            break
        best = max(best, x, key=lambda x: x.bound)
    return best


def _most_telling(relaxed: Relaxed, root: Round) -> list[int]:
    """Return the groups, those first whose choices raise the bound most."""

    def raised(group: int) -> float:
        return float(np.mean(np.minimum(relaxed.by_choice(group, root), ENOUGH * root.bound)))

    return sorted(range(len(relaxed.held)), key=lambda x: -raised(x))


def cheapest(factors: Sequence[Factor], shape: Sequence[int]) -> tuple[float, Place]:
    """Return a bound below the sum of some costs over all choices, and choices that come near it.

    Groups are eliminated one after another, those that meet fewest others first. While no table becomes too
    large the bound is the least sum itself, and the choices attain it.

    >>> costs = [Factor((0, 1), np.array([[3.0, 1.0], [0.0, 4.0]])), Factor((1,), np.array([2.0, 0.0]))]
    >>> cheapest(costs, (2, 2))
    (1.0, (0, 1))
    """
    steps, left = _steps(tuple(x.groups for x in factors), tuple(shape), None)
    costs, totals = _eliminated(factors, steps)
    place = [0] * len(shape)
    for step, parts in zip(reversed(steps), reversed(totals), strict=True):
        cost = [
            total[tuple(slice(None) if x == step.group else place[x] for x in part.groups)]
            for part, total in zip(step.parts, parts, strict=True)
        ]
        place[step.group] = int(np.argmin(sum(cost[1:], start=cost[0])))
    return float(sum(float(costs[x]) for x in left)), tuple(place)


def cheapest_by(factors: Sequence[Factor], shape: Sequence[int], group: int) -> Floats:
    """Return for each choice of a group a bound below the sum of some costs over all others' choices.

    >>> costs = [Factor((0, 1), np.array([[3.0, 1.0], [0.0, 4.0]])), Factor((1,), np.array([2.0, 0.0]))]
    >>> cheapest_by(costs, (2, 2), 0).tolist()
    [1.0, 2.0]
    """
    steps, left = _steps(tuple(x.groups for x in factors), tuple(shape), group)
    costs, _ = _eliminated(factors, steps)
    return np.asarray(sum((costs[x] for x in left), start=np.zeros(shape[group])))


class _Part(NamedTuple):
    """Factors that are added up while a group is eliminated.

    Attributes:
        groups: Of them all.
        shape: Choices of each.
        factors: Number of each factor, and the shape in which it is added.
        axis: Of the group.
    """

    groups: tuple[int, ...]
    shape: tuple[int, ...]
    factors: tuple[tuple[int, tuple[int, ...]], ...]
    axis: int


class _Step(NamedTuple):
    """The elimination of a group; each part becomes a factor of the other groups."""

    group: int
    parts: tuple[_Part, ...]


@lru_cache(maxsize=4096)
def _steps(
    factors: tuple[tuple[int, ...], ...], shape: tuple[int, ...], last: int | None
) -> tuple[tuple[_Step, ...], tuple[int, ...]]:
    """Return in what order groups are eliminated, and the factors that are left then.

    Args:
        factors: The groups of each.
        shape: Number of choices of each group.
        last: A group that stays.
    """
    known, left, steps = list(factors), list(range(len(factors))), list[_Step]()
    remaining = {x for groups in factors for x in groups} - {last}
    while remaining:
        group = min(remaining, key=lambda x: (_size([known[i] for i in left], x, shape), x))
        remaining.remove(group)
        bucket = [i for i in left if group in known[i]]
        left = [i for i in left if group not in known[i]]
        parts = [_part(part, known, shape, group) for part in _parts(bucket, known, shape)]
        left += range(len(known), len(known) + len(parts))
        known += [tuple(x for x in part.groups if x != group) for part in parts]
        steps.append(_Step(group, tuple(parts)))
    return tuple(steps), tuple(left)


def _eliminated(factors: Sequence[Factor], steps: Sequence[_Step]) -> tuple[list[Floats], list[list[Floats]]]:
    """Return the costs of all factors, those made by eliminating last, and by step the sum of each part."""
    costs, totals = [x.cost for x in factors], list[list[Floats]]()
    for step in steps:
        sums = []
        for part in step.parts:
            total = np.zeros(part.shape)
            for number, shape in part.factors:
                total += costs[number].reshape(shape)
            sums.append(total)
        costs += [total.min(axis=part.axis) for part, total in zip(step.parts, sums, strict=True)]
        totals.append(sums)
    return costs, totals


def _size(factors: Sequence[tuple[int, ...]], group: int, shape: Sequence[int]) -> int:
    """Return the entries of the table that eliminating a group needs."""
    return _entries({x for groups in factors if group in groups for x in groups}, shape)


def _entries(groups: set[int], shape: Sequence[int]) -> int:
    return prod(shape[x] for x in groups)


def _parts(bucket: Sequence[int], known: Sequence[tuple[int, ...]], shape: Sequence[int]) -> list[list[int]]:
    """Return factors in parts whose joint tables are not too large; one part if they can be."""
    parts: list[tuple[set[int], list[int]]] = []
    for factor in sorted(bucket, key=lambda x: -len(known[x])):
        for groups, part in parts:
            if _entries(groups | set(known[factor]), shape) <= MOST:
                groups.update(known[factor])
                part.append(factor)
                break
        else:
            parts.append((set(known[factor]), [factor]))
    return [part for _, part in parts]


def _part(
    factors: Sequence[int], known: Sequence[tuple[int, ...]], shape: Sequence[int], group: int
) -> _Part:
    """Return how some factors are added up, to eliminate a group."""
    groups = tuple(sorted({x for factor in factors for x in known[factor]}))
    spread = [(x, tuple(shape[g] if g in known[x] else 1 for g in groups)) for x in factors]
    return _Part(groups, tuple(shape[x] for x in groups), tuple(spread), groups.index(group))

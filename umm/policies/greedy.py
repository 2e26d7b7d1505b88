"""Greedy lowerings: the next op's steps at a time, in list order or by the cost model."""

from collections.abc import Iterable, Iterator
from itertools import combinations, islice

from umm.policies.graph import Graph
from umm.policies.ir import Limits, Step, Steps

CHOICES = 64  # sets of gemms that cost greedy weighs for one step


class Traversal:
    """A walk over a computation graph: satisfied edges, and multiplies left to do."""

    def __init__(self, graph: Graph, limits: Limits) -> None:
        self.graph, self.limits = graph, limits
        # For each multiply not yet done the data it still lacks.
        self.missing: dict[int, set[int]] = {i: set(needs) for i, needs in enumerate(graph.needs)}
        self.pending: list[int] = []  # multiplies done whose contribution has not gone out, oldest first
        self.steps: list[Step] = []  # the steps so far

    @property
    def busy(self) -> bool:
        """Whether anything is left."""
        return bool(self.missing or self.pending)

    def eligible(self) -> Iterator[int]:
        """Yield the multiplies whose edges are all satisfied, in list order."""
        return (i for i, missing in self.missing.items() if not missing)

    def wanted(self) -> Iterator[int]:
        """Yield the data at unsatisfied edges in the order the list needs them, each once."""
        seen = set()
        for missing in self.missing.values():
            for x in sorted(missing):
                if x not in seen:
                    seen.add(x)
                    yield x

    def take(self, step: Step) -> None:
        """Do a step: satisfy the edges of its gets."""
        self.steps.append(step)
        for i in step.gemms:
            del self.missing[i]
        for x in step.gets:
            for i in self.graph.readers[x]:
                if i in self.missing:
                    self.missing[i].discard(x)
        self.pending = [i for i in self.pending if i not in step.accumulates]
        self.pending += [i for i in step.gemms if self.graph.updates[i]]


def greedy(graph: Graph, limits: Limits) -> Steps:
    """Return steps that each take any eligible gemms, then any eligible communication, up to the limits.

    Accumulates go before gets, because they free memory; both in list order.

    Source: Brock & Golin (2025), section 4.3.
    """
    walk = Traversal(graph, limits)
    while walk.busy:
        gemms = tuple(islice(walk.eligible(), limits.gemms))
        accumulates = tuple(walk.pending[: limits.communications])
        gets = tuple(islice(walk.wanted(), limits.communications - len(accumulates)))
        walk.take(Step(gets, gemms, accumulates))
    return tuple(walk.steps)


def cost_greedy(graph: Graph, limits: Limits) -> Steps:
    """Return steps that are as full as the limits allow, chosen so that little of them is not overlapped.

    Of the sets of eligible gemms (the first few dozen in list order), each with communication that fits it,
    the step is that whose communication and computation differ least; of equal ones the one with more
    computation.

    Source: Brock & Golin (2025), section 4.3.
    """
    walk = Traversal(graph, limits)
    while walk.busy:
        eligible = list(walk.eligible())
        count = min(limits.gemms, len(eligible))
        best: tuple[tuple[float, float], Step] | None = None
        seen = set()
        for gemms in islice(combinations(eligible, count), CHOICES):
            computation = sum(graph.seconds[i] for i in gemms)
            kind = tuple(sorted(graph.seconds[i] for i in gemms))
            if kind in seen:
                continue
            seen.add(kind)
            gets, accumulates, communication = _fill(walk, computation)
            key = (abs(communication - computation), -computation)
            if best is None or key < best[0]:
                best = key, Step(gets, gemms, accumulates)
        assert best is not None
        walk.take(best[1])
    return tuple(walk.steps)


def _fill(walk: Traversal, computation: float) -> tuple[tuple[int, ...], tuple[int, ...], float]:
    """Return gets and accumulates up to the limit, and their seconds, that overlap a step's computation well.

    One after another, the one that brings their sum nearest to the computation. What a multiply lacks is got
    together, so that steps to come have something to do.
    """
    graph, room = walk.graph, walk.limits.communications
    gets: list[int] = []
    accumulates: list[int] = []
    communication = 0.0
    bundles = list(dict.fromkeys(tuple(sorted(m)) for m in walk.missing.values() if m))
    pending = list(walk.pending)
    while room and (bundles or pending):
        candidates: list[tuple[float, float, tuple[int, ...], int]] = []
        for bundle in bundles[:CHOICES]:
            seconds = sum(graph.data[x].seconds for x in bundle)
            candidates.append((abs(communication + seconds - computation), seconds, bundle, -1))
        for i in pending[:CHOICES]:
            update = graph.updates[i]
            assert update is not None
            gain = abs(communication + update.seconds - computation)
            candidates.append((gain, update.seconds, (), i))
        best = min(candidates, key=lambda x: x[0])  # of equal ones the first
        if best[3] >= 0:
            accumulates.append(best[3])
            pending.remove(best[3])
            communication += best[1]
            room -= 1
            continue
        chosen = best[2][:room]
        gets += chosen
        communication += sum(graph.data[x].seconds for x in chosen)
        room -= len(chosen)
        bundles = _without(bundles, chosen)
    return tuple(gets), tuple(accumulates), communication


def _without(bundles: Iterable[tuple[int, ...]], fetched: tuple[int, ...]) -> list[tuple[int, ...]]:
    left = (tuple(x for x in bundle if x not in fetched) for bundle in bundles)
    return list(dict.fromkeys(bundle for bundle in left if bundle))

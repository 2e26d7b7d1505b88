"""A rank's state in the search for the best steps: bit masks, ready multiplies, a bound on the rest."""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, combinations, zip_longest
from math import inf
from typing import NamedTuple

from umm.policies.graph import Graph
from umm.policies.ir import Limits


class State(NamedTuple):
    """Masks of data fetched, multiplies done and sums sent, and the seconds of computation and sends left."""

    fetched: int
    done: int
    sent: int
    compute: float
    sends: float


class Masked:
    """A computation graph with its remote data and its component multiplies numbered from 0."""

    def __init__(self, graph: Graph) -> None:
        # The number of each remote datum in the graph.
        self.remote = [x for x in range(len(graph.data)) if x not in graph.own]
        place = {x: i for i, x in enumerate(self.remote)}
        self.fetch = [graph.data[x].seconds for x in self.remote]  # seconds of each remote datum
        self.readers = [list(graph.readers[x]) for x in self.remote]  # the component multiplies that read it
        # The remote data of each component multiply.
        self.needs = [sum(1 << place[x] for x in needs) for needs in graph.needs]
        self.gemm = graph.seconds  # its seconds
        # Seconds of its accumulate.
        self.send = [update.seconds if update else 0.0 for update in graph.updates]
        # The multiplies that have one.
        self.sending = sum(1 << i for i, update in enumerate(graph.updates) if update)
        # What distinguishes multiplies with equal needs.
        self.kinds = [(c, self.sending >> i & 1, self.send[i]) for i, c in enumerate(self.gemm)]
        self.all_data, self.all_gemms = (1 << len(self.remote)) - 1, (1 << len(graph)) - 1
        # Numbers given to parts of the graph that are equal except names.
        self.names: dict[tuple[object, ...], int] = {}
        self.start = State(0, 0, 0, sum(self.gemm), sum(self.send))  # the state in which nothing is done


def bits(mask: int) -> Iterator[int]:
    """Yield the places of the bits of a mask, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Part:
    """The consequences of a set of fetched data: ready multiplies, missing data, and bounds on these."""

    def __init__(self, graph: Masked, fetched: int) -> None:
        missing = graph.all_data & ~fetched
        self.ready = sum(1 << i for i, needs in enumerate(graph.needs) if not needs & missing)
        left = list(bits(missing))
        self.fetch = sum(graph.fetch[x] for x in left)
        not_ready = list(bits(graph.all_gemms & ~self.ready))
        lacks = {i: graph.needs[i] & missing for i in not_ready}
        self.head = min((sum(graph.fetch[x] for x in bits(m)) for m in lacks.values()), default=0.0)
        self.tail = min((sum(graph.gemm[i] for i in graph.readers[x]) for x in left), default=0.0)
        groups: dict[int, list[list[int]]] = {}
        for component in _components(lacks):
            groups.setdefault(_name(graph, component, lacks), []).append(component)
        self.groups = groups
        self.key = tuple(sorted((name, len(same)) for name, same in groups.items()))
        self.graph = graph
        self._gets: list[tuple[float, int, float]] | None = None

    def gets(self, room: int) -> list[tuple[float, int, float]]:
        """Return the sets of up to ``room`` data, of equal parts the first: seconds, mask, least more."""
        if self._gets is None:
            self._gets = list(self._selected(room))
        return self._gets

    def _selected(self, room: int) -> Iterator[tuple[float, int, float]]:
        fetch = self.graph.fetch
        components = [(g, c) for g, same in enumerate(self.groups.values()) for c in same]
        # Up to so many data of a component, in the same order for equal components.
        sizes = [range(min(room, len(c)) + 1) for _, c in components]
        subsets = [
            [sum(1 << x for x in chosen) for size in some for chosen in combinations(c, size)]
            for (_, c), some in zip(components, sizes, strict=True)
        ]
        everything = sum(1 << x for _, c in components for x in c)
        cheapest = sorted((fetch[x], 1 << x) for x in bits(everything))

        def extend(place: int, rank: int, mask: int) -> Iterator[int]:
            if place == len(components):
                yield mask
                return
            same = place > 0 and components[place - 1][0] == components[place][0]
            for number, subset in enumerate(subsets[place]):
                if same and number > rank:
                    break
                if (mask | subset).bit_count() <= room:
                    yield from extend(place + 1, number, mask | subset)

        for mask in extend(0, 0, 0):
            more = next((s for s, bit in cheapest if not mask & bit), inf)
            yield sum(fetch[x] for x in bits(mask)), mask, more


def selections(groups: Sequence[tuple[float, list[int]]], room: int) -> Iterator[tuple[float, int, float]]:
    """Yield (seconds, mask, least that could be added) for up to ``room`` of grouped equal bits."""

    def extend(
        place: int, left: int, seconds: float, mask: int, more: float
    ) -> Iterator[tuple[float, int, float]]:
        if place == len(groups):
            yield seconds, mask, more if left else inf
            return
        each, bits = groups[place]
        taken = 0
        for number in range(min(left, len(bits)) + 1):
            if number:
                taken |= bits[number - 1]
            rest = each if number < len(bits) else inf
            yield from extend(
                place + 1, left - number, seconds + number * each, mask | taken, min(more, rest)
            )

    return extend(0, room, 0.0, 0, inf)


def _components(lacks: dict[int, int]) -> list[list[int]]:
    """Return the data not fetched, in groups that multiplies join."""
    groups: list[int] = []
    for mask in lacks.values():
        joined = mask
        apart = []
        for group in groups:
            if group & joined:
                joined |= group
            else:
                apart.append(group)
        groups = [*apart, joined]
    return sorted(list(bits(group)) for group in groups)


def _name(graph: Masked, component: list[int], lacks: dict[int, int]) -> int:
    """Return a number for a component, the same for components equal except names."""
    place = {x: i for i, x in enumerate(component)}
    mask = sum(1 << x for x in component)
    gemms = sorted(
        (graph.gemm[i], graph.sending >> i & 1, graph.send[i], tuple(place[x] for x in bits(m)))
        for i, m in lacks.items()
        if m & mask
    )
    form = (tuple(graph.fetch[x] for x in component), tuple(gemms))
    return graph.names.setdefault(form, len(graph.names))


class StepBound:
    """The bound for each state of a search, never too large.

    Communication and computation each take at least their sum; before the first gemm something must be
    fetched, and after the last fetch the gemms that read it must run; before the last accumulate there is a
    gemm; a step's limits leave no room for more than so much overlap.
    """

    def __init__(self, graph: Masked, parts: Callable[[int], Part], limits: Limits) -> None:
        self.graph, self.parts, self.limits = graph, parts, limits
        self.ends: dict[int, tuple[float, float]] = {}
        self.talk_sums: dict[tuple[int, int], tuple[list[float], list[float]]] = {}
        self.work_sums: dict[int, tuple[list[float], list[float]]] = {}

    def least(self, spent: float, state: State) -> float:
        """Return the cost so far and the least that must still come, in seconds."""
        graph, part, done = self.graph, self.parts(state.fetched), state.done
        least = max(part.fetch + state.sends, state.compute, part.fetch + part.tail)
        if done != graph.all_gemms:
            ends = self.ends.get(done)
            if ends is None:
                undone = list(bits(graph.all_gemms & ~done))
                ends = min([graph.send[i] for i in undone]), min([graph.gemm[i] for i in undone])
                self.ends[done] = ends
            if part.ready & ~done:
                least = max(least, state.compute + ends[0])
            else:
                least = max(least, part.head + state.compute + ends[0])
            if not part.fetch and not done & graph.sending & ~state.sent:
                least = max(least, state.sends + ends[1])
            everything = part.fetch + state.sends + state.compute
            if everything - least > 0.0:
                least = max(least, everything - self._hidden(state))
        return spent + least

    def _hidden(self, state: State) -> float:
        """Return the most seconds that can still overlap, by the limits alone."""
        # The K longest transfers are in at most K steps, which hold no more than the K times `gemms` longest
        # gemms; the other transfers hide no more than themselves. The same holds with the sides exchanged.
        graph = self.graph
        talk = self.talk_sums.get((state.fetched, state.sent))
        if talk is None:
            left = [graph.fetch[x] for x in bits(graph.all_data & ~state.fetched)]
            left += [graph.send[i] for i in bits(graph.sending & ~state.sent)]
            talk = self.talk_sums[state.fetched, state.sent] = _sums(left, self.limits.communications)
        work = self.work_sums.get(state.done)
        if work is None:
            left = [graph.gemm[i] for i in bits(graph.all_gemms & ~state.done)]
            work = self.work_sums[state.done] = _sums(left, self.limits.gemms)
        return min(_crossing(talk[0], work[1]), _crossing(work[0], talk[1]))


def _sums(seconds: list[float], limit: int) -> tuple[list[float], list[float]]:
    """Return for K = 0, 1, …: all but the K longest, and the K times ``limit`` longest, in seconds."""
    seconds.sort(reverse=True)
    longest = [0.0, *accumulate(seconds)]
    return [longest[-1] - x for x in longest], longest[::limit] + longest[-1:]


def _crossing(falling: list[float], rising: list[float]) -> float:
    """Return the least sum of two lists of one place, the second going on with its last value."""
    least = inf
    for x, y in zip_longest(falling, rising, fillvalue=-1.0):
        if x < 0.0:
            break
        least = min(least, x + (y if y >= 0.0 else rising[-1]))
    return least

"""What follows from the data a rank has fetched: what is ready, and what the rest is like but for names."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import inf

from umm.algorithms.universal.steps.masks import Masked, bits


class Part:
    """What follows from the data fetched: what is ready, what is not, and the bounds of that."""

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
        for component in _components(left, lacks):
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
        subsets = [list(_subsets(c, room)) for _, c in components]
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


class Parts(dict[int, Part]):
    """The part of each set of fetched data, made when it is first asked for."""

    def __init__(self, graph: Masked) -> None:
        super().__init__()
        self.graph = graph

    def __missing__(self, fetched: int) -> Part:
        """Make a part."""
        part = self[fetched] = Part(self.graph, fetched)
        return part


def _subsets(component: list[int], room: int) -> Iterator[int]:
    """Yield the subsets of a component with up to ``room`` data, in the same order for equal components."""
    for size in range(min(room, len(component)) + 1):
        for chosen in combinations(component, size):
            yield sum(1 << x for x in chosen)


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


def _components(left: list[int], lacks: dict[int, int]) -> list[list[int]]:
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
    """Return a number for a component, the same for components equal but for names."""
    place = {x: i for i, x in enumerate(component)}
    mask = sum(1 << x for x in component)
    gemms = sorted(
        (graph.gemm[i], graph.sending >> i & 1, graph.send[i], tuple(place[x] for x in bits(m)))
        for i, m in lacks.items()
        if m & mask
    )
    form = (tuple(graph.fetch[x] for x in component), tuple(gemms))
    return graph.names.setdefault(form, len(graph.names))

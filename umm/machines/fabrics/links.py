"""Explicit links between devices and named switches; routes are shortest paths."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise, permutations
from typing import Annotated, Literal

import numpy as np

from umm.arrays import rows_of_groups
from umm.errors import MachineError, did_you_mean
from umm.machines.declaring import Field, model_validator
from umm.machines.fabric import Ends, Fabric
from umm.machines.kind import Kind, LinkNumbers, expect_links
from umm.machines.quantities import Name, Table, noted, twice

FASTER = 2.0  # how much faster the links inside groups of nearer devices are at least than those between them


class Edges(Table):
    """Links of one type: between two vertices, or among all of a list; both directions each."""

    type: str
    between: Annotated[list[str], Field(min_length=2, max_length=2)] | None = None
    among: Annotated[list[str], Field(min_length=2)] | None = None

    @model_validator(mode="after")
    def _either(self) -> "Edges":
        if (self.between is None) == (self.among is None):
            raise ValueError("give either between = [a, b] or among = [a, b, c, …]")
        name = twice(self.ends)
        if name is not None:
            where = "between has" if self.between else "among has"
            raise ValueError(f"{where} {name!r} twice; name two ends")
        return self

    @property
    def ends(self) -> list[str]:
        """The vertices that these links join, every two both ways."""
        return self.between or self.among or []


class Route(Table):
    """The path meant where several are equally short."""

    src: str = Field(alias="from")
    dst: str = Field(alias="to")
    via: Annotated[list[str], Field(min_length=1)]


class LinksFabric(Kind):
    """Explicit links between devices and named switches."""

    kind: Literal["links"]
    types: dict[str, LinkNumbers] = noted("kinds of links")
    switches: list[Name] = noted("a name for each", [])
    links: Annotated[list[Edges], Field(min_length=1)] = noted(
        "between two ends, or among all of several; both directions each"
    )
    routes: list[Route] = noted(
        "the way meant where several are equally short, or where it is not the shortest", []
    )

    def fabric(self, ends: Ends) -> "Graph":
        """Return the links between these devices and the switches.

        MachineError if a link or a route names something that does not exist, something is listed twice, or
        there are more links than can be held.
        """
        name = twice((*ends.names, *self.switches))
        if name is not None:
            raise MachineError(f"fabric.switches has {name!r}, which is a device or listed before; keep one")
        expect_links(sum(len(x.ends) * (len(x.ends) - 1) for x in self.links), "fabric.links")
        vertices = {*ends.names, *self.switches}
        edges = {}
        for group in self.links:
            if group.type not in self.types:
                hint = did_you_mean(group.type, self.types)
                raise MachineError(f"fabric.links uses type {group.type!r}; {hint}")
            for pair in permutations(group.ends, 2):
                _known(pair, vertices, "fabric.links")
                if pair in edges:
                    raise MachineError(f"fabric.links joins {pair[0]} and {pair[1]} twice; keep one")
                edges[pair] = self.types[group.type].numbers
        listed = {}
        for route in self.routes:
            path = (route.src, *route.via, route.dst)
            _known(path, vertices, "fabric.routes")
            if route.src in self.switches or route.dst in self.switches:
                raise MachineError(f"route {' → '.join(path)} must begin and end at devices")
            if twice(path) is not None:
                raise MachineError(f"route {' → '.join(path)} comes by {twice(path)!r} twice")
            if (route.src, route.dst) in listed:
                raise MachineError(
                    f"fabric.routes has the way from {route.src} to {route.dst} twice; keep one"
                )
            listed[route.src, route.dst] = route.via
        return Graph(ends, edges, listed)


def _known(used: Sequence[str], vertices: set[str], where: str) -> None:
    for vertex in used:
        if vertex not in vertices:
            raise MachineError(f"{where} names {vertex!r}; {did_you_mean(vertex, sorted(vertices))}")


class Graph(Fabric):
    """Links as the file lists them; a route has the fewest hops.

    Every route begins with a read port at the source's memory, which carries the transfer overhead.
    """

    searches = True

    def __init__(
        self,
        ends: Ends,
        edges: Mapping[tuple[str, str], tuple[float, float]],
        listed: Mapping[tuple[str, str], Sequence[str]],
    ) -> None:
        """Take (bandwidth, latency) of each link and the vertices on the way of each listed route.

        MachineError if a listed route uses a link that does not exist.
        """
        super().__init__()
        self._devices = ends.names
        for name in ends.names:
            self._add(f"{name} read", ends.memory_bandwidth, 0.0, ends.overhead)
        self._edges = {
            (src, dst): self._add(f"{src}→{dst}", bandwidth, latency)
            for (src, dst), (bandwidth, latency) in edges.items()
        }
        self.tiers = _tiers(self._devices, edges)
        self._listed = {pair: (pair[0], *via, pair[1]) for pair, via in listed.items()}
        for path in self._listed.values():
            for hop in pairwise(path):
                if hop not in self._edges:
                    raise MachineError(
                        f"route {' → '.join(path)} needs a link {hop[0]} → {hop[1]}, which is not listed"
                    )

    def route(self, src: int, dst: int) -> tuple[int, ...]:
        """Return the source's read port and then the links of the listed or the shortest path.

        MachineError if there is no path, or several are equally short and none is listed.
        """
        pair = (self._devices[src], self._devices[dst])
        path = self._listed.get(pair) or (pair if pair in self._edges else self._shortest(*pair))
        return (src, *(self._edges[hop] for hop in pairwise(path)))

    def without_route(self) -> Iterator[tuple[int, int]]:
        """Yield the pairs for which there is no way, or several equally short ones and none is listed."""
        # The shortest ways from a device to all others are counted at once, hop by hop.
        ends = [name for pair in self._edges for name in pair]
        number = {name: i for i, name in enumerate(dict.fromkeys((*self._devices, *ends)))}
        pairs = np.array([(number[src], number[dst]) for src, dst in self._edges], dtype=np.int64)
        pairs = pairs.reshape(-1, 2)[pairs.reshape(-1, 2)[:, 0].argsort(kind="stable")]
        offsets = pairs[:, 0].searchsorted(np.arange(len(number) + 1))
        devices = len(self._devices)
        for src, name in enumerate(self._devices):
            ways, seen = np.zeros(len(number), dtype=np.int64), np.zeros(len(number), dtype=bool)
            at = np.array([src])
            ways[src], seen[src] = 1, True
            while len(at) and not seen[:devices].all():
                hops = pairs[rows_of_groups(offsets, at)]
                hops = hops[~seen[hops[:, 1]]]
                np.add.at(ways, hops[:, 1], ways[hops[:, 0]])
                np.minimum(ways, 2, out=ways)
                at = np.unique(hops[:, 1])
                seen[at] = True
            for dst in (ways[:devices] != 1).nonzero()[0].tolist():
                if (name, self._devices[dst]) not in self._listed:
                    yield src, dst

    @cached_property
    def _neighbours(self) -> dict[str, list[str]]:
        """The vertices at the ends of each vertex's links, in the file's order."""
        neighbours: dict[str, list[str]] = {name: [] for name in self._devices}
        for src, dst in self._edges:
            neighbours.setdefault(src, []).append(dst)
        return neighbours

    @cached_property
    def _before(self) -> dict[str, dict[str, list[str]]]:
        """For each source looked at so far, the vertices before each one on the shortest paths to it."""
        return {}

    def _shortest(self, src: str, dst: str) -> Sequence[str]:
        if src not in self._before:
            self._before[src] = _predecessors(self._neighbours, src)
        if dst not in self._before[src]:
            raise MachineError(f"no route from {src} to {dst}; add the links between them")
        paths = _shortest_paths(self._before[src], dst)
        path, other = next(paths), next(paths, None)
        if other is not None:
            raise MachineError(
                f"from {src} to {dst} the ways via {', '.join(path[1:-1])} and via {', '.join(other[1:-1])} "
                "are equally short; list the one meant under [[fabric.routes]]"
            )
        return path


def _predecessors(neighbours: Mapping[str, Sequence[str]], src: str) -> dict[str, list[str]]:
    """Return the vertices before each reachable one on all shortest paths from a source, breadth first."""
    before: dict[str, list[str]] = {src: []}
    hops = {src: 0}
    for vertex in (queue := [src]):  # grows while it is read
        for end in neighbours.get(vertex, ()):
            if end not in hops:
                hops[end], before[end] = hops[vertex] + 1, []
                queue.append(end)
            if hops[end] == hops[vertex] + 1:
                before[end].append(vertex)
    return before


def _shortest_paths(before: Mapping[str, Sequence[str]], dst: str) -> Iterator[list[str]]:
    """Yield a shortest path to a vertex, and a second one if it forks: at the fork nearest to the source."""

    def to_source(path: list[str]) -> list[str]:
        while before[path[-1]]:
            path.append(before[path[-1]][0])
        return path

    path = to_source([dst])
    yield path[::-1]
    fork = max((i for i, vertex in enumerate(path) if len(before[vertex]) > 1), default=None)
    if fork is not None:
        yield to_source([*path[: fork + 1], before[path[fork]][1]])[::-1]


def _tiers(
    devices: Sequence[str], edges: Mapping[tuple[str, str], tuple[float, float]]
) -> tuple[tuple[int, ...], ...]:
    """Return groups of as many devices each, joined by links :data:`FASTER` than those that leave them.

    A group's order follows its links to the first one: on Aurora tile 0.0 is in a plane with 1.1, so that
    the pairs are (0.0, 0.1) and (1.1, 1.0).

    () unless the links of the fastest type between devices make groups of one size, fewer than all, in each
    of which every two are joined.
    """
    number = {name: i for i, name in enumerate(devices)}
    joined = {(number[a], number[b]): x[0] for (a, b), x in edges.items() if {a, b} <= number.keys()}
    fastest = max(joined.values(), default=0.0)
    near = {pair for pair, bandwidth in joined.items() if bandwidth == fastest}
    if any(bandwidth * FASTER > fastest for pair, bandwidth in joined.items() if pair not in near):
        return ()
    groups: list[tuple[int, ...]] = []
    for device in number.values():
        if not any(device in group for group in groups):
            groups.append((device, *(other for other in number.values() if (device, other) in near)))
    sizes = {len(group) for group in groups}
    members = [device for group in groups for device in group]
    complete = all(pair in near for group in groups for pair in permutations(group, 2))
    if len(groups) < 2 or len(sizes) != 1 or sizes == {1} or len(set(members)) < len(members) or not complete:
        return ()

    def in_places(group: tuple[int, ...]) -> tuple[int, ...]:
        left, placed = list(group), []
        for other in groups[0]:
            placed.append(next((x for x in left if (other, x) in joined), left[0]))
            left.remove(placed[-1])
        return tuple(placed)

    return (groups[0], *map(in_places, groups[1:]))

"""A fabric of explicit links between devices and named switches; its routes are shortest paths."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from umm.errors import MachineError
from umm.machines.fabrics import Fabric


class Graph(Fabric):
    """Links as the file lists them; a route has the fewest hops.

    Every route begins with a read port at the source's memory, which carries the transfer overhead.
    """

    def __init__(
        self,
        devices: Sequence[str],
        edges: Mapping[tuple[str, str], tuple[float, float]],
        listed: Mapping[tuple[str, str], Sequence[str]],
        overhead: float,
        memory_bandwidth: float,
    ) -> None:
        """Take (bandwidth, latency) of each link and the vertices on the way of each listed route.

        Raises:
            MachineError: A listed route uses a link that does not exist.
        """
        super().__init__()
        self._devices = tuple(devices)
        for name in devices:
            self._add(f"{name} read", memory_bandwidth, overhead)
        self._edges = {
            (src, dst): self._add(f"{src}→{dst}", bandwidth, latency)
            for (src, dst), (bandwidth, latency) in edges.items()
        }
        self._listed = {pair: (pair[0], *via, pair[1]) for pair, via in listed.items()}
        for path in self._listed.values():
            for hop in pairwise(path):
                if hop not in self._edges:
                    raise MachineError(
                        f"route {' → '.join(path)} needs a link {hop[0]} → {hop[1]}, which is not listed"
                    )

    def route(self, src: int, dst: int) -> tuple[int, ...]:
        """Return the source's read port and then the links of the listed or the shortest path.

        Raises:
            MachineError: There is no path, or several are equally short and none is listed.
        """
        pair = (self._devices[src], self._devices[dst])
        if pair in self._edges:
            return (src, self._edges[pair])
        path = self._listed.get(pair) or self._shortest(*pair)
        return (src, *(self._edges[hop] for hop in pairwise(path)))

    def _shortest(self, src: str, dst: str) -> Sequence[str]:
        import networkx as nx

        graph: nx.DiGraph[str] = nx.DiGraph(list(self._edges))
        graph.add_nodes_from(self._devices)
        paths = nx.all_shortest_paths(graph, src, dst)
        try:
            path = next(paths)
        except nx.NetworkXNoPath:
            message = f"no route from {src} to {dst}; add the links between them"
            raise MachineError(message) from None
        other = next(paths, None)
        if other is not None:
            raise MachineError(
                f"from {src} to {dst} the ways via {', '.join(path[1:-1])} and via {', '.join(other[1:-1])} "
                "are equally short; list the one meant under [[fabric.routes]]"
            )
        return path

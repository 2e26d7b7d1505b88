"""A computation graph as the search for the best steps sees it: sets are bit masks."""

from collections.abc import Iterator
from typing import NamedTuple

from umm.algorithms.universal.steps.graph import Graph


class State(NamedTuple):
    """Masks of what is fetched, multiplied and sent, and the seconds of computation and sends left."""

    fetched: int
    done: int
    sent: int
    compute: float
    sends: float


class Masked:
    """A computation graph with its remote data and its component multiplies numbered from 0.

    Attributes:
        remote: The number of each remote datum in the graph.
        fetch: Seconds of each remote datum.
        readers: The component multiplies that read it.
        needs: The remote data of each component multiply.
        gemm: Its seconds.
        send: Seconds of its accumulate.
        sending: The multiplies that have one.
        kinds: What tells multiplies with equal needs apart.
        all_data: All remote data.
        all_gemms: All component multiplies.
        names: Numbers given to parts of the graph that are equal but for names.
        start: The state in which nothing is done.
    """

    def __init__(self, graph: Graph) -> None:
        self.remote = [x for x in range(len(graph.data)) if x not in graph.own]
        place = {x: i for i, x in enumerate(self.remote)}
        self.fetch = [graph.data[x].seconds for x in self.remote]
        self.readers = [list(graph.readers[x]) for x in self.remote]
        self.needs = [sum(1 << place[x] for x in needs) for needs in graph.needs]
        self.gemm = graph.seconds
        self.send = [update.seconds if update else 0.0 for update in graph.updates]
        self.sending = sum(1 << i for i, update in enumerate(graph.updates) if update)
        self.kinds = [(c, self.sending >> i & 1, self.send[i]) for i, c in enumerate(self.gemm)]
        self.all_data, self.all_gemms = (1 << len(self.remote)) - 1, (1 << len(graph)) - 1
        self.names: dict[tuple[object, ...], int] = {}
        self.start = State(0, 0, 0, sum(self.gemm), sum(self.send))


def bits(mask: int) -> Iterator[int]:
    """Yield the places of the bits of a mask, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low

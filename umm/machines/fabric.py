"""Links, routes and their bandwidths, whatever the kind of fabric."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from umm.arrays import Floats, Ints
from umm.errors import MachineError


def narrowest(route: Iterable[int], bandwidth: Sequence[float] | Floats) -> int:
    """Return the link of a route that has the least bandwidth, the first of several.

    Args:
        route: Links in the order bytes cross them, at least one.
        bandwidth: Bytes/s of every link.

    >>> narrowest((3, 0, 2), [5e9, 1e9, 5e9, 9e9])
    0
    """
    return min(route, key=bandwidth.__getitem__)


def kind_of_link(name: str, count: int) -> str:
    """Return the kind of a link, by the name that its fabric gives it, in words for one or for several.

    >>> kind_of_link("n8 nic3 out", 68), kind_of_link("5.1→4.0", 1), kind_of_link("leaf0.1 up", 2)
    ('network cards', 'a direct link', 'uplinks of leaf switches')
    >>> kind_of_link("g1 up", 1), kind_of_link("g1 memory", 3)
    ('a link to a switch', 'memories of devices')
    """
    owner, _, direction = name.rpartition(" ")
    if "nic" in owner:
        words = "a network card", "network cards"
    elif direction in ("up", "down") and owner.startswith("leaf"):
        words = (
            f"a{'n' * (direction == 'up')} {direction}link of a leaf switch",
            f"{direction}links of leaf switches",
        )
    elif direction in ("up", "down"):
        words = (
            ("a link between switches", "links between switches")
            if owner.startswith("s") and "." in owner
            else ("a link to a switch", "links to switches")
        )
    elif direction in ("read", "memory"):
        words = "the memory of a device", "memories of devices"
    else:
        words = "a direct link", "direct links"
    return words[count > 1]


class Ends(NamedTuple):
    """The devices that a fabric joins, by name, and the costs of a transfer beside its links."""

    names: tuple[str, ...]  # a short name for each device
    overhead: float  # seconds every transfer takes beside its links' latencies
    memory_bandwidth: float  # Bytes/s of one device's memory


def listed(routes: Iterable[tuple[int, ...]]) -> tuple[Ints, Ints]:
    """Return the lengths of some routes, and their links, one route's after another's.

    >>> [x.tolist() for x in listed([(3, 1), (2,)])]
    [[2, 1], [3, 1, 2]]
    """
    routes = list(routes)
    lengths = np.fromiter(map(len, routes), np.int64, len(routes))
    return lengths, np.fromiter(chain.from_iterable(routes), np.int64, int(lengths.sum()))


class Fabric(ABC):
    """The links between devices and the route from one to another.

    Every route crosses exactly one link that carries the per-transfer overhead in its latency: the
    link out of the source device, or, where links are crossed both first and later (ring, mesh, torus,
    explicit links), a read port at the source's memory.
    """

    # Lengths of the axes of a grid that devices lie on, the last fastest; () if they lie on none.
    shape: tuple[int, ...] = ()
    # Devices that follow each other and are joined by faster links than others, such as those of a node; 1 if
    # there are none.
    near: int = 1
    nodes: bool = False  # whether those are nodes with a network between
    # Groups of devices joined by faster links than others, where `near` does not say which are: those of one
    # place are joined between groups. () if there are none.
    tiers: tuple[tuple[int, ...], ...] = ()
    searches: bool = False  # whether a route is found hop by hop, so that it pays to remember it

    def __init__(self) -> None:
        self.names: list[str] = []  # link names
        self.bandwidth: list[float] = []  # Bytes/s, one per link
        self.latency: list[float] = []  # seconds, one per link
        self.overhead: list[float] = []  # seconds of these that are the per-transfer overhead
        # The links out of and into each network card, in the order of nodes or of devices.
        self.cards: list[tuple[int, int]] = []
        self._lost: set[int] = set()

    def _add(self, name: str, bandwidth: float, latency: float, overhead: float = 0.0) -> int:
        self.names.append(name)
        self.bandwidth.append(bandwidth)
        self.latency.append(latency + overhead)
        self.overhead.append(overhead)
        return len(self.names) - 1

    def _add_both(
        self,
        name: str,
        bandwidth: float,
        latency: float,
        overhead: float = 0.0,
        ways: tuple[str, str] = ("up", "down"),
    ) -> tuple[int, int]:
        """Add the links of both directions; an overhead is that of transfers that begin here."""
        out = self._add(f"{name} {ways[0]}", bandwidth, latency, overhead)
        return out, self._add(f"{name} {ways[1]}", bandwidth, latency)

    @abstractmethod
    def route(self, src: int, dst: int) -> tuple[int, ...]:
        """Return the links from a device to another one, src ≠ dst."""

    def routes(self, src: Ints, dst: Ints) -> tuple[Ints, Ints]:
        """Return how many links each route crosses, and the links of all, for pairs of different devices."""
        return listed(map(self.route, src.tolist(), dst.tolist()))

    def lose_card(self, card: int) -> None:
        """Take a network card down: its traffic crosses the next card of its node.

        MachineError if its node has no other card left.
        """
        self._lost.add(card)
        self._card_beside(card)

    def _card_beside(self, card: int) -> int:
        """Return a card, or the next one of its node that is up if it is down."""
        if card not in self._lost:
            return card
        count = self._cards_of_node
        first = card // count * count
        up = [x for i in range(1, count) if (x := first + (card - first + i) % count) not in self._lost]
        if not up:
            raise MachineError(f"nic.{card} cannot be down; its node has no other card left")
        return up[0]

    @property
    def _cards_of_node(self) -> int:
        """How many network cards a node has."""
        return 1

    def without_route(self) -> Iterator[tuple[int, int]]:
        """Yield the pairs of devices for which ``route`` has no answer; most kinds have one for each."""
        return iter(())

"""Equal nodes joined by network cards and a fat tree; inside a node any other kind of fabric."""

import copy
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

import numpy as np

from umm.arrays import Ints
from umm.errors import MachineError
from umm.machines import fabrics
from umm.machines.declaring import Field
from umm.machines.fabric import Ends, Fabric
from umm.machines.kind import Kind, LinkNumbers, expect_links
from umm.machines.quantities import Count, Name, Number, Table, noted
from umm.units import counted

_SIMPLEST_FIRST = ("direct", "grid", "fat_tree", "tiers", "links")


@cache
def flat_kinds() -> tuple[type[Kind], ...]:
    """Return the kinds of all modules of ``umm.machines.fabrics``, simplest first, others after them."""
    names = sorted(module.name for module in pkgutil.iter_modules(fabrics.__path__))
    names.sort(key=lambda name: [*_SIMPLEST_FIRST, name].index(name))
    modules = [import_module(f"{fabrics.__name__}.{name}") for name in names]
    return tuple(
        kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Kind) and kind.__module__ == module.__name__
    )


if TYPE_CHECKING:
    Inside = Kind
else:
    Inside = Annotated[Union[flat_kinds()], Field(discriminator="kind")]  # noqa: UP007, kinds are found, not known


class Rails(Number):
    """Whether cards r of all nodes share the leaf switch of rail r, or all cards of a node share one."""

    value: Literal["rails", "together"]


class Taper(Number):
    """Bandwidth of a leaf switch's cards over that of its uplinks."""

    value: Annotated[float, Field(ge=1, le=64)]


class Network(Table):
    """The links between nodes: the cards of a node, and the switches between nodes."""

    cards: Count  # cards of a node, shared evenly among its devices, neighbours by neighbours
    card: LinkNumbers  # bandwidth and latency of a card, one direction
    leaf: Count | None = None  # nodes on one leaf switch; all of them if the file does not say
    # Bandwidth of a leaf's cards over that of its uplinks; 1 if the file does not say.
    taper: Taper | None = None
    rails: Rails | None = None  # how cards hang on leaf switches; `together` if the file does not say


class ClusterFabric(Kind):
    """Equal nodes, each with the same fabric inside."""

    kind: Literal["cluster"]
    nodes: Count = noted("how many")
    names: list[Name] | None = noted("of the devices of a node, where its links go by name", None)
    inside: Inside
    network: Network = noted("what joins nodes: their cards, and the leaf switches these hang on")

    def fabric(self, ends: Ends) -> "Cluster":
        """Return the links of all nodes, their cards and the uplinks between leaf switches."""
        nodes, count = self.nodes.value, len(ends.names)
        if count % nodes:
            raise MachineError(f"{count} devices cannot fill {nodes} equal nodes; use a multiple of {nodes}")
        size = count // nodes
        if self.names is not None and len(self.names) != size:
            raise MachineError(f"fabric.names must hold {size} names, one for each device of a node")
        insides = []
        for node in range(nodes):
            names = ends.names[node * size : (node + 1) * size]
            if self.names is None:
                insides.append(self.inside.fabric(ends._replace(names=names)))
            elif not insides:
                insides.append(self.inside.fabric(ends._replace(names=tuple(self.names))))
        first = insides[0]
        expect_links(len(first.names) * nodes, f"{nodes} nodes")
        return Cluster(insides, nodes, size, self.network, ends.overhead)


class Cluster(Fabric):
    """Nodes joined by cards; cards joined by leaf switches, and those by uplinks of a full spine."""

    def __init__(
        self, insides: list[Fabric], nodes: int, size: int, network: Network, overhead: float
    ) -> None:
        """Take the fabric inside each node, or the one that all nodes have."""
        super().__init__()
        self._first = insides[0]
        self._size, self._links = size, len(self._first.names)
        self.near, self.nodes = size, nodes > 1
        for node in range(nodes):
            inside = insides[node] if len(insides) > 1 else self._first
            prefix = "" if len(insides) > 1 or nodes == 1 else f"n{node}."
            for name, *numbers in zip(inside.names, inside.bandwidth, inside.latency, strict=True):
                self._add(prefix + name, *numbers)
            self.overhead[len(self.names) - len(inside.names) :] = inside.overhead  # of the latencies
        self._cards = min(network.cards.value, size)
        bandwidth, latency = network.card.numbers
        bandwidth *= network.cards.value / self._cards  # a device of a node with more cards uses several
        self._first_card = len(self.names)
        for node, card in product(range(nodes), range(self._cards)):
            both = self._add_both(f"n{node} nic{card}", bandwidth, latency, overhead, ("out", "in"))
            self.cards.append(both)
        self._leaf = network.leaf.value if network.leaf else nodes
        self._rails = network.rails is not None and network.rails.value == "rails"
        self._first_uplink = len(self.names)
        taper = network.taper.value if network.taper else 1.0
        lanes = self._cards if self._rails else 1
        if self._leaf < nodes or self._rails:
            width = bandwidth * self._leaf * self._cards / lanes / taper
            for leaf, rail in product(range(-(-nodes // self._leaf)), range(lanes)):
                self._add_both(f"leaf{leaf}.{rail}", width, 0.0)
        self._lanes = lanes
        self._inner: dict[tuple[int, int], tuple[int, ...]] = {}

    def route(self, src: int, dst: int) -> tuple[int, ...]:
        """Return the links inside a node, else the source's card, uplinks between leaves, the target's."""
        (from_node, a), (to_node, b) = divmod(src, self._size), divmod(dst, self._size)
        if from_node == to_node:
            inner = self._inner.get((a, b))
            if inner is None:
                inner = self._inner[a, b] = self._first.route(a, b)
            return tuple(link + from_node * self._links for link in inner)
        out, into = a * self._cards // self._size, b * self._cards // self._size
        first, last = from_node * self._cards + out, to_node * self._cards + into
        before: tuple[int, ...] = ()
        behind: tuple[int, ...] = ()
        if self._lost:
            first, last = self._card_beside(first), self._card_beside(last)
            out, into = first % self._cards, last % self._cards
            if self._cards == self._size:  # each device its own card: another's is reached by the device
                before = self.route(src, from_node * self._size + out) if out != a else ()
                behind = self.route(to_node * self._size + into, dst) if into != b else ()
        leaves = self._at(from_node, out), self._at(to_node, into)
        between = () if leaves[0] == leaves[1] else (2 * leaves[0], 2 * leaves[1] + 1)
        return (
            *before,
            self._first_card + 2 * first,
            *(self._first_uplink + link for link in between),
            self._first_card + 2 * last + 1,
            *behind,
        )

    def routes(self, src: Ints, dst: Ints) -> tuple[Ints, Ints]:
        """Return many routes at once, as :meth:`Fabric.routes` does; one at a time if a card is down."""
        if self._lost:
            return super().routes(src, dst)
        (from_node, a), (to_node, b) = np.divmod(src, self._size), np.divmod(dst, self._size)
        out, into = a * self._cards // self._size, b * self._cards // self._size
        leaves = self._at(from_node, out), self._at(to_node, into)
        links = np.column_stack(
            (
                self._first_card + 2 * (from_node * self._cards + out),
                np.where(leaves[0] == leaves[1], -1, self._first_uplink + 2 * leaves[0]),
                np.where(leaves[0] == leaves[1], -1, self._first_uplink + 2 * leaves[1] + 1),
                self._first_card + 2 * (to_node * self._cards + into) + 1,
            )
        )
        inside = from_node == to_node
        codes, code = np.unique(a[inside] * self._size + b[inside], return_inverse=True)
        inner = [self.route(*divmod(x, self._size)) for x in codes.tolist()]
        table = np.full((len(inner), max(map(len, inner), default=0)), -1, dtype=np.int64)
        for row, route in enumerate(inner):
            table[row, : len(route)] = route
        links = np.pad(links, ((0, 0), (0, max(0, table.shape[1] - 4))), constant_values=-1)
        table_rows = table[code]
        links[inside] = -1
        links[inside, : table.shape[1]] = np.where(
            table_rows < 0, -1, table_rows + from_node[inside, None] * self._links
        )
        crossed = links >= 0
        return crossed.sum(axis=1), links[crossed]

    @property
    def _cards_of_node(self) -> int:
        return self._cards

    def _at(self, node: Any, card: Any) -> Any:
        """Return the leaf switch that a card hangs on; of many cards at once."""
        return node // self._leaf * self._lanes + (card if self._rails else 0)

    def without_route(self) -> Iterator[tuple[int, int]]:
        """Yield the pairs of a node for which its inside has no answer."""
        return self._first.without_route()


def joined(
    inside: Mapping[str, Any],
    network: Mapping[str, Any],
    nodes: Mapping[str, Any],
    names: Sequence[str] | None,
) -> dict[str, Any]:
    """Return the ``[fabric]`` table of equal nodes.

    Args:
        network: The ``[network]`` table: cards of a node, and what they hang on.
        nodes: How many, as a file has a number.
        names: Of the devices of a node, which a fabric of listed links needs.
    """
    named = {"names": list(names)} if inside["kind"] == "links" and names else {}
    return {"kind": "cluster", "nodes": nodes, **named, "inside": inside, "network": network}


def clustered(document: Mapping[str, Any], nodes: int, machine: str) -> dict[str, Any]:
    """Return a machine file's content with so many nodes.

    MachineError for less than one node, and for a machine that says nothing of a network.

    Args:
        document: The content: of a machine with nodes, or of one node that says under ``network`` what cards
            it has.
        machine: Whose content it is, for errors.
    """
    if nodes < 1:
        raise MachineError(f"{machine} cannot have {nodes} nodes; ask for at least 1")
    content = copy.deepcopy(dict(document))
    devices, fabric = content["devices"], content["fabric"]
    asked: dict[str, Any] = {"value": nodes, "source": f"{nodes} nodes were asked for"}
    network = content.pop("network", None)
    size = devices["count"]["value"] // nodes_of(document)
    match fabric["kind"]:
        case "tiers":
            pass
        case "cluster":
            fabric["nodes"] = asked
        case _ if nodes == 1:
            return dict(document)
        case _ if network is None:
            raise MachineError(
                f"{machine} has one node, and its file has no [network] with the cards that would join more; "
                "choose h100-8, b200-8, mi300x-8, aurora-12 or another whose 'umm machine show' lists one"
            )
        case _:
            content["fabric"] = joined(fabric, network, asked, devices.get("names"))
    return with_count(content, {"value": nodes * size, "source": f"{nodes} nodes of {size} were asked for"})


def with_count(content: dict[str, Any], count: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file's content with another number of devices, and nothing that goes by the old one."""
    devices = {**content["devices"], "count": count}
    return {
        **content,
        "devices": {name: x for name, x in devices.items() if name not in ("names", "default_ranks")},
    }


def nodes_of(document: Mapping[str, Any]) -> int:
    """Return how many nodes the machine of a file has."""
    fabric, count = document["fabric"], document["devices"]["count"]["value"]
    match fabric["kind"]:
        case "cluster":
            return int(fabric["nodes"]["value"])
        case "tiers":
            return int(count // fabric["node_size"]["value"])
    return 1


def cards_in_words(document: Mapping[str, Any], machine: str) -> str | None:
    """Describe the cards that join the nodes of a machine, with their source; None for one node.

    >>> from umm.machines import machine
    >>> cards_in_words(machine("a100-8", nodes=8).document, "a100-8").partition(":")[0]
    'a100-8 joins nodes by 8 cards of 25 GB/s each (NVIDIA DGX A100 data sheet'
    """
    fabric = document["fabric"]
    if fabric["kind"] == "tiers":
        card, each = fabric["nic"], f"one card a {fabric['nic']['owner']} of"
        return f"{machine} joins nodes by {each} {card['bandwidth']['value']} ({card['bandwidth']['source']})"
    if fabric["kind"] == "cluster":
        count, rate = fabric["network"]["cards"]["value"], fabric["network"]["card"]["bandwidth"]
        return f"{machine} joins nodes by {counted(count, 'card')} of {rate['value']} each ({rate['source']})"
    return None


def with_fewer(document: Mapping[str, Any], ranks: int, machine: str) -> dict[str, Any]:
    """Return a machine file's content whose nodes have so many devices; the others of a node are idle.

    MachineError for a machine without nodes, or more ranks than a node has devices.

    Args:
        ranks: Devices of a node that have a rank.
        machine: Whose content it is, for errors.
    """
    content = copy.deepcopy(dict(document))
    fabric = content["fabric"]
    if fabric["kind"] not in ("tiers", "cluster"):
        raise MachineError(f"{machine} has no nodes; ask for some with nodes=2, or leave out ranks_per_node")
    nodes = nodes_of(document)
    size = document["devices"]["count"]["value"] // nodes
    if ranks > size:
        raise MachineError(
            f"a node of {machine} has {counted(size, 'device')}, a rank each; "
            f"ranks_per_node is from 1 to {size}"
        )
    reason = f"{counted(ranks, 'rank')} a node of {counted(size, 'device')} were asked for"
    if fabric["kind"] == "tiers":
        fabric["node_size"] = {"value": ranks, "source": reason}
    elif names := fabric.get("names"):  # idle devices still pass on what goes through them
        fabric["names"], idle = names[:ranks], names[ranks:]
        inside = fabric["inside"]
        inside["switches"] = [*inside.get("switches", ()), *idle]
        inside["routes"] = [x for x in inside.get("routes", ()) if not {x["from"], x["to"]} & {*idle}]
    if ranks < size:  # a rank may now be more than a device
        content["devices"].pop("rank", None)
    return with_count(content, {"value": nodes * ranks, "source": reason})

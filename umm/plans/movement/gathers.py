"""Operands gathered by a collective among ranks that need the same of them, before or while they multiply."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil

import numpy as np

from umm.arrays import Ints
from umm.interval import Interval
from umm.machines import Machine
from umm.plans.collectives.hierarchical import IN_WAVES, MANY, OF_MANY, WAVES
from umm.plans.collectives.hierarchical import WAY as BY_LEVEL
from umm.plans.collectives.library import BY_LIBRARY
from umm.plans.collectives.rings import nodes_of
from umm.plans.collectives.way import OWN, PLAIN, Exchange, Held, Manner, Shares, Way, columns
from umm.plans.movement.blocks import Blocks, Needed, groups_of, held, size_of
from umm.schedules.table.buffers import Slice
from umm.schedules.table.details import GET
from umm.schedules.writer.builder import Builder, How

SHORT = 2 * 2**20
"""Bytes of messages of which two at a time leave links idle while they start: 4 µs at 374 GB/s are 1.5 MB."""
BESIDE = 6
"""Times as long as messages take to start that their bytes take at least, sent across nodes together."""


@dataclass(frozen=True)
class Operand:
    """A or B of a multiply as a tensor of the schedule."""

    matrix: str  # A, B or C
    tensor: str  # its name there
    transposed: bool = False  # whether it is stored transposed

    def stored(self, rows: Interval, cols: Interval) -> tuple[Interval, Interval]:
        """Return rows and columns of the matrix as those of the stored tensor."""
        return (cols, rows) if self.transposed else (rows, cols)

    def key(self, blocks: Blocks) -> tuple[str, bytes]:
        """Key of its copies: the tensor, and the rectangle that each rank needs as stored."""
        return self.tensor, _needed(blocks, self.matrix, self.transposed)


@lru_cache(maxsize=4096)
def _needed(blocks: Blocks, matrix: str, transposed: bool) -> bytes:
    """Rectangles of a stored operand that ranks need, and whether each lacks any of its own, as bytes."""
    # As stored: X as A and Xᵀ as B can then have equal keys, and one copy serves both.
    need = blocks.of(matrix)[:, [2, 3, 0, 1] if transposed else [0, 1, 2, 3]]
    return need.astype(np.int64).tobytes() + blocks.lacks[matrix].tobytes()


def bytes_of(blocks: Blocks, matrix: str) -> int:
    """Return the bytes of an operand at the rank that needs most of it."""
    return int(size_of(blocks.of(matrix)).max()) * blocks.problem.itemsize(matrix)


@lru_cache(maxsize=2048)
def sharers(needed: Needed) -> list[tuple[list[int], list[int]]]:
    """Return ranks of one replica of A or B that need the same of it and lack some, and who owns that."""
    need, tiles, replica = needed.rects, held(needed.layout), needed.layout.replica_of_rank
    assert tiles is not None
    groups = []
    # Ranks gather within their own replica, so the replica is part of what they share.
    for rect, ranks in groups_of(np.column_stack((need, replica)), needed.lacks):
        low, high = np.maximum(tiles[:, ::2], rect[:4:2]), np.minimum(tiles[:, 1::2], rect[1:4:2])
        groups.append((ranks, np.flatnonzero((low < high).all(axis=1) & (replica == rect[4])).tolist()))
    return groups


def gather_among(
    build: Builder,
    ranks: list[int],
    pieces: dict[int, Slice],
    copies: Mapping[int, Slice],
    manner: Manner,
    library: bool = False,
) -> None:
    """Write the gather of a group: by level where its nodes hold as many of it, else from the owners.

    Args:
        manner: How its bytes go where all owners are of the group.
        library: Whether the machine's library of collectives does it in that case.
    """
    way, among = way_among(build, ranks, library), set(pieces) <= set(ranks)
    room = {rank: copies[rank] for rank in ranks}
    # A collective needs every owner among its members; members without a piece contribute an empty one.
    if way is not None and among:
        nothing = next(iter(pieces.values()))._replace(rows=Interval(0, 0), cols=Interval(0, 0))
        piece = Held({rank: pieces.get(rank, nothing) for rank in ranks})
        way.writers["all-gather"](Exchange(build, ranks, piece, Shares(room, piece), manner=manner))
        return
    if not ranks or not pieces:
        return
    owners, manner, into = sorted(pieces), manner if among else PLAIN, Shares(room, pieces)
    begins, nodes = _begins(owners, ranks), _by_node(build.machine, tuple(owners), build.ranks)
    # Each rank starts at another owner, or all would queue at the first one's links.
    order = np.array([_from(begins[x], *nodes) for x in ranks], dtype=np.int64)
    givers, to = (np.array(x, dtype=np.int64) for x in (owners, ranks))
    step, place = (x.reshape(-1) for x in np.indices((len(owners), len(ranks))))
    origin = givers[order[place, step]]
    given, target = columns(Held(pieces), origin), into.columns(to[place], origin)
    hows = [*(manner.to(x) for x in range(len(owners))), How(lane=OWN)]
    how, moves = np.where(origin == to[place], len(owners), step), ~given.same(target)
    kind = np.full(np.count_nonzero(moves), GET)
    build.transfers(kind, given.taken(moves), target.taken(moves), hows, how[moves])


def _begins(owners: Sequence[int], ranks: Sequence[int]) -> dict[int, int]:
    """Return for each rank the number of the owner that it gets from first, so that these are busy alike.

    A rank begins with itself; others with those that none begins with yet, groups of ranks at different ones.

    >>> _begins([0, 1, 2, 3], [1, 8, 9])
    {1: 1, 8: 2, 9: 3}
    """
    place = {rank: i for i, rank in enumerate(owners)}
    free = [i for i, owner in enumerate(owners) if owner not in ranks] or list(range(len(owners)))
    others = [rank for rank in ranks if rank not in place]
    first = {rank: free[(ranks[0] + i) % len(free)] for i, rank in enumerate(others)}
    return {rank: place.get(rank, first.get(rank, 0)) for rank in ranks}


@lru_cache(maxsize=4096)
def _by_node(machine: Machine, owners: tuple[int, ...], total: int) -> tuple[Ints, Ints]:
    """Return the node of each owner, counted from 0, and its place among the owners there."""
    node, place = np.zeros((2, len(owners)), dtype=np.int64)
    at = {rank: i for i, rank in enumerate(owners)}
    for number, ranks in enumerate(nodes_of(machine, owners, total) if machine.fabric.nodes else [owners]):
        these = [at[x] for x in ranks]
        node[these], place[these] = number, range(len(these))
    return node, place


def _from(begin: int, node: Ints, place: Ints) -> Ints:
    """Return the numbers of owners in the order in which a rank gets from them that begins with one.

    First those of its node, then node by node, in each from its own place on: were it one round through all,
    the ranks of a node would all come to the next one at its first owner, whose card would be shared.

    >>> _from(1, np.array([0, 0, 0, 1, 1, 1]), np.array([0, 1, 2, 0, 1, 2])).tolist()
    [1, 2, 0, 4, 5, 3]
    """
    nodes, places = int(node.max()) + 1, int(place.max()) + 1
    return np.lexsort(((place - place[begin]) % places, (node - node[begin]) % nodes))


def way_among(build: Builder, ranks: Sequence[int], library: bool) -> Way | None:
    """Return the way to do collectives among ranks: a library's or by level; None for all pairs at once."""
    refused = not library or BY_LIBRARY.refuses(build.machine, ranks, build.ranks)
    return by_level(build.machine, ranks, build.ranks) if refused else BY_LIBRARY


def by_level(machine: Machine, ranks: Sequence[int], total: int) -> Way | None:
    """Return the way to do collectives by level; None where these ranks are in one node, or one in each."""
    return BY_LEVEL if _levels(machine, tuple(ranks), total) else None


def many_nodes(machine: Machine, ranks: Sequence[int], total: int) -> bool:
    """Whether collectives among these ranks go by level, over many nodes."""
    key = tuple(ranks)
    return _levels(machine, key, total) and _node_count(machine, key, total) >= MANY


def lanes_apart(machine: Machine, ranks: Sequence[int], total: int, nbytes: float) -> bool:
    """Whether a collective's messages have lanes enough to hide their starts.

    Args:
        nbytes: The most that one of them gives or gets by one message.
    """
    key = tuple(ranks)
    if _levels(machine, key, total):
        return nbytes <= SHORT or _node_count(machine, key, total) >= MANY
    return apart_across(machine, key, total)


def manner_of(machine: Machine, ranks: Sequence[int], total: int, nbytes: float) -> Manner:
    """Return how the bytes of a collective among these ranks go; see :func:`lanes_apart`."""
    if not lanes_apart(machine, ranks, total, nbytes):
        return PLAIN
    if not _levels(machine, tuple(ranks), total):
        # Those under way start together and share a card alike, so that it is idle while they start. By level
        # there are fewer of them: what arrives early is passed on inside the node meanwhile. Enough are in
        # flight that their bytes cover the start of the next ones (a bandwidth-delay product).
        route = [*machine.route(*(machine.device_of(rank, total) for rank in ranks[:2]))]
        starts, takes = machine.link_latency[route].sum(), nbytes / machine.link_bandwidth[route].min()
        flights = min(len(ranks) - 1, max(OF_MANY.flights, ceil(float(BESIDE * starts / takes))))
        return replace(OF_MANY, flights=flights).across
    # With few nodes one lane a partner suffices, and keeps waves apart.
    return OF_MANY if _node_count(machine, tuple(ranks), total) > WAVES else IN_WAVES


def across_nodes(machine: Machine, ranks: Sequence[int], total: int) -> bool:
    """Return whether these ranks are in several nodes of several devices, one in each."""
    return machine.fabric.near > 1 and 1 < len(ranks) == _node_count(machine, tuple(ranks), total)


def apart_across(machine: Machine, ranks: Sequence[int], total: int) -> bool:
    """Return whether they have lanes of their own: between two nodes a rank has one partner, so one lane."""
    return len(ranks) > 2 and across_nodes(machine, ranks, total)


@lru_cache(maxsize=4096)
def _node_count(machine: Machine, ranks: tuple[int, ...], total: int) -> int:
    return len(nodes_of(machine, ranks, total))


@lru_cache(maxsize=4096)
def _levels(machine: Machine, ranks: tuple[int, ...], total: int) -> bool:
    # Tiles that only explicit links join are all of one node; prices count them so too.
    return not machine.fabric.tiers and BY_LEVEL.refuses(machine, ranks, total) is None

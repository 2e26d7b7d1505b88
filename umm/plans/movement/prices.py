"""Prices of multiplies by collectives: gemms, and bytes between ranks, without writing an action."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from umm import cost
from umm.arrays import Bools, Floats, Ints
from umm.machines import Machine
from umm.machines.curves import COLLECTIVE
from umm.plans.collectives.hierarchical import WAVES
from umm.plans.collectives.rings import node_of_ranks, nodes_of
from umm.plans.movement.blocks import Blocks, Needed, groups_of, held
from umm.plans.movement.gathers import by_level, lanes_apart
from umm.plans.movement.multiply import Gathered
from umm.plans.movement.sums import Sums, size_of

NEAR, FAR, CARD, NEAR_APART, FAR_APART = range(5)
"""How bytes go: within a node and beyond it, beyond it on a lane for that alone, and both on lanes enough."""
IN, OUT = range(2)
MAX_CACHED = 2048  # gathers, and sums, that are remembered: many multiplies of a chain share them
LARGE = 256  # those of which the bytes of every pair of ranks are remembered
MAX_GROUPS = 64
"""Groups of ranks that are priced one by one where there are more than :data:`MAX_RANKS_IN_PAIRS` ranks."""
MAX_RANKS_IN_PAIRS = 256  # ranks up to which all pairs are priced


class Exchange(NamedTuple):
    """An exchange: each rank gets everything that the others of its group have."""

    has: Floats  # bytes that each rank has, shape (ranks in all,)
    group: Ints  # number of the group of each rank; -1 of one that is in none
    gets: Bools | None = None  # Who gets it; None for all of a group.
    # Messages that each rank gives to one other; None for one where it has any bytes.
    number: Floats | None = None
    near: int = NEAR  # how bytes go in a node
    far: int = FAR  # how they go between nodes
    back: bool = False  # whether the same bytes go the other way: from those who get to the owners
    # Nodes, and ranks of a group in each, if this is a stage of an exchange by level.
    nodes: tuple[int, int] | None = None
    relayed: float = 0.0  # least bytes of a node that pass the links inside another one, by level; else 0

    def pairs(self) -> Floats:
        """Return the bytes from rank to rank."""
        # O(ranks²), so only for few ranks; `at_ranks` gets the same sums per rank in O(ranks).
        alike = (self.group[:, None] == self.group) & (self.group >= 0)
        between = np.where(alike if self.gets is None else alike & self.gets, self.has[:, None], 0.0)
        np.fill_diagonal(between, 0.0)
        return between.T if self.back else between

    def at_ranks(self, node_of: Ints) -> tuple[Floats, Floats]:
        """Return the bytes and the messages into and out of each rank by how they go, shape (2, 5, ranks)."""
        some = np.flatnonzero(self.group >= 0)
        gets = np.ones(len(some)) if self.gets is None else self.gets[some].astype(np.float64)
        # Group and node as one number: sums per (group, node) and per group give near and far by subtraction.
        in_node = self.group[some] * (node_of.max() + 1) + node_of[some]
        ids = [np.unique(x, return_inverse=True)[1] for x in (in_node, self.group[some])]
        (near_gets, all_get) = (np.bincount(x, gets)[x] for x in ids)
        nbytes, number = np.zeros((2, 2, 5, len(self.has)))
        messages = (self.has > 0).astype(np.float64) if self.number is None else self.number
        for each, into in ((self.has[some], nbytes), (messages[some], number)):
            near, everywhere = (np.bincount(x, each)[x] for x in ids)
            into[IN, self.near, some] += gets * (near - each)
            into[IN, self.far, some] += gets * (everywhere - near)
            into[OUT, self.near, some] += each * (near_gets - gets)
            into[OUT, self.far, some] += each * (all_get - near_gets)
        return (nbytes[::-1], number[::-1]) if self.back else (nbytes, number)


def _by_level(has: Floats, nodes: Ints, apart: bool, back: bool, waves: int, flies: bool) -> list[Exchange]:
    """Return an exchange by level as two: between ranks of one place, then all of that inside each node."""
    # has: bytes that each rank has. nodes: the ranks of each group by node and place there, shape (groups,
    # nodes, places). apart: whether messages have lanes enough, as between many nodes. back: whether the
    # bytes go to the owners. waves: messages between two ranks of a node, if not one for each node. flies:
    # whether messages between nodes have lanes enough, whatever those in a node have.
    # Linear in bytes: a rank passes on inside its node all that its place got from the other nodes, so the
    # second stage is a direct exchange of the first one's sums. Only messages differ: one for each node.
    groups, count, places = nodes.shape
    across, inside = np.full((2, len(has)), -1)
    across[nodes] = np.arange(groups * places).reshape(groups, 1, places)
    inside[nodes] = np.arange(groups * count).reshape(groups, count, 1)
    passed, messages = np.zeros((2, len(has)))
    passed[nodes] = has[nodes].sum(axis=1, keepdims=True)
    # In waves one message in a node carries the shares of several nodes.
    fewer = min(1.0, waves / count) if waves and apart else 1.0
    messages[nodes] = (has[nodes] > 0).sum(axis=1, keepdims=True) * fewer
    near, far = NEAR_APART if apart else NEAR, FAR_APART if apart or flies else CARD
    of_node = has[nodes].sum(axis=2) - has[nodes].max(axis=2)
    # Of another node's bytes a rank gets one place's share by its own card; the rest passes the links inside.
    how = near, far, back, (count, places), float(of_node.min())
    return [Exchange(has, across, None, None, *how), Exchange(passed, inside, None, messages, *how)]


class Pairs(NamedTuple):
    """Bytes from rank to rank, each pair's as one message on the lanes of who gets them."""

    between: Floats  # the bytes, shape (ranks, ranks)
    nodes: None = None  # as of an `Exchange`; relayed the same
    relayed: float = 0.0

    def pairs(self) -> Floats:
        """Return them."""
        return self.between

    def at_ranks(self, node_of: Ints) -> tuple[Floats, Floats]:
        """Bytes and messages at each rank, as of :meth:`Exchange.at_ranks`."""
        near, between = node_of[:, None] == node_of, self.between
        nbytes, number = np.zeros((2, 2, 5, len(between)))
        for each, into in ((between, nbytes), ((between > 0).astype(np.float64), number)):
            for way in (IN, OUT):
                into[way, NEAR] = inside = (each * near).sum(axis=way)
                into[way, FAR] = each.sum(axis=way) - inside
        return nbytes, number


Part = Exchange | Pairs


@dataclass(frozen=True, eq=False)
class Flow:
    """Bytes and messages into and out of each rank."""

    nbytes: Floats  # bytes charged, shape (2, 5, ranks): into and out of each, by how they go
    number: Floats  # messages alike
    # What it consists of, and the factor by which bytes are charged.
    parts: tuple[tuple[Part, float], ...] = ()
    # Seconds that a round of messages inside a node takes at least, where all that goes between nodes has
    # such a round before it, or after it; else 0.
    hop: float = 0.0
    # Seconds that ranks are busy, kept since many multiplies share a gather.
    _known: dict[tuple[Machine, int, int], Floats] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, exchanges: Sequence[Part], machine: Machine, total: int, charge: float) -> "Flow":
        """Sum of some exchanges; of very many ranks without its parts, which are large."""
        nbytes, number = np.zeros((2, 2, 5, total))
        node_of = node_of_ranks(machine, total)
        for x in exchanges:
            moved, messages = x.at_ranks(node_of)
            nbytes += moved
            number += messages
        parts = tuple((x, charge) for x in exchanges) if total <= MAX_RANKS_IN_PAIRS else ()
        rate = float(_ends(machine, total).rates[:, 0].max())
        # A lower bound on the extra round by level: the fewest bytes at the highest rate, and one latency.
        hop = min((x.relayed for x in exchanges), default=0.0) / rate * charge
        return cls(nbytes * charge, number, parts, hop + _ends(machine, total).latency[0] if hop else 0.0)

    def __add__(self, other: "Flow") -> "Flow":
        return Flow(self.nbytes + other.nbytes, self.number + other.number, self.parts + other.parts)

    @property
    def pairs(self) -> Floats:
        """Bytes charged from rank to rank."""
        return _pairs_of(self)

    @property
    def most(self) -> float:
        """Bytes charged that reach the rank that gets most."""
        return float(self.nbytes[IN].sum(axis=0).max())

    def busy(self, machine: Machine, lanes: int = 0, way: int = IN) -> Floats:
        """Least seconds that each rank is busy with arriving or leaving bytes.

        Args:
            lanes: Lanes on which the rank itself gets or adds that; 0 where others do.

        Returns:
            Seconds, shape (4, ranks): first of the links in its node, then of those to others, then the mean
            of its lanes, then of its lane for what goes between nodes.
        """
        key = machine, lanes, way
        if key in self._known:
            return self._known[key]
        ends, (nbytes, number) = _ends(machine, self.nbytes.shape[-1]), (self.nbytes[way], self.number[way])
        # Links carry all bytes whatever their lane; lanes below count only what is not sent with lanes
        # enough.
        near, far = nbytes[NEAR] + nbytes[NEAR_APART], nbytes[FAR] + nbytes[CARD] + nbytes[FAR_APART]
        rates, inverse, latency = ends.rates[way], ends.inverse, ends.latency
        seconds = np.zeros((4, len(near)))
        seconds[0], seconds[1] = near / rates[0], far / rates[1]
        # A rank's own messages follow each other on its lanes: each takes a start, and its bytes at link
        # speed.
        if lanes:
            for how, level, row in ((NEAR, 0, 2), (FAR, 1, 2), (CARD, 1, 3)):
                seconds[row] += nbytes[how] * inverse[level] + number[how] * latency[level]
            seconds[2] /= lanes
        seconds.flags.writeable = False
        if seconds.shape[-1] <= MAX_RANKS_IN_PAIRS:
            self._known[key] = seconds
        return seconds


@lru_cache(maxsize=LARGE)
def _pairs_of(flow: Flow) -> Floats:
    total = flow.nbytes.shape[-1]
    return np.asarray(sum((x.pairs() * charge for x, charge in flow.parts), np.zeros((total, total))))


@dataclass(frozen=True, eq=False)
class Price:
    """Gemms and transfers of a multiply; copies and adds within a rank are left out."""

    gemms: Floats  # seconds of each rank's gemms
    gathered: dict[str, Flow]  # what is gathered of each operand
    adds: Flow  # what its sums add
    own: Flow  # of those what is added to what each rank owns, or on the way there
    copied: Flow  # what of sums is copied to their other replicas
    payload: dict[str, int]  # bytes of A, B and C that reach the rank that gets most of each, those that move
    transfers: dict[str, int]  # for A, B and C the most transfers of a rank, about


def price_of(how: Gathered, machine: Machine) -> Price:
    """Price a multiply by collectives."""
    blocks, problem = how.blocks, how.blocks.problem
    gemms = _gemms(blocks, machine, how.along, how.chunks)
    copy = _charge(machine, False)
    gathered, payload, transfers = dict[str, Flow](), dict[str, int](), dict[str, int]()
    for x in how.collects:
        gathered[x] = _gathered(blocks.needed(x), problem.itemsize(x), machine)
        payload[x] = round(gathered[x].most / copy)
        transfers[x] = how.chunks * int(gathered[x].number[IN].sum(axis=0).max())
    adds, owned, copied = added_up(how.sums, problem.p, problem.itemsize("C"), machine)
    if how.sums.groups:
        # Flows hold charged bytes; payload is what really moves, so the charge is divided out.
        arriving = adds.nbytes[IN] / _charge(machine, True) + copied.nbytes[IN] / copy
        payload["C"] = round(float(arriving.sum(axis=0).max()))
        number = adds.number[OUT].sum(axis=0).max() + copied.number[IN].sum(axis=0).max()
        transfers["C"] = how.chunks * int(number)
    return Price(gemms, gathered, adds, owned, copied, payload, transfers)


def price_one_sided(blocks: Blocks, machine: Machine) -> Price | None:
    """Price a one-sided multiply: ranks get missing operands and accumulate into C's owners.

    Args:
        blocks: What each rank multiplies.

    Returns:
        None if C has replicas, which are summed besides.
    """
    problem, works = blocks.problem, blocks.works
    layout, made = problem.layout("C"), blocks.of("C")
    tiles = held(layout)
    if layout.replicas > 1 or tiles is None:
        return None
    between = _shared(made, tiles) * works[:, None] * float(problem.itemsize("C"))
    np.fill_diagonal(between, 0.0)
    gathered = {
        x: _gathered(blocks.needed(x), problem.itemsize(x), machine) for x in "AB" if blocks.lacks[x].any()
    }
    adds = Flow.of([Pairs(between)], machine, problem.p, 1.0 / machine.accumulate_efficiency)
    copied = Flow.of([], machine, problem.p, 1.0)
    return Price(_gemms(blocks, machine, "k", 1), gathered, adds, adds, copied, {}, {})


def _gemms(blocks: Blocks, machine: Machine, along: str, chunks: int) -> Floats:
    """Return the seconds of each rank's gemms, one for each chunk of a dimension."""
    some = (np.where(blocks.works, size, 1) for size in blocks.sizes)  # kernels have no time for nothing
    sizes = dict(zip("mnk", some, strict=True))
    sizes[along] = np.maximum(1, sizes[along] // chunks)
    if all((size == size[0]).all() for size in sizes.values()):  # as usual: one stands for all
        sizes = {x: size[:1] for x, size in sizes.items()}
    itemsize = blocks.problem.itemsize("C")
    took = cost.multiply_seconds(machine, blocks.problem.dtype, sizes["m"], sizes["n"], sizes["k"], itemsize)
    return np.where(blocks.works, chunks * took, 0.0)


def gemms_in_chunks(how: Gathered, machine: Machine) -> Floats:
    """Seconds of each rank's gemms, chunk by chunk, if no dimension is split."""
    blocks, problem = how.blocks, how.blocks.problem
    sizes = {x: np.where(blocks.works, size, 1) for x, size in zip("mnk", blocks.sizes, strict=True)}
    total, works = np.zeros(problem.p), blocks.works.nonzero()[0]
    for number in range(how.chunks):
        spans = np.zeros(problem.p, dtype=np.int64)
        spans[works] = np.maximum(0, np.diff(how.spans(works, number), axis=1)[:, 0])
        chunk = {**sizes, how.along: np.maximum(1, spans)}
        took = cost.multiply_seconds(
            machine, problem.dtype, chunk["m"], chunk["n"], chunk["k"], problem.itemsize("C")
        )
        total += np.where(spans > 0, took, 0.0)
    return total


def _shared(some: Ints, others: Ints) -> Floats:
    """Return the elements that each of some rectangles (down) has in common with each of others (across)."""
    rows, cols = (
        np.minimum(some[:, i + 1, None], others[:, i + 1]) - np.maximum(some[:, i, None], others[:, i])
        for i in (0, 2)
    )
    return np.asarray(np.maximum(rows, 0) * np.maximum(cols, 0), dtype=np.float64)


@lru_cache(maxsize=MAX_CACHED)
def _gathered(needed: Needed, itemsize: int, machine: Machine) -> Flow:
    """Flow of an operand's gather."""
    # Those not by level are looked at all together; on many ranks, where that is p² work, a few of many.
    layout, need, lacks = needed.layout, needed.rects, needed.lacks
    tiles, replica, p = held(layout), layout.replica_of_rank, len(need)
    assert tiles is not None
    groups = groups_of(np.column_stack((need, replica)), lacks)
    if p > MAX_RANKS_IN_PAIRS and len(groups) > MAX_GROUPS:
        # Groups are alike in a regular layout; some from the middle stand for all, away from ragged edges.
        groups = groups[len(groups) // 2 :][: MAX_GROUPS // 2]
    parts, directly, among = list[Part](), list[int](), list[list[int]]()
    theirs = np.zeros(p)

    def has(wanted: Ints, replicas: Ints) -> Floats:
        """Bytes of each wanted rectangle (across) at each rank (down) in some replicas."""
        return np.asarray(_shared(tiles, wanted) * (replica[:, None] == replicas) * float(itemsize))

    for rect, ranks in groups:
        given = has(np.array([rect[:4]]), np.array(rect[4:]))[:, 0]
        nodes, apart = _levels_of(machine, ranks, p, given.max())
        if nodes is None and not apart and p <= MAX_RANKS_IN_PAIRS:
            directly += ranks
            continue
        if np.isin(np.flatnonzero(given), ranks).all():
            theirs[ranks] = given[ranks]
            among.append(ranks)
        elif p <= MAX_RANKS_IN_PAIRS:
            directly += ranks
        else:
            gets = np.isin(np.arange(p), ranks)
            parts.append(Exchange(given, np.zeros(p, dtype=np.int64), gets))
    parts += _among(among, theirs, machine)
    if directly:
        between = np.zeros((p, p))
        between[:, directly] = has(need[directly], replica[directly])
        np.fill_diagonal(between, 0.0)
        parts.append(Pairs(between))
    return Flow.of(parts, machine, p, _charge(machine, False))


def _among(
    groups: Sequence[Sequence[int]],
    has: Floats,
    machine: Machine,
    back: bool = False,
    in_place: bool = False,
    flies: bool = False,
) -> list[Exchange]:
    """Return the exchanges in some groups of ranks, none in two of them: those alike at once."""
    # has: bytes of each rank. back: whether the bytes go to the owners. in_place: whether all is where it was
    # given: such sums go in waves, or as they do over few nodes. flies: whether messages between nodes have
    # lanes enough.
    p, alike = len(has), dict[tuple[bool, tuple[int, ...]], list[tuple[Sequence[int], Ints | None]]]()
    for ranks in groups:
        nodes, apart = _levels_of(machine, ranks, p, np.inf if in_place else has[ranks].max())
        shape = () if nodes is None else nodes.shape
        alike.setdefault((apart, shape), []).append((ranks, nodes))
    exchanges = list[Exchange]()
    for (apart, shape), some in alike.items():
        group = np.full(p, -1)
        for number, (ranks, _) in enumerate(some):
            group[ranks] = number
        if shape:
            nodes = np.stack([x for _, x in some if x is not None])
            exchanges += _by_level(has, nodes, apart, back, WAVES * in_place, flies)
        else:
            far = FAR_APART if apart or flies else FAR
            exchanges.append(Exchange(has, group, far=far, back=back))
    return exchanges


def _levels_of(machine: Machine, ranks: Sequence[int], total: int, nbytes: float) -> tuple[Ints | None, bool]:
    """Return ranks by node and place if their collectives go by level, and whether messages have lanes."""
    apart = lanes_apart(machine, ranks, total, nbytes)
    if by_level(machine, ranks, total) is None:
        return None, apart
    return np.array(nodes_of(machine, ranks, total)), apart


def _charge(machine: Machine, adds: bool) -> float:
    """Return for how many bytes one counts on links at least, whatever the size of messages."""
    means = machine.means.get(COLLECTIVE)
    if means is not None:
        return 1.0 / means.efficiency
    return 1.0 / machine.accumulate_efficiency if adds else 1.0


@lru_cache(maxsize=MAX_CACHED)
def added_up(sums: Sums, total: int, itemsize: int, machine: Machine) -> tuple[Flow, Flow, Flow]:
    """Flow of sums, the part of it for each rank's own tile, and copies between replicas.

    The second are bytes into each rank, by how they go. By level a rank also adds up what it passes on to
    other nodes: its own part waits for its share of that.
    """
    share, owned = np.zeros(total), np.zeros((2, 2, 5, total))
    for x in sums.groups:
        share[x.ranks] = size_of(x.own) * (itemsize / x.copies)
    added = list[Exchange]()
    # Sums with copies between nodes have several messages under way, see `FLYING` in sums.py.
    for flies in (False, True):
        groups = [x.ranks for x in sums.groups if flies == (x.copies > 1 and not sums.in_place)]
        added += _among(groups, share, machine, back=True, in_place=sums.in_place, flies=flies)
    for each in added:
        if each.nodes is None:
            owned[0, IN] += each.at_ranks(node_of_ranks(machine, total))[0][IN]
        elif each.number is None:  # only its own node's part of what is added inside is for the rank itself
            ranks, (nodes, places) = each.group >= 0, each.nodes
            owned[0, IN, NEAR, ranks] += share[ranks] * (places - 1)
            owned[0, IN, FAR, ranks] += share[ranks] * (nodes - 1)
    same = [ranks for x in sums.groups if x.copies > 1 for ranks in x.same]
    copied = _among(same, share, machine, in_place=sums.in_place, flies=not sums.in_place)
    add, copy = _charge(machine, True), _charge(machine, False)
    return (
        Flow.of(added, machine, total, add),
        Flow(*owned * add),
        Flow.of(copied, machine, total, copy),
    )


class Ends(NamedTuple):
    """Rates and latencies of the links at each rank."""

    rates: Floats  # Bytes/s into and out of each rank from its node and from others, shape (2, 2, ranks)
    inverse: tuple[float, float]  # seconds that a byte takes by itself at least, within a node and beyond it
    latency: tuple[float, float]  # seconds before a message's bytes flow at least, alike


@lru_cache(maxsize=16)
def _ends(machine: Machine, ranks: int) -> Ends:
    """Rates and latencies at each rank; the first rank of each of many other nodes stands for it."""
    # Between two cards of two tiles, as of pvc-12, each pair of tiles has a link of its own.
    device = np.array([machine.device_of(rank, ranks) for rank in range(ranks)])
    node = node_of_ranks(machine, ranks)
    heads = np.unique(node, return_index=True)[1]
    means = machine.means.get(COLLECTIVE)
    rates, best = np.full((2, 2, ranks), np.inf), np.full((2, 2), np.inf)
    bandwidth, beside = machine.link_bandwidth, node[:, None] == node
    beyond = ~beside if ranks <= MAX_GROUPS else ~beside & np.isin(np.arange(ranks), heads)
    for level, among in enumerate((beside & (device[:, None] != device), beyond)):
        rank, other = among.nonzero()
        for way in (IN, OUT) if len(rank) else ():
            ends = (other, rank) if way == IN else (rank, other)
            lengths, links = machine.routes(*(device[x] for x in ends))
            starts = lengths.cumsum() - lengths
            # The link at the rank itself: the last of an arriving route, the first of a leaving one.
            last = links[starts + (lengths - 1 if way == IN else 0)]
            # Routes share end links; `unique` counts each link of a rank once before widths are added up.
            ranks_of, link = np.divmod(np.unique(rank * len(bandwidth) + last), len(bandwidth))
            width = np.bincount(ranks_of, bandwidth[link], ranks)
            rates[way, level] = np.where(width > 0, width, np.inf)
            if way == IN:
                best[0, level] = np.maximum.reduceat(1.0 / bandwidth[links], starts).min()
                best[1, level] = np.add.reduceat(machine.link_latency[links], starts).min()
    best = np.where(np.isinf(best), 0.0, best)
    best[1] += means.overhead_s if means is not None else 0.0
    inverse, latency = best.tolist()
    return Ends(rates, (inverse[0], inverse[1]), (latency[0], latency[1]))


def busy_links(price: Price, machine: Machine) -> tuple[float, float]:
    """Return how long the busiest rank's links are busy, those in its node and those between nodes."""
    moved = sum(price.gathered.values(), price.adds + price.copied)
    # Links are full duplex, so the busier direction decides, not the sum.
    busy = np.maximum(moved.busy(machine), moved.busy(machine, way=OUT)).max(axis=1)
    return float(busy[0]), float(busy[1])

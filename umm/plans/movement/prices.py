"""Prices of multiplies by collectives: gemms, and bytes between ranks, without writing an action."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from umm import cost
from umm.arrays import Floats, Ints
from umm.machines import Machine
from umm.machines.curves import COLLECTIVE
from umm.plans.collectives.direct import pairs
from umm.plans.collectives.hierarchical import WAVES
from umm.plans.collectives.rings import node_of_ranks, nodes_of
from umm.plans.movement.blocks import Blocks, Needed, held, in_common, size_of
from umm.plans.movement.gathers import by_level, lanes_apart, sharers
from umm.plans.movement.multiply import Gathered
from umm.plans.movement.sums import Sums

IN, OUT = range(2)
SHARED, CARD, APART = range(3)
"""Lanes of messages: a rank's own for all of them, one for those between nodes, and lanes enough."""
MAX_CACHED = 2048  # gathers, and sums, that are remembered: many multiplies of a chain share them
MAX_RANKS_IN_PAIRS = 256  # ranks up to which the bytes of every pair are remembered
MAX_RANKS_ONE_BY_ONE = 64  # ranks up to which the routes from each to every other are looked at


class Messages(NamedTuple):
    """Messages between pairs of ranks that exchange something."""

    source: Ints  # rank that has each
    target: Ints  # rank that gets it, or adds it to what it has
    nbytes: Floats  # bytes from one to the other
    own: Floats  # those of them that the target does not pass on, or add up for another
    number: Floats  # messages in which they go
    lanes: tuple[int, int] = (SHARED, SHARED)  # lanes within a node, and beyond it
    relayed: float = 0.0  # least bytes of a node that pass the links inside another one, by level; else 0

    @classmethod
    def of(cls, between: Floats) -> "Messages":
        """One message for each pair of ranks that bytes move between; these from rank to rank."""
        np.fill_diagonal(between, 0.0)
        source, target = between.nonzero()
        nbytes = between[source, target]
        return cls(source, target, nbytes, nbytes, np.ones(len(nbytes)))


@dataclass(frozen=True, eq=False)
class Flow:
    """Bytes and messages into and out of each rank: the sum of some messages."""

    nbytes: Floats  # bytes charged into and out of each rank, in its node and beyond, shape (2, 2, ranks)
    number: Floats  # messages into and out of each, shape (2, ranks)
    # Seconds of each rank's arriving messages one after another, of those on its shared lanes and on that for
    # other nodes, shape (2, ranks).
    lanes: Floats
    messages: tuple[Messages, ...]  # what it consists of; of very many ranks nothing
    charge: float  # bytes charged for each byte
    # Seconds that a round of messages inside a node takes at least, where all that goes between nodes has
    # such a round before it, or after it; else 0.
    hop: float
    # Seconds that ranks are busy, kept since many multiplies share a gather.
    _known: dict[tuple[Machine, int, int], Floats] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, messages: Sequence[Messages], machine: Machine, total: int, charge: float) -> "Flow":
        """Sum of some messages between ranks, so many in all."""
        ends, node = _ends(machine, total), node_of_ranks(machine, total)
        nbytes, number, lanes = np.zeros((2, 2 * total)), np.zeros((2, total)), np.zeros(3 * total)
        for x in messages:
            far = (node[x.source] != node[x.target]).astype(np.int64)
            for way, rank in ((IN, x.target), (OUT, x.source)):
                nbytes[way] += np.bincount(far * total + rank, x.nbytes * charge, 2 * total)
                number[way] += np.bincount(rank, x.number, total)
            # A rank's own messages follow each other: each takes a start, and its bytes at link speed.
            takes = x.nbytes * charge * ends.inverse[far] + x.number * ends.latency[far]
            lanes += np.bincount(np.take(x.lanes, far) * total + x.target, takes, 3 * total)
        # A lower bound on the extra round by level: the fewest bytes at the highest rate, and one latency.
        hop = min((x.relayed for x in messages), default=0.0) / float(ends.rates[:, 0].max()) * charge
        return cls(
            nbytes.reshape(2, 2, total), number, lanes.reshape(3, total)[:APART],
            tuple(messages) if total <= MAX_RANKS_IN_PAIRS else (), charge,
            hop + float(ends.latency[0]) if hop else 0.0,
        )  # fmt: skip

    @property
    def pairs(self) -> Floats:
        """Bytes charged from rank to rank."""
        total = self.number.shape[1]
        between = np.zeros(total**2)
        for x in self.messages:
            between += np.bincount(x.source * total + x.target, x.nbytes * self.charge, total**2)
        return between.reshape(total, total)

    def busy(self, machine: Machine, lanes: int = 0, way: int = IN) -> Floats:
        """Least seconds that each rank is busy with arriving or leaving bytes, shape (4, ranks).

        First of the links in its node, then of those to others, then the mean of its lanes, then of its lane
        for what goes between nodes.

        Args:
            lanes: Lanes on which the rank itself gets or adds that; 0 where others do.
        """
        key = machine, lanes, way
        if key not in self._known:
            seconds = np.zeros((4, self.number.shape[1]))
            # Links carry all bytes whatever their lane.
            seconds[:2] = self.nbytes[way] / _ends(machine, self.number.shape[1]).rates[way]
            if lanes:
                seconds[2], seconds[3] = self.lanes[SHARED] / lanes, self.lanes[CARD]
            seconds.flags.writeable = False
            self._known[key] = seconds
        return self._known[key]


@dataclass(frozen=True, eq=False)
class Price:
    """Gemms and transfers of a multiply; copies and adds within a rank are left out."""

    gemms: Floats  # seconds of each rank's gemms
    gathered: dict[str, Flow]  # what is gathered of each operand
    adds: Flow  # what its sums add
    own: Flow  # of those what is added to what each rank owns, or on the way there
    copied: Flow  # what of sums is copied to their other replicas

    @property
    def flows(self) -> tuple[Flow, ...]:
        """All that moves."""
        return (*self.gathered.values(), self.adds, self.copied)

    @property
    def payload(self) -> dict[str, int]:
        """Bytes of A, B and C that reach the rank that gets most of each."""
        # Flows hold charged bytes; payload is what really moves, so the charge is divided out.
        into = {x: flow.nbytes[IN] / flow.charge for x, flow in self.gathered.items()}
        into["C"] = self.adds.nbytes[IN] / self.adds.charge + self.copied.nbytes[IN] / self.copied.charge
        return {x: round(float(nbytes.sum(axis=0).max())) for x, nbytes in into.items()}

    @property
    def transfers(self) -> dict[str, int]:
        """For A, B and C about the most transfers of a rank in a chunk."""
        sums = int(self.adds.number[OUT].max() + self.copied.number[IN].max())
        return {x: int(flow.number[IN].max()) for x, flow in self.gathered.items()} | {"C": sums}


def price_of(how: Gathered, machine: Machine) -> Price:
    """Price a multiply by collectives."""
    blocks, problem = how.blocks, how.blocks.problem
    gemms = _gemms(blocks, machine, how.along, how.chunks)
    gathered = {x: _gathered(blocks.needed(x), problem.itemsize(x), machine) for x in how.collects}
    return Price(gemms, gathered, *added_up(how.sums, problem.p, problem.itemsize("C"), machine))


def price_one_sided(blocks: Blocks, machine: Machine) -> Price | None:
    """Price a one-sided multiply: ranks get missing operands and accumulate into C's owners.

    None if C has replicas, which are summed besides.
    """
    problem, works = blocks.problem, blocks.works
    layout, made = problem.layout("C"), blocks.of("C")
    tiles = held(layout)
    if layout.replicas > 1 or tiles is None:
        return None
    between = in_common(made, tiles) * works[:, None] * float(problem.itemsize("C"))
    gathered = {
        x: _gathered(blocks.needed(x), problem.itemsize(x), machine) for x in "AB" if blocks.lacks[x].any()
    }
    adds = Flow.of([Messages.of(between)], machine, problem.p, 1.0 / machine.accumulate_efficiency)
    copied = Flow.of([], machine, problem.p, 1.0)
    return Price(_gemms(blocks, machine, "k", 1), gathered, adds, adds, copied)


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


@lru_cache(maxsize=MAX_CACHED)
def _gathered(needed: Needed, itemsize: int, machine: Machine) -> Flow:
    """Flow of an operand's gather."""
    tiles, p = held(needed.layout), len(needed.rects)
    assert tiles is not None
    has, between, among = np.zeros(p), np.zeros((p, p)), list[list[int]]()
    for ranks, owners in sharers(needed):
        nbytes = in_common(tiles[owners], needed.rects[ranks[:1]])[:, 0] * itemsize
        if set(owners) <= set(ranks):
            has[owners] = nbytes
            among.append(ranks)
        else:
            between[np.ix_(owners, ranks)] = nbytes[:, None]
    messages = [*_among(among, has, machine), *([Messages.of(between)] if between.any() else [])]
    return Flow.of(messages, machine, p, _charge(machine, False))


def _among(
    groups: Sequence[Sequence[int]],
    has: Floats,
    machine: Machine,
    back: bool = False,
    in_place: bool = False,
    flies: bool = False,
) -> list[Messages]:
    """Return the messages of groups of ranks, none in two of them, whose ranks get all that the others have.

    By level an exchange is two: between ranks of one place, then of all that these got inside each node.
    Groups that are alike are one.

    Args:
        back: Whether the bytes go the other way: from those who get them to the owners.
        in_place: Whether all is where it was given: such sums go in waves, or as they do over few nodes.
        flies: Whether messages between nodes have lanes enough.
    """
    p, alike = len(has), dict[tuple[bool, int, int], list[list[list[int]]]]()
    for ranks in groups:
        apart = lanes_apart(machine, ranks, p, np.inf if in_place else has[ranks].max())
        nodes = nodes_of(machine, ranks, p) if by_level(machine, ranks, p) else [[*ranks]]
        alike.setdefault((apart, len(nodes), len(ranks)), []).append(nodes)
    messages, full = list[Messages](), (has > 0).astype(np.float64)
    for (apart, count, _), some in alike.items():
        rank_at, levels = np.array(some, dtype=np.int64), count > 1
        near = APART if apart and levels else SHARED
        far = APART if apart or flies else CARD if levels else SHARED
        # Inside a node each rank passes on what it has of all nodes, in waves several of them by one message.
        fewer = min(1.0, WAVES / count) if in_place and apart else 1.0
        passed, number = np.zeros((2, p))
        passed[rank_at] = has[rank_at].sum(axis=1, keepdims=True)
        number[rank_at] = full[rank_at].sum(axis=1, keepdims=True) * fewer
        # Of another node's bytes a rank gets one place's share by its own card; the rest passes the links
        # inside.
        relayed = float((has[rank_at].sum(axis=2) - has[rank_at].max(axis=2)).min()) * levels
        across = rank_at.swapaxes(1, 2).reshape(-1, count), has, full
        inside = rank_at.reshape(-1, rank_at.shape[2]), passed, number
        for stage, nbytes, of_each in (across, inside):
            _, takers, origins = pairs(stage)
            ends = (takers, origins) if back else (origins, takers)
            its = nbytes[origins], has[origins], of_each[origins]
            messages.append(Messages(*ends, *its, (near, far), relayed))
    return messages


def _charge(machine: Machine, adds: bool) -> float:
    """Return for how many bytes one counts on links at least, whatever the size of messages."""
    means = machine.means.get(COLLECTIVE)
    if means is not None:
        return 1.0 / means.efficiency
    return 1.0 / machine.accumulate_efficiency if adds else 1.0


@lru_cache(maxsize=MAX_CACHED)
def added_up(sums: Sums, total: int, itemsize: int, machine: Machine) -> tuple[Flow, Flow, Flow]:
    """Flow of sums, the part of it for each rank's own tile, and copies between replicas.

    By level a rank also adds up what it passes on to other nodes: its own part waits for its share of that.
    """
    share = np.zeros(total)
    for x in sums.groups:
        share[x.ranks] = size_of(x.own) * (itemsize / x.copies)
    added = _among([x.ranks for x in sums.groups], share, machine, back=True, in_place=sums.in_place)
    same = [ranks for x in sums.groups if x.copies > 1 for ranks in x.same]
    # Sums with copies between nodes have several messages under way, see `FLYING` in sums.py.
    copied = _among(same, share, machine, in_place=sums.in_place, flies=not sums.in_place)
    add, copy = _charge(machine, True), _charge(machine, False)
    return (
        Flow.of(added, machine, total, add),
        Flow.of([x._replace(nbytes=x.own) for x in added], machine, total, add),
        Flow.of(copied, machine, total, copy),
    )


class Ends(NamedTuple):
    """Rates and latencies of the links at each rank."""

    rates: Floats  # Bytes/s into and out of each rank from its node and from others, shape (2, 2, ranks)
    inverse: Floats  # seconds that a byte takes by itself at least, within a node and beyond it
    latency: Floats  # seconds before a message's bytes flow at least, alike


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
    beyond = ~beside if ranks <= MAX_RANKS_ONE_BY_ONE else ~beside & np.isin(np.arange(ranks), heads)
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
    return Ends(rates, *best)


def busy_links(flows: Iterable[Flow], machine: Machine) -> tuple[float, float]:
    """Return how long the busiest rank's links are busy, those in its node and those between nodes."""
    busy: Floats = np.zeros((2, 2, 1))
    for flow in flows:
        busy = busy + [flow.busy(machine, way=way)[:2] for way in (IN, OUT)]
    # Links are full duplex, so the busier direction decides, not the sum.
    inside, between = busy.max(axis=(0, 2)).tolist()
    return inside, between

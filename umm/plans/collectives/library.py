"""Collectives as the vendor's library of the machine does them, and all-reduces that frameworks ship.

The library's kernels keep all links of a rank busy from the first bytes to the last: its rings and trees are
cut into so many chunks that the steps overlap. So the schedule moves each piece once between the ranks that
need it, on the links that the ring or the tree loads; the time before the first bytes, which holds the steps,
is a wait. Links are charged what the library puts on them, so that others' transfers feel it: more than the
piece where its blocks or its protocol do not fill the link, less where the switch adds.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import permutations, product
from math import inf, log2
from typing import TYPE_CHECKING, Any, NamedTuple

from umm.machines import Machine
from umm.plans.collectives import direct, hierarchical, planes
from umm.plans.collectives.closed_forms import HALVES, closed_form
from umm.plans.collectives.rings import nodes_of, tiers_of
from umm.plans.collectives.way import (
    AllReduce,
    AllToAll,
    Broadcast,
    Cut,
    Exchange,
    Gather,
    Manner,
    Own,
    Parts,
    Reduce,
    Scatter,
    Way,
    copied,
    in_parts,
    room_for,
)
from umm.schedules.table.accesses import ADD, READ, WRITE
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import KERNEL

if TYPE_CHECKING:
    from umm.machines.library import Between, Pace

LIBRARY = "library"
ROOTED = ("broadcast", "reduce")
"""What no file states: it takes what its parts' gather or reduce-scatter takes, whose rings it goes round."""
KERNELS = {
    "one-shot": "Every rank reads what all others have and adds it up.",
    "two-shot": "Every rank adds up its part of what the others have, then reads the other parts.",
    "multimem": "Every rank lets the switch add up its part and send the sum to all.",
}
PHASES = {"all-reduce": 2}  # how often everything goes round: a reduce-scatter and an all-gather
LEAST_SHARE = 0.9  # of the time in which bytes move, what latencies may take off at most
CHUNKS = 8  # parts in which what crosses nodes follows itself through a node, where it is large enough
PIPELINED = 4
"""The same of what goes over the two tiers inside a node, or through the ranks of one from or to a root."""
BETWEEN = {"all-to-all": ("pairwise",), "all-reduce": ("ring", "tree", "tree-ll")}
"""Ways of collectives between nodes; of others rings."""
LEAST_ROOTED = 0.5  # what bounds take for the least share of what links of a reduce are charged
LEAST_BETWEEN = 0.25  # what bounds take for the least charge between nodes, or between the tiers of one
FLAGGED = 2.0
"""Bytes on a link for each byte by the protocol of small sizes, which sends a flag with every 4 bytes.

Source: NVIDIA/nccl, src/include/device.h, ncclLLFifoLine.
"""
LEAST_CHUNK = 2**17  # bytes of a piece that are not cut again


class Choice(NamedTuple):
    """How a library does one collective."""

    name: str  # of the way
    wait_s: float  # seconds before the first transfer
    charge: float  # bytes on the links for each byte that moves
    between: float  # the same on cards between nodes; 0 within one
    chunks: int  # parts that follow each other between nodes
    seconds: float  # what it takes alone
    at_once: bool = False  # whether every rank gets all that the others have in one round
    # Groups of nearer devices in a node, all of which a rank exchanges with at a time; 0 if none.
    groups: int = 0

    def manner(self, given: Manner) -> Manner:
        """Return the manner of its transfers: a lane for each partner, and the charge on links."""
        how = replace(given, lane=LIBRARY, apart=True, charge=self.charge, between=self.between)
        return replace(how, flights=self.groups - 1, rounds=self.groups) if self.groups else how

    def cuts(self, *pieces: Callable[..., Slice]) -> Iterator[list[Any]]:
        """Yield the pieces' parts that follow each other."""
        for part in range(self.chunks):
            yield [Cut(x, part, self.chunks) if self.chunks > 1 else x for x in pieces]


NOTHING = Choice("none", 0.0, 0.0, 0.0, 1, 0.0)


@lru_cache(maxsize=4096)
def choose(
    machine: Machine, what: str, ranks: tuple[int, ...], total: int, nbytes: int, way: str | None = None
) -> Choice:
    """Return how a library does a collective: by its own choice, or the way that is asked for.

    Args:
        total: Ranks of the whole schedule, which decides the device of each.
        way: The name of one that is asked for; None for the library's own choice.
    """
    from umm.machines.library import considered

    assert machine.library is not None
    if way in KERNELS and not machine.library.kernels[way].takes(nbytes):
        way = None  # frameworks leave it to the library
    ways = machine.library.kernels if way in KERNELS else machine.library.ways(what)
    paces = {name: pace for name, pace in ways.items() if way in (None, name)}
    nodes = domains(machine, ranks, total)
    if len(nodes) > 1:
        return _between(machine, what, nodes, total, nbytes, paces)
    groups = tiers(machine, ranks, total)
    if groups and what != "all-to-all":
        choices = [_over_tiers(machine, what, groups, total, nbytes, *x) for x in paces.items()]
        return min(choices, key=lambda x: x.seconds)
    width, latency = hears(machine, ranks, total)
    p = len(ranks)
    # A tile hears from its sibling by a faster link; the rate that counts is that of the links between
    # groups, scaled to all p − 1 partners.
    if groups:  # what is for other groups takes the links between them, also where siblings pass it on
        inside = hears(machine, tuple(groups[0]), total)[0]
        width = (width - inside) * (p - 1) / (p - len(groups[0]))
    elif tiered(machine) and len(nodes) == 1:
        width = _all_hear(machine, ranks, total)
    seconds = {x: paces[x].seconds(what, nbytes, p, width) for x in considered(paces, what, nbytes, p)}
    name = min(seconds, key=seconds.__getitem__)
    pace = paces[name]
    # The measured start holds the steps' latencies; the schedule's transfers bring latencies of their own, so
    # these come off the wait. A negative wait is a kernel faster than the links' latencies.
    start = pace.start_s(p)
    if pace.issue is not None:  # a host that issues it later delays its start
        start = seconds[name] - pace.moved(what, nbytes, p) / pace.rate(p, width, nbytes / p)
    wait, takes = start - PHASES.get(what, 1) * latency, seconds[name] - start
    if way in KERNELS and pace.path != "switch" and wait + LEAST_SHARE * takes < 0.0:
        # One round has one latency. In two rounds it would be as long and need less memory, if they fitted.
        over = width * max(0.0, takes + min(0.0, wait + latency)) / (nbytes * (p - 1))
        return Choice(name, max(0.0, wait + latency), over, 0.0, 1, seconds[name], True)
    # Kernels that start sooner than the links' latencies allow make up for it in what they charge.
    sooner = max(1.0 - LEAST_SHARE, 1.0 + min(0.0, wait) / takes)
    over = charge(pace, what, p, width, nbytes / p)
    if pace.hides:
        # What hides in a step's latency crosses the links nevertheless, and the wait is so much shorter.
        crossing = over * pace.moved(what, nbytes, p) / width
        wait, takes = wait - max(0.0, crossing - takes), max(crossing, takes)
    return Choice(name, max(0.0, wait), over * sooner, 0.0, 1, seconds[name])


def charge(pace: "Pace", what: str, ranks: int, width: float, message: float = inf) -> float:
    """Return the bytes on a rank's links for each byte that the schedule moves there.

    A ring carries no fewer bytes than the schedule moves; only a switch that adds puts fewer on a port.
    """
    from umm.machines.library import around

    # charge = (bytes that the library moves / bytes that the schedule moves) · (link width / library's rate).
    factor = pace.moved(what, 1.0, ranks) / around(what, 1.0, ranks) * width
    factor /= pace.rate(ranks, width, message)
    return factor if pace.path == "switch" else max(1.0, factor)


@lru_cache(maxsize=4096)
def hears(machine: Machine, ranks: tuple[int, ...], total: int) -> tuple[float, float]:
    """Return the bytes/s of the links by which the first rank hears from the others, and their latency."""
    return machine.hears([machine.device_of(rank, total) for rank in ranks])


@lru_cache(maxsize=4096)
def _all_hear(machine: Machine, ranks: tuple[int, ...], total: int) -> float:
    """Return the bytes/s by which each rank hears from the others while all do, by the fullest link."""
    devices = [machine.device_of(rank, total) for rank in ranks]
    loads = Counter(link for pair in permutations(devices, 2) for link in machine.route(*pair))
    slowest = max(count / float(machine.link_bandwidth[link]) for link, count in loads.items())
    return (len(ranks) - 1) / slowest


def tiered(machine: Machine) -> bool:
    """Return whether faster links join some devices of a node."""
    return not machine.fabric.nodes and (machine.fabric.near >= 2 or bool(machine.fabric.tiers))


def domains(machine: Machine, ranks: Sequence[int], total: int) -> list[list[int]]:
    """Return the ranks by node; all together where devices are in none."""
    return nodes_of(machine, ranks, total) if machine.fabric.nodes else [list(ranks)]


def tiers(machine: Machine, ranks: Sequence[int], total: int) -> list[list[int]]:
    """Return ranks of one node by the group that faster links join; [] if none, or of unlike sizes."""
    if not tiered(machine):
        return []
    groups = tiers_of(machine, ranks, total)
    sizes = {len(group) for group in groups}
    return groups if len(groups) > 1 and len(sizes) == 1 and sizes != {1} else []


def least(machine: Machine, what: str, ranks: Sequence[int], total: int) -> tuple[float, float]:
    """Return the least charge and the least wait, in seconds, with which sums of any size are written."""
    # A wait less than 0 is what kernels are sooner than the links' latencies allow.
    assert machine.library is not None
    # Between nodes and over tiers charges depend on the size, so bounds take the constant floor of `_between`
    # and `_over_tiers`.
    if len(domains(machine, ranks, total)) > 1 or tiers(machine, ranks, total):
        return LEAST_BETWEEN, 0.0
    width, latency = hears(machine, tuple(ranks), total)
    paces = [pace for pace in machine.library.ways(what).values() if pace.joins(len(ranks))]
    if what == "all-reduce":
        paces += machine.library.kernels.values()
    starts = [pace.start.number if pace.hides else pace.start_s(len(ranks)) for pace in paces]
    waits = [start - PHASES.get(what, 1) * latency for start in starts]
    least_charge = min(charge(pace, what, len(ranks), width) for pace in paces)
    # `_rooted` may take all of the wait.
    return (least_charge * LEAST_ROOTED, min(0.0, *waits)) if what == "reduce" else (least_charge, min(waits))


def _over_tiers(
    machine: Machine,
    what: str,
    groups: Sequence[Sequence[int]],
    total: int,
    nbytes: int,
    name: str,
    pace: "Pace",
) -> Choice:
    """Return how a library does a gather or a sum among tiles of several GPUs, whose siblings are nearer."""
    # A kernel reads a piece of every tile of its plane at a time and writes each to its sibling as it comes;
    # sums go the other way round. So the links between GPUs and those inside them are busy beside each other,
    # and the slower decide. The schedule's parts are coarser than the kernel's: the last one, which crosses
    # the faster links alone, is taken off what the slower ones are charged.
    # Source: uxlfoundation/oneCCL, allgatherv_large_sycl_impl.hpp and reduce_scatter_large_sycl_impl.hpp.
    n, q, phases = len(groups), len(groups[0]), PHASES.get(what, 1)
    far, latency = hears(machine, tuple(group[0] for group in groups), total)
    width, near = hears(machine, tuple(groups[0]), total)
    if what in ROOTED:
        # Each place of a group moves its share by all links of its plane to or from the root's group; the
        # root moves all of it inside its own group.
        takes, within = nbytes / q / pace.rate(n, far), nbytes / pace.rate(q, width)
        start, most = pace.start_s(n * q), max(1, min(PIPELINED, nbytes // (n * q) // LEAST_CHUNK))
        how = _in_rounds(
            what, n, (start, takes), latency, (n - 1) / n, most, LEAST_BETWEEN, (within, 2 * near)
        )
        over, slower = how.share * far * takes * q / nbytes, how.share * width * within / nbytes
        seconds = start + max(takes, within)
        return Choice(name, how.wait_s, slower, over, how.chunks, seconds, how.straight, groups=n)
    # Each of the n · q ranks owns one share; n − 1 shares come over the far links, and n · (q − 1) pass the
    # near ones, since a sibling passes on what it got for the other.
    share = phases * nbytes / (n * q)
    takes, within = share * (n - 1) / pace.rate(n, far), share * n * (q - 1) / pace.rate(q, width)
    # Small pieces stay whole: every chunk adds a latency that must fit into the library's start.
    chunks = max(1, min(PIPELINED, nbytes // (n * q) // (PIPELINED * LEAST_CHUNK)))
    start, longer = pace.start_s(n * q), max(takes, within)
    latencies = phases * (chunks * latency + near)
    wait = max(0.0, start - latencies)
    busy = start + longer - wait - latencies  # of the slower links, with what the last part takes beyond them
    last = within / chunks * ((n - 1) / n if what == "all-gather" else 1.0)  # a rank's own crosses early
    over, slower = far * takes / (share * (n - 1)), width * within / (share * n * (q - 1))
    # Only the tier that decides is stretched or squeezed, so that the simulated total matches the measured
    # one.
    if takes >= within:
        over *= max(LEAST_BETWEEN, (busy - last) / takes)
    else:
        slower *= max(LEAST_BETWEEN, (busy - takes / chunks) / within)
    return Choice(name, wait, slower, over, chunks, start + longer, groups=n)


class Rounds(NamedTuple):
    """How chunks go between a root and the other ranks."""

    share: float  # of what links are charged that the schedule's coarser chunks leave
    chunks: int  # chunks that follow each other
    straight: bool  # whether the root deals with every rank itself; else ranks pass on a share each
    wait_s: float  # seconds before the first transfer


def _in_rounds(
    what: str,
    ranks: int,
    seconds: tuple[float, float],
    latency: float,
    last: float,
    most: int,
    least_share: float,
    inside: tuple[float, float] = (0.0, 0.0),
) -> Rounds:
    """Choose the rounds of a broadcast or a reduce that take as long as the library does.

    Args:
        seconds: Those before the first bytes, and those in which the bytes pass the root's links.
        last: The part of one chunk's bytes that ranks exchange after the root, or before it in a sum.
        most: Most chunks.
        least_share: Least share of the charge.
        inside: Seconds of all bytes over nearer links behind these, and the latencies there.
    """
    (start, takes), choices = seconds, []
    for straight, chunks in product((False, True) if ranks > 2 else (True,), range(1, most + 1)):
        # A chunk's two messages with a rank take two latencies, and a third one follows, in a reduce while
        # the root still hears.
        busy = takes * (ranks - 1.0 if straight else 1.0 + last / chunks) + inside[0] / chunks
        latencies = latency * (chunks if straight else 2 * chunks + 1) + inside[1]
        if what == "reduce" and not straight and not inside[0]:
            latencies -= min(latency, takes * last / (1.0 + last / chunks))
        choices.append((chunks, straight, busy, latencies))
    return _fitted(start, start + max(takes, inside[0]), choices, least_share)


def _fitted(
    start: float, seconds: float, choices: Iterable[tuple[int, bool, float, float]], least_share: float
) -> Rounds:
    """Return the rounds that come closest to a library's seconds, which start with a wait.

    Args:
        choices: Chunks, whether they go straight, the seconds in which their bytes move, and their latencies.
        least_share: Least share of the charge.
    """
    # The library's chunks are finer than the schedule's: what the first and the last chunk take beside the
    # root's links is taken off what all links are charged.
    candidates = []
    for chunks, straight, busy, latencies in choices:
        wait = max(0.0, start - latencies)
        share = max(least_share, min(1.0, (seconds - wait - latencies) / busy))
        late = max(0.0, round((wait + latencies + share * busy) / seconds - 1.0, 9))
        candidates.append((late, -share, chunks, straight, wait))
    # Of the fastest the one whose links are charged most of what they carry.
    _, less, chunks, straight, wait = min(candidates)
    return Rounds(-less, chunks, straight, wait)


@lru_cache(maxsize=64)
def ways_between(machine: Machine) -> "Between":
    """Return the library's ways between nodes; where its file states none, rings at the cards' full rate."""
    # They start as rings through a whole node do, with a step for each further one. So a machine's library is
    # as slow inside several nodes as in one, and two nodes do not take less than one.
    from umm.machines.library import Between

    assert machine.library is not None
    if machine.library.between is not None:
        return machine.library.between
    ring, pairwise = (next(iter(machine.library.ways(x).values())) for x in ("all-gather", "all-to-all"))
    full = ring.link.model_copy(update={"value": 1.0})

    def between(pace: "Pace") -> "Pace":
        start = pace.start.model_copy(update={"value": f"{pace.start_s(machine.fabric.near)} s"})
        return pace.model_copy(update={"start": start, "link": full, "largest": None, "steps": "ranks"})

    return Between.model_construct(ring=between(ring), pairwise=between(pairwise), tree=None)


def _between(
    machine: Machine,
    what: str,
    nodes: Sequence[Sequence[int]],
    total: int,
    nbytes: int,
    paces: "Mapping[str, Pace]",
) -> Choice:
    """Return how a library does a collective among nodes: as rings, by trees, or every pair at once."""
    # A rank exchanges with those of its place in other nodes, through its own card. A ring goes through all
    # ranks of a node before it leaves it, so it puts (p − 1)/p of a card's share on the card where (n − 1)/n
    # would do; in a tree a node sends to one above it and two below, or of two nodes to the other one; by the
    # protocol of small sizes each level waits for the one before. Cards and the links inside nodes are busy
    # beside each other, and the slower of the two decides.
    between = ways_between(machine)
    n, q, phases = len(nodes), len(nodes[0]), PHASES.get(what, 1)
    p, share = n * q, nbytes if what == "all-to-all" else nbytes / q
    card, latency = hears(machine, tuple(node[0] for node in nodes), total)
    inside = _inside(machine, what, nodes[0], total, nbytes, n, paces)
    # A chain from or to a root passes on the whole of a card's share, of others each node its own part.
    around_once, moved = (share, share) if what in ROOTED else (share * (p - 1) / p, share * (n - 1) / n)
    moved *= phases
    # Bytes through one card: a ring (2) · share · (p − 1)/p, a tree what its inner nodes send, the
    # low-latency tree one share a level, pairwise what every pair exchanges.
    crossing = {
        "ring": phases * around_once, "tree": share * min(2, n - 1), "tree-ll": share * log2(n),
        "pairwise": moved,
    }  # fmt: skip
    crossing["ring-ll"] = crossing["ring"]
    # It starts no sooner than in one node, and all that ranks get passes the links inside as there, but what
    # they exchange with other nodes in pairs.
    parts = (what, *HALVES.get(what, ())) if q > 1 else ()
    alone = {x: choose(machine, x, tuple(nodes[0]), total, nbytes) for x in parts}
    # A wait is what is left of a start beside the latencies of the links.
    starts = [x.wait_s + PHASES.get(part, 1) * inside.latency for part, x in alone.items()]
    soonest, least_s = max(starts, default=0.0), max((x.seconds for x in alone.values()), default=0.0)
    candidates = []
    for name in BETWEEN.get(what, ("ring", "ring-ll")):
        pace: Pace | None = getattr(between, name.replace("-", "_"))
        if pace is None or not pace.takes(nbytes):
            continue
        # A ring all-reduce pays its steps twice, once for the reduce-scatter and once for the all-gather.
        start = max(soonest, pace.start_s(n) * (phases if name == "ring" else 1))
        takes = crossing[name] / (card * pace.link.value)
        within = inside.by[name]
        within = within if what == "all-to-all" else max(within, least_s - start)
        candidates.append((start + max(takes, within), name, start, takes, within))
    # Tuples compare by seconds first; the name only breaks ties, deterministically.
    seconds, name, start, takes, within = min(candidates)
    if what == "all-to-all" or (q == 1 and what not in ROOTED):
        slower = max(1.0, within * inside.width / inside.moved) if inside.moved else 1.0
        return Choice(name, max(0.0, start - phases * latency), slower, takes * card / moved, 1, seconds)
    near = inside.latency
    if what in ROOTED:
        # A chain of nodes goes both ways, on two lanes each, and passes a chunk on once it is there; of an
        # odd number each way is half. Of a reduce two fifths hide behind the sums inside nodes. Half
        # of the latencies of later chunks hides in the time of the bytes.
        further = (0.0 if n == 2 else n / 2 - n % 2) * (0.6 if what == "reduce" else 1.0)
        choices = []
        for chunks in range(1, max(1, min(CHUNKS, nbytes // p // LEAST_CHUNK)) + 1):
            chain = takes * (1.0 + further * min(1.0, 2 / chunks))
            busy = max(chain, within * (1.0 + 1.0 / chunks)) + min(takes, within) / chunks
            later = max(0.0, 2 * near * (chunks - 1) - busy * (1.0 - 1.0 / chunks) / 2)
            choices.append((chunks, False, busy, latency * (n - 1) + 2 * near + later))
        how = _fitted(start, seconds, choices, LEAST_BETWEEN)
        slower = within * inside.width / inside.moved if inside.moved else 1.0
        over = takes * card / moved
        return Choice(name, how.wait_s, how.share * slower, how.share * over, how.chunks, seconds)
    # What one chunk adds in latencies. More chunks than the start can absorb would make the schedule slower
    # than the library.
    each = max(latency * (n - 1), near * n)
    most = min(
        CHUNKS if what == "all-reduce" else -(-2 * CHUNKS // n),
        nbytes / p / LEAST_CHUNK,
        start / each if each else CHUNKS,  # links may have no latency
    )
    chunks = max(1, int(most))
    # The library's chunks are finer than the schedule's. The time in which those fill and leave the cards is
    # taken off what the cards are charged, that in which the links inside wait for the first, or cards for
    # the last one, off what those are, and the latencies of more messages off the wait.
    longer = max(takes, within)
    fill = 0.0 if what == "all-reduce" else max(0.0, takes / (n - 1) - within / n) / chunks
    inner = min(within, longer - fill)
    edge = within / chunks if what == "all-reduce" else inner / chunks / n
    over = max(LEAST_BETWEEN, min(1.0, (longer - edge) / takes)) * takes * card / moved
    slower = inner * inside.width / inside.moved
    # While the links inside are busy longer than the cards, other chunks' transfers hide latencies of a sum.
    hidden = longer - takes if what == "all-reduce" else 0.0
    # The last message inside a node is one of its n where those take longer than the cards' n - 1.
    steps = each * chunks - hidden
    if phases == 1:
        steps = max(latency * (n - 1) * chunks, near * (n * chunks - 1))
    latencies = max(steps, phases * latency * (n - 1)) + phases * near
    wait = max(0.0, start - latencies)
    return Choice(name, wait, slower, over, chunks, seconds)


class Inside(NamedTuple):
    """The part of a collective among nodes that runs inside one node."""

    width: float  # Bytes/s by which a rank hears from the others of its node
    latency: float  # seconds of that
    moved: float  # bytes that the schedule moves to a rank so
    by: dict[str, float]  # seconds that the library takes for them, by its way between nodes


def _inside(
    machine: Machine,
    what: str,
    node: Sequence[int],
    total: int,
    nbytes: int,
    nodes: int,
    paces: "Mapping[str, Pace]",
) -> Inside:
    """Return the part inside a node: rings go through it, trees and pairs take its fastest way."""
    from umm.machines.library import around

    library = machine.library
    assert library is not None
    q = len(node)
    if q == 1:
        return Inside(1.0, 0.0, 0.0, dict.fromkeys(("ring", "ring-ll", "tree", "tree-ll", "pairwise"), 0.0))
    width, near = hears(machine, tuple(node), total)
    if what == "all-to-all":
        moved = nbytes * (q - 1) / q / nodes
        return Inside(
            width, near, moved, {"pairwise": moved / max(pace.rate(q, width) for pace in paces.values())}
        )

    def ring(part: str) -> float:
        """Return the least seconds of rings, which send no fewer bytes than the schedule moves."""
        ways = library.ways(part).values()
        rates = [pace.rate(q, width) for pace in ways if pace.path == "ring" and pace.joins(q)]
        return around(part, nbytes, q) / min(width, max(rates, default=width))

    moved = around(what, nbytes, q)
    took = min(pace.moved(what, nbytes, q) / pace.rate(q, width) for pace in paces.values())
    # An all-reduce by rings is its halves, which are measured of more ranks where switches add.
    rings = min(ring(what), sum(map(ring, HALVES.get(what, (what,)))))
    # The low-latency protocols pay for their flags inside the node too, where the bandwidth may decide.
    flagged = FLAGGED * moved / width
    by = {"ring": rings, "ring-ll": max(rings, flagged), "tree": took, "tree-ll": max(took, flagged)}
    return Inside(width, near, moved, by)


def gather_bucket(several: Sequence[Gather]) -> None:
    """Every rank gets every piece of several tensors, by one collective with one start."""
    x = several[0]
    choice = _chosen(x, "all-gather", (y.given(rank) for y in several for rank in x.ranks))
    how = choice.manner(x.manner)
    with x.build.collective(choice.wait_s):
        if not choice.between:
            _in_order(
                x,
                choice,
                lambda rank: [y.given(rank) for y in several],
                lambda rank: [y.into(rank, other) for y in several for other in x.ranks],
            )
        for y in several:
            if not choice.between:
                direct.all_gather(replace(y, manner=how))
                continue
            for given, into in choice.cuts(y.given, y.into):
                # Pieces of a collective are of one size: frameworks pad the smaller ones.
                padded = replace(how, padded=max(given(rank).elements for rank in x.ranks))
                hierarchical.all_gather(replace(y, given=given, into=into, manner=padded))


def scatter_bucket(several: Sequence[Scatter]) -> None:
    """Every owner gets its sums of several tensors, by one collective with one start."""
    x = several[0]
    one = x.ranks[0]
    choice = _chosen(x, "reduce-scatter", (y.given(one, owner) for y in several for owner in x.ranks))
    how = choice.manner(x.manner)
    with x.build.collective(choice.wait_s):
        if not choice.between:
            _in_order(
                x,
                choice,
                lambda rank: [y.given(rank, owner) for y in several for owner in x.ranks],
                lambda rank: [y.into(rank) for y in several],
                ADD,
            )
        elif several[1:]:
            # One kernel: it starts when the last product is there.
            pairs = product(several, x.ranks, x.ranks)
            x.build.together(x.ranks, [y.given(rank, owner) for y, rank, owner in pairs])
        for y in several:
            if not choice.between:
                direct.reduce_scatter(replace(y, manner=how))
                continue
            rooms = [] if y.room is None else [y.room]
            for given, into, *room in choice.cuts(y.given, y.into, *rooms):
                kept = room[0] if room else None
                padded = replace(how, padded=max(given(one, owner).elements for owner in x.ranks))
                hierarchical.reduce_scatter(replace(y, given=given, into=into, room=kept, manner=padded))


def _gathered(x: Gather) -> None:
    """Gather on lanes that those who still add need not wait for."""
    direct.all_gather(replace(x, manner=replace(x.manner, lane=f"{x.manner.lane} back")))


_IN_PARTS = in_parts(direct.reduce_scatter, _gathered)


def all_reduce(x: AllReduce, kernel: str | None = None) -> None:
    """Every rank gets the sum, by the library or by a kernel of a framework."""
    x = x if kernel is None else replace(x, manner=replace(x.manner, way=kernel))
    choice = _chosen(x, "all-reduce", [x.given(x.ranks[0])])
    x = replace(x, manner=choice.manner(x.manner))
    with x.build.collective(choice.wait_s):
        if choice.at_once:
            _at_once(x)
            return
        if not choice.between:
            _IN_PARTS(x)
            return
        # A part for each place of a node is summed inside, then between nodes, and gathered inside.
        nodes = hierarchical.Nodes(x.build, x.ranks)
        for pieces in choice.cuts(x.given, x.into):
            given, into = (Parts(each, nodes.place, len(nodes.across)) for each in pieces)
            sums = Own(into)
            for node in nodes.nodes:
                direct.reduce_scatter(Exchange(x.build, node, given, sums, into, x.zeroed, x.manner))
            for group in nodes.across:
                _IN_PARTS(Exchange(x.build, group, sums, sums, manner=x.manner.across))
            for node in nodes.nodes:
                _gathered(Exchange(x.build, node, sums, into, manner=x.manner))


def all_to_all(x: AllToAll) -> None:
    """Every rank gets its piece of every rank."""
    build, ranks, given, into = x.build, x.ranks, x.given, x.into
    choice = _chosen(x, "all-to-all", (given(ranks[0], to) for to in ranks))
    how = choice.manner(x.manner)
    node = {rank: i for i, some in enumerate(domains(build.machine, ranks, build.ranks)) for rank in some}
    with build.collective(choice.wait_s):
        for rank in ranks:
            copied(build, given(rank, rank), into(rank, rank))
        for step in range(1, len(ranks)):
            for place, rank in enumerate(ranks):
                origin = ranks[(place + step) % len(ranks)]
                # One exchange crosses both tiers, and the cards have a charge of their own.
                each = how if node[rank] == node[origin] else replace(how, charge=how.between)
                build.get(given(origin, rank), into(rank, origin), **each.to(step))


def broadcast(x: Broadcast) -> None:
    """Every rank gets the root's piece."""
    source = x.given
    _with_root(x, "broadcast", source, lambda r: [source] * (r == source.rank), lambda r: [x.into(r)])


def reduce(x: Reduce) -> None:
    """One rank gets the sum."""
    into, piece = x.into, x.given(x.ranks[0])
    _with_root(x, "reduce", piece, lambda r: [x.given(r)], lambda r: [into] * (r == into.rank), ADD)


ROOTED_WRITERS: Mapping[str, tuple[Callable[..., None], ...]] = {
    "broadcast": (planes.broadcast, direct.broadcast, hierarchical.broadcast),
    "reduce": (planes.reduce, direct.reduce, hierarchical.reduce),
}
"""Collectives with a root over groups of near devices, in one round, and in two rounds of each node."""


def _with_root(
    x: Exchange[Any, Any],
    what: str,
    piece: Slice,
    reads: Callable[[int], Iterable[Slice]],
    writes: Callable[[int], Iterable[Slice]],
    how: int = WRITE,
) -> None:
    """Perform a collective with a root as the library does; reads, writes and how as of `_in_order`."""
    choice, manner, straight = _rooted(x, what, piece)
    over_groups, in_one, in_two = ROOTED_WRITERS[what]
    asked = replace(x, manner=manner)
    with x.build.collective(choice.wait_s):
        if not choice.between:
            _in_order(x, choice, reads, writes, how)
        if choice.groups:
            over_groups(asked, chunks=choice.chunks, straight=choice.at_once)
        elif straight:
            in_one(asked)
        else:
            in_two(asked, at_once=not choice.between)


def _rooted(x: Exchange[Any, Any], what: str, piece: Slice) -> tuple[Choice, Manner, bool]:
    """Return how the library does a collective with a root, and whether all goes straight from or to it.

    Else its two rounds in a node overlap by chunks.
    """
    choice = _chosen(x, what, [piece])
    how = choice.manner(x.manner)
    if choice.between and x.manner.chunks is None:
        how = replace(how, chunks=choice.chunks)
    if choice.between or x.manner.chunks is not None or choice is NOTHING:
        return choice, how, False
    machine, p = x.build.machine, len(x.ranks)
    where = machine, tuple(x.ranks), x.build.ranks
    width, latency = hears(*where)
    # Of the last chunk a rank hears p - 1 of p shares from others, or one less where the root's come in by
    # the same port; by nearer links where those that bind carry it for several ranks.
    last, least_share = (p - 1) / p, LEAST_ROOTED
    if tiered(machine):
        near, width = width, _all_hear(*where)
        if width < near:
            last, least_share = last * width / near, 1.0
    elif what == "broadcast" and p > 2 and _share_a_link(*where):
        last = (p - 2) / p
    nbytes = piece.elements * x.build.tensors[piece.tensor].itemsize
    if p == 2 or piece.elements < p:
        return choice, how, True
    most = max(1, min(PIPELINED, nbytes // p // LEAST_CHUNK))
    seconds = choice.wait_s + latency, choice.charge * nbytes / width
    rounds = _in_rounds(what, p, seconds, latency, last, most, least_share)
    choice = choice._replace(wait_s=rounds.wait_s)
    how = replace(how, chunks=rounds.chunks, charge=choice.charge * rounds.share)
    return choice, how, rounds.straight


def _share_a_link(machine: Machine, ranks: tuple[int, ...], total: int) -> bool:
    """Return whether a rank hears from two others by one link, such as its port at a switch."""
    first, second, third = (machine.device_of(rank, total) for rank in ranks[:3])
    return not set(machine.route(first, third)).isdisjoint(machine.route(second, third))


def _in_order(
    x: Exchange[Any, Any],
    choice: Choice,
    reads: Callable[[int], Iterable[Slice]],
    writes: Callable[[int], Iterable[Slice]],
    how: int = WRITE,
) -> None:
    """Start a collective on all its ranks, which are one communicator: theirs run one after another."""
    # Source: NCCL user guide, using multiple CUDA streams; Zhao et al. (2023), section 3.3.2.
    if choice.wait_s:
        touched = {r: [*((READ, y) for y in reads(r)), *((how, y) for y in writes(r))] for r in x.ranks}
        filled = {rank: [y for y in accesses if y[1].elements] for rank, accesses in touched.items()}
        x.build.in_order(x.ranks, filled)


def _at_once(x: AllReduce) -> None:
    """Every rank reads all pieces and adds them up, all in the same order so that all get the same bits."""
    # A kernel's additions while it reads take no further time.
    build, ranks = x.build, x.ranks
    pieces = {rank: x.given(rank) for rank in ranks}
    copies = {rank: {rank: pieces[rank]} for rank in ranks}
    for step in range(1, len(ranks)):
        for place, rank in enumerate(ranks):
            origin = ranks[(place + step) % len(ranks)]
            copies[rank][origin] = room_for(build, pieces[origin], rank)
            build.get(pieces[origin], copies[rank][origin], **x.manner.to(step))
    for rank in ranks:
        # Floating-point addition is not associative: rank order, not arrival order, makes all results
        # bit-identical.
        first, *others = (copies[rank][origin] for origin in ranks)
        *between, last = others
        # Partial sums overwrite a received copy. Rank 0's first summand is its own piece, which others still
        # read.
        sums = copies[rank][ranks[1]] if rank == ranks[0] else first
        for piece in between:
            build.map("add", sums, first, piece, lane=KERNEL, seconds=0.0)
            first = sums
        build.map("add", x.into(rank), first, last, lane=KERNEL, seconds=0.0)


def _chosen(x: Exchange[Any, Any], what: str, pieces: Iterable[Slice]) -> Choice:
    """Return how the library does a collective of some pieces."""
    nbytes = sum(each.elements * x.build.tensors[each.tensor].itemsize for each in pieces if each.elements)
    if len(x.ranks) < 2 or not nbytes:
        return NOTHING
    return choose(x.build.machine, what, tuple(x.ranks), x.build.ranks, nbytes, x.manner.way)


def refuses(machine: Machine, ranks: Sequence[int], total: int, kernel: str | None = None) -> str | None:
    """It takes a machine whose file has its library's speeds, and a device for each rank."""
    if machine.library is None:
        return f"the file of {machine.name} names no library of collectives"
    # Measured speeds assume one process per device; with shared devices they do not apply.
    if total > machine.device_count:
        return "ranks share devices, for which libraries of collectives are not made"
    nodes = domains(machine, ranks, total)
    if kernel is not None and kernel not in machine.library.kernels:
        return f"the file of {machine.name} does not say what it takes"
    if len(nodes) > 1 and kernel is not None:
        return "it works within a node"
    if len({len(node) for node in nodes}) > 1:
        return "nodes have unlike numbers of ranks"
    return None


def seconds_alone(
    machine: Machine, what: str, ranks: tuple[int, ...], nbytes: float, way: str | None = None
) -> float:
    """Return the seconds of a collective by itself: the library's, or the closed form where there is none."""
    if machine.library is None:
        together = max(machine.device_count, 1 + max(ranks))  # more than devices share them
        return closed_form(what, nbytes, machine, together, members=ranks)
    return choose(machine, what, ranks, machine.device_count, int(nbytes), way).seconds


def named(machine: Machine, what: str, ranks: Sequence[int], nbytes: int, way: str | None) -> str:
    """Return the library's name and that of its way: ``nccl-ring``."""
    assert machine.library is not None
    if len(ranks) < 2:
        return machine.library.name.lower()
    return (
        f"{machine.library.name}-{choose(machine, what, tuple(ranks), len(ranks), nbytes, way).name}".lower()
    )


BY_LIBRARY = Way(
    LIBRARY,
    "As the machine's library does it: NCCL, RCCL, oneCCL.",
    "NVIDIA NCCL, src/graph/tuning.cc; fitted on what was measured, see the machine's file",
    {
        "all-gather": lambda x: gather_bucket([x]),
        "reduce-scatter": lambda x: scatter_bucket([x]),
        "all-reduce": all_reduce,
        "all-to-all": all_to_all,
        "broadcast": broadcast,
        "reduce": reduce,
    },
    refuses,
    named=named,
    buckets={"all-gather": gather_bucket, "reduce-scatter": scatter_bucket},
)
WAYS = (
    BY_LIBRARY,
    *(
        Way(
            name,
            summary,
            "vLLM, csrc/custom_all_reduce.cuh; PyTorch, CUDASymmetricMemoryOps.cu",
            {"all-reduce": partial(all_reduce, kernel=name)},
            partial(refuses, kernel=name),
            relays=False,
        )
        for name, summary in KERNELS.items()
    ),
)

"""A plan of pieces passed on from rank to rank, and when.

Times are estimated: links and lanes do one thing after another, and of all that could go next goes what
arrives first (the earliest completing edge first). It need not be the best order, but it knows every fabric.
"""

import heapq
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from umm import cost
from umm.arrays import Floats, Ints
from umm.plans.redistribution.pieces import Piece, keep, routes
from umm.schedules.table.buffers import Slices
from umm.schedules.table.details import GET, PUT
from umm.schedules.writer.builder import Builder, How

PARTS = 16  # parts of what the rank that lacks most is to get; relays pass on part by part
MOST_ORDERED = 2000  # pieces with one source and one target each that a plan puts in order
MOST_WORK = 2_000_000  # pairs of ranks that a plan may look at, which takes some seconds
MIN_PAIRS = 16
"""Pairs of ranks that are kept between two looks at a part: of more, NumPy's work is more than its calls."""
MAX_CACHED = 64
_kept: dict[bytes, list["Move"]] = {}
"""The moves of the latest plans, by all that they depend on; a search asks for the same ones many times."""


class Move(NamedTuple):
    """A part on its way from one rank to another."""

    start: float  # estimated seconds
    arrival: float  # the same
    part: int  # its number
    source: int  # rank that has it
    target: int  # rank that lacks it
    put: bool  # whether the source acts; else the target gets it
    lane: int  # number of the lane of the rank that acts


class _Pairs(NamedTuple):
    """Who may give a part to whom; rows are ranks that have it, columns ranks that lack it."""

    sources: Ints  # the ranks that have it
    targets: Ints  # the ranks that lack it
    there: Floats  # when each source has it
    routes: Ints  # the links of each pair
    latency: Floats  # seconds of each pair
    spent: Floats  # seconds of the part on each of the links
    distance: Ints  # ranks from a source to a target


def planning_work(pieces: list[Piece]) -> int:
    """Return the pairs of ranks that a plan of these pieces looks at, of parts as large as pieces."""
    # Where nothing can be passed on, a plan only finds an order of the pieces, and looks at each again and
    # again while others go first.
    moving = [piece for piece in pieces if piece.takers]
    # Without relays the plan costs time and changes only the order.
    if len(moving) > MOST_ORDERED and all(len(x.takers) == len(x.held) == 1 for x in moving):
        return MOST_WORK + 1
    return sum(len(piece.takers) ** 2 * (len(piece.held) + len(piece.takers)) for piece in pieces)


def relays(build: Builder, pieces: list[Piece]) -> None:
    """Write the gets and puts of a plan, in the order in which they start."""
    keep(build, pieces)
    parts = _cut(build, pieces)
    plan = _Plan(build, parts)
    key = plan.digest()
    moves = _kept.get(key)
    if moves is None:
        # Dictionaries keep insertion order, so the first key is the oldest plan.
        while len(_kept) >= MAX_CACHED:
            _kept.pop(next(iter(_kept)), None)
        moves = _kept[key] = sorted(plan.moves())
    lanes = [f"copy_out.{x.lane}" if x.put else f"copy_in.{x.lane}" for x in moves]
    number = {name: i for i, name in enumerate(dict.fromkeys(lanes))}
    sources = [parts[x.part].held.get(x.source) or parts[x.part].wanted[x.source] for x in moves]
    build.transfers(
        np.array([PUT if x.put else GET for x in moves], dtype=np.int64),
        Slices.of(sources),
        Slices.of([parts[x.part].wanted[x.target] for x in moves]),
        [How(lane=name) for name in number],
        np.array([number[name] for name in lanes], dtype=np.int64),
    )


def _cut(build: Builder, pieces: list[Piece]) -> list[Piece]:
    """Return pieces that some rank lacks; in parts where several may give or pass them on."""
    lacking = [0] * build.ranks
    for piece in pieces:
        for rank in piece.takers:
            lacking[rank] += piece.elements
    # Parts pipeline along relays: with one part per piece a relay could pass on nothing until all is there.
    unit = max(1, max(lacking) // PARTS)
    parts = []
    for piece in pieces:
        takers = len(piece.takers)
        several = takers > 1 or len(piece.held) > 1
        parts += piece.cut(-(-piece.elements // unit)) if takers and several else [piece] * bool(takers)
    return parts


class _Plan:
    """Times at which links, lanes and ranks are free."""

    def __init__(self, build: Builder, parts: list[Piece]) -> None:
        machine, self._ranks = build.machine, build.ranks
        self._routes = routes(machine, self._ranks)
        # Routes are padded with one link beyond the last: no latency, no time per byte, and always free.
        self._latency = np.append(machine.link_latency, 0.0)[self._routes].sum(axis=2)
        per_byte = 1 / np.append(machine.link_bandwidth, np.inf)
        size = [
            part.elements * build.tensors[next(iter(part.held.values())).tensor].itemsize for part in parts
        ]
        self._spent = cost.transfer_bytes(machine, np.array(size, dtype=np.int64))[:, None] * per_byte
        self._free = np.zeros(len(per_byte))  # when each link is; the last stands for none
        # Per rank and lane when it is free; `_out_free` and `_in_free` cache the minimum over a rank's lanes.
        self._out, self._in = (np.zeros((self._ranks, build.lanes[x])) for x in ("copy_out", "copy_in"))
        self._out_free, self._in_free = np.zeros(self._ranks), np.zeros(self._ranks)  # the first lane of each
        self._there = np.full((len(parts), self._ranks), np.inf)  # when each rank has each part
        for arrival, part in zip(self._there, parts, strict=True):
            arrival[list(part.held)] = 0.0
        self._lacking = [part.takers for part in parts]
        self._size = size
        # Parts that are at the same ranks, lacked by the same and as large have the same next move, so one
        # look serves all of them.
        self._kinds: dict[tuple[bytes, tuple[int, ...], int], int] = {}
        self._kind = [self._kind_of(part) for part in range(len(parts))]
        self._known: dict[int, _Pairs] = {}  # by kind
        self._looked: dict[int, Move] = {}  # the same, since the last move

    def digest(self) -> bytes:
        """Return a hash of all that the moves depend on."""
        lanes = self._out.shape, self._in.shape
        hashed = blake2b(repr((lanes, self._routes.shape, self._lacking)).encode(), digest_size=16)
        for numbers in (self._routes, self._latency, self._spent, self._there):
            hashed.update(numbers.tobytes())
        return hashed.digest()

    def moves(self) -> list[Move]:
        """Return all moves; the plan is used up."""
        # What is known of a part's next arrival was true when it was looked at and can only be later now.
        queue = [(0.0, part) for part in range(len(self._lacking))]
        result = []
        while queue:
            _, part = heapq.heappop(queue)
            move = self._first(part)
            # Lazy evaluation: queued values are lower bounds, so a fresh arrival no later than the next bound
            # is first.
            while queue and move.arrival > queue[0][0]:
                _, part = heapq.heappushpop(queue, (move.arrival, part))
                move = self._first(part)
            move = move._replace(part=part)
            self._take(move)
            result.append(move)
            if self._lacking[part]:
                heapq.heappush(queue, (move.arrival, part))
        return result

    def _first(self, part: int) -> Move:
        """Return the move of a part, or of one like it, that arrives first."""
        kind = self._kind[part]
        return self._looked.get(kind) or self._looked.setdefault(kind, self._look(part))

    def _look(self, part: int) -> Move:
        """Return the move of a part that arrives first; of equals, to the nearest rank after its source."""
        pairs = self._known.get(self._kind[part]) or self._pairs(part)
        out, into = self._out_free[pairs.sources][:, None], self._in_free[pairs.targets]
        # Either end may act, a put by the source or a get by the target: the one whose lane is free first.
        begun = np.maximum(pairs.there, np.minimum(out, into))
        ready = np.maximum(self._free[pairs.routes], (begun + pairs.latency)[:, :, None])
        arrival = np.maximum.reduce(ready + pairs.spent, axis=2)
        # With a tolerance, or float noise instead of the distance would decide among equal arrivals.
        first = arrival <= np.minimum.reduce(arrival, axis=None) * (1 + 1e-9)
        i, j = divmod(int(np.where(first, pairs.distance, self._ranks).argmin()), len(pairs.targets))
        source, target = int(pairs.sources[i]), int(pairs.targets[j])
        put = bool(out[i, 0] <= into[j])
        lane = int((self._out[source] if put else self._in[target]).argmin())
        return Move(float(begun[i, j]), float(arrival[i, j]), part, source, target, put, lane)

    def _pairs(self, part: int) -> _Pairs:
        arrival = self._there[part]
        sources, targets = np.isfinite(arrival).nonzero()[0], np.array(self._lacking[part])
        pairs = sources[:, None], targets
        routes = self._routes[pairs]
        result = _Pairs(
            sources,
            targets,
            arrival[sources][:, None],
            routes,
            self._latency[pairs],
            self._spent[part][routes],
            (targets - sources[:, None]) % self._ranks,
        )
        if result.distance.size <= MIN_PAIRS:
            self._known[self._kind[part]] = result
        return result

    def _kind_of(self, part: int) -> int:
        """Return the number of all parts that are as large, lie where it does and are lacked by the same."""
        alike = self._there[part].tobytes(), tuple(self._lacking[part]), self._size[part]
        return self._kinds.setdefault(alike, len(self._kinds))

    def _take(self, move: Move) -> None:
        links, arrival = self._routes[move.source, move.target], self._there[move.part]
        begun = move.start + self._latency[move.source, move.target]
        self._free[links] = np.maximum(self._free[links], begun) + self._spent[move.part][links]
        # The padding link has just been charged with the others.
        self._free[-1] = 0.0
        if move.put:
            self._out[move.source, move.lane] = move.arrival
            self._out_free[move.source] = self._out[move.source].min()
        else:
            self._in[move.target, move.lane] = move.arrival
            self._in_free[move.target] = self._in[move.target].min()
        self._known.pop(self._kind[move.part], None)
        # Any move may delay any other by its links, so looks are stale now; pairs change for this kind only.
        self._looked.clear()
        arrival[move.target] = move.arrival
        self._lacking[move.part].remove(move.target)
        self._kind[move.part] = self._kind_of(move.part)

"""A plan of who gets what from whom and when; ranks pass on what they have got.

Times are estimated: links and lanes do one thing after another, and of all that could go next goes what
arrives first (the earliest completing edge first). It need not be the best order, but it knows every fabric.
"""

import heapq
from typing import NamedTuple

import numpy as np

from umm import cost
from umm.algorithms.redistribution.pieces import Piece, keep
from umm.arrays import Ints
from umm.machines import Machine
from umm.schedules.builder import Builder

PARTS = 16
"""Parts of what the rank that lacks most is to get; relays pass on part by part."""
MOST_WORK = 2_000_000
"""Pairs of ranks that a plan may look at, which takes some seconds."""


class Move(NamedTuple):
    """A part on its way from one rank to another.

    Attributes:
        start: Estimated seconds.
        arrival: Likewise.
        part: Its number.
        source: Rank that has it.
        target: Rank that lacks it.
        put: Whether the source acts; else the target gets it.
        lane: Number of the lane of the rank that acts.
    """

    start: float
    arrival: float
    part: int
    source: int
    target: int
    put: bool
    lane: int


def planning_work(pieces: list[Piece]) -> int:
    """Return the pairs of ranks that a plan of these pieces looks at, of parts as large as pieces."""
    return sum(len(piece.takers) ** 2 * (len(piece.held) + len(piece.takers)) for piece in pieces)


def relays(build: Builder, pieces: list[Piece]) -> None:
    """Write the gets and puts of a plan, in the order in which they start."""
    keep(build, pieces)
    parts = _cut(build, pieces)
    for move in sorted(_Plan(build, parts).moves()):
        part = parts[move.part]
        origin = part.held.get(move.source) or part.wanted[move.source]
        if move.put:
            build.put(origin, part.wanted[move.target], lane=f"copy_out.{move.lane}")
        else:
            build.get(origin, part.wanted[move.target], lane=f"copy_in.{move.lane}")


def _cut(build: Builder, pieces: list[Piece]) -> list[Piece]:
    """Return pieces that some rank lacks; in parts where several may give or pass them on."""
    lacking = [0] * build.ranks
    for piece in pieces:
        for rank in piece.takers:
            lacking[rank] += piece.elements
    unit = max(1, max(lacking) // PARTS)
    parts = []
    for piece in pieces:
        takers = len(piece.takers)
        several = takers > 1 or len(piece.held) > 1
        parts += piece.cut(-(-piece.elements // unit)) if takers and several else [piece] * bool(takers)
    return parts


class _Plan:
    """What links, lanes and ranks will be doing when.

    Args:
        build: Its machine and ranks.
        parts: What moves.
    """

    def __init__(self, build: Builder, parts: list[Piece]) -> None:
        machine, self._ranks = build.machine, build.ranks
        self._routes = _routes(machine, self._ranks)
        self._latency = np.append(machine.link_latency, 0.0)[self._routes].sum(axis=2)
        per_byte = 1 / np.append(machine.link_bandwidth, np.inf)
        size = [
            part.elements * build.tensors[next(iter(part.held.values())).tensor].itemsize for part in parts
        ]
        self._spent = cost.transfer_bytes(machine, np.array(size, dtype=np.int64))[:, None] * per_byte
        self._free = np.zeros(len(per_byte))  # when each link is; the last stands for none
        self._out, self._in = (np.zeros((self._ranks, build.lanes[x])) for x in ("copy_out", "copy_in"))
        self._there = [np.full(self._ranks, np.inf) for _ in parts]  # when each rank has a part
        for there, part in zip(self._there, parts, strict=True):
            there[list(part.held)] = 0.0
        self._lacking = [part.takers for part in parts]

    def moves(self) -> list[Move]:
        """Return all moves."""
        # What is known of a part's next arrival was true when it was looked at and can only be later now.
        queue = [(0.0, part) for part in range(len(self._lacking))]
        found = []
        while queue:
            _, part = heapq.heappop(queue)
            move = self._first(part)
            if queue and move.arrival > queue[0][0]:
                heapq.heappush(queue, (move.arrival, part))
                continue
            self._take(move)
            found.append(move)
            if self._lacking[part]:
                heapq.heappush(queue, (move.arrival, part))
        return found

    def _first(self, part: int) -> Move:
        """Return the move of a part that arrives first; of equals, to the nearest rank after its source."""
        there = self._there[part]
        sources, targets = np.isfinite(there).nonzero()[0], np.array(self._lacking[part])
        pairs = sources[:, None], targets
        routes = self._routes[pairs]
        out, into = self._out[sources].min(axis=1)[:, None], self._in[targets].min(axis=1)
        begun = np.maximum(there[sources][:, None], np.minimum(out, into))
        ready = np.maximum(self._free[routes], (begun + self._latency[pairs])[:, :, None])
        arrival = (ready + self._spent[part][routes]).max(axis=2)
        rows, columns = (arrival <= arrival.min() * (1 + 1e-9)).nonzero()
        nearest = ((targets[columns] - sources[rows]) % self._ranks).argmin()
        i, j = rows[nearest], columns[nearest]
        source, target = int(sources[i]), int(targets[j])
        put = bool(out[i, 0] <= into[j])
        lane = int((self._out[source] if put else self._in[target]).argmin())
        return Move(float(begun[i, j]), float(arrival[i, j]), part, source, target, put, lane)

    def _take(self, move: Move) -> None:
        links, there = self._routes[move.source, move.target], self._there[move.part]
        begun = move.start + self._latency[move.source, move.target]
        self._free[links] = np.maximum(self._free[links], begun) + self._spent[move.part][links]
        self._free[-1] = 0.0
        (self._out[move.source] if move.put else self._in[move.target])[move.lane] = move.arrival
        there[move.target] = move.arrival
        self._lacking[move.part].remove(move.target)


def _routes(machine: Machine, ranks: int) -> Ints:
    """Return the links between all pairs of ranks, padded with the number after the last link's."""
    devices = [machine.device_of(rank, ranks) for rank in range(ranks)]
    routes = [machine.route(source, target) for source in devices for target in devices]
    padded = np.full((len(routes), max(map(len, routes))), len(machine.link_names), dtype=np.int64)
    for row, route in zip(padded, routes, strict=True):
        row[: len(route)] = route
    return padded.reshape(ranks, ranks, -1)

"""The transfers of a schedule as a fabric sees them: bytes from pair to pair, over the links of a route."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from umm.arrays import Floats, Ints, offsets_of
from umm.machines.fabric import narrowest
from umm.schedules.schedule import Schedule
from umm.schedules.table.resources import Routes


class Route:
    """What a pair's bytes cross.

    Attributes:
        links: The links in order.
        slowest: The one with the least bandwidth.
        bandwidth: That bandwidth, in bytes/s.
        latency: The latency of all together, in seconds.
    """

    __slots__ = ("bandwidth", "latency", "links", "slowest")

    def __init__(self, links: tuple[int, ...], bandwidth: list[float], latency: float) -> None:
        self.links = links
        self.slowest = narrowest(links, bandwidth)
        self.latency = latency
        self.bandwidth = bandwidth[self.slowest]


MOST_KEPT = 2**16
"""Routes a book keeps where some share a link: those of every pair of 256 ranks. More are found when used."""


MOST_NUMBERED = 2**22
"""Pairs of ranks for which a book keeps a number each."""
UNKNOWN, NO_PAIR = -2, -1


class Columns(NamedTuple):
    """Some routes as arrays, by number.

    Attributes:
        offsets: Where each one's links start in ``links``, and the end.
        links: The links, in the order in which bytes cross them.
        slowest: The one with the least bandwidth.
        latency: Seconds of all together.
    """

    offsets: Ints
    links: Ints
    slowest: Ints
    latency: Floats

    @classmethod
    def of(cls, routes: Iterable[Route]) -> "Columns":
        """Return the columns of some routes."""
        routes = list(routes)
        links = [link for route in routes for link in route.links]
        slowest, latency = [route.slowest for route in routes], [route.latency for route in routes]
        lengths = offsets_of([len(route.links) for route in routes])
        return cls(lengths, np.array(links, np.int64), np.array(slowest, np.int64), np.array(latency))


class RouteBook(dict[int, Route]):
    """The routes of one machine's ranks by pair code (source · ranks + destination), filled when asked for.

    Kept from schedule to schedule of the same fabric, so that a sweep looks each route up once.

    Attributes:
        link_bandwidth: Bytes/s of each link; ``bandwidth`` is the same as an array.
        disjoint: No two routes of the schedules so far share a link.
    """

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self._source, self._ranks = schedule.routes.links, schedule.ranks
        self.bandwidth: Floats = np.ascontiguousarray(schedule.links.bandwidth, dtype=np.float64)
        self.link_bandwidth: list[float] = self.bandwidth.tolist()
        self._latency: list[float] = schedule.links.latency.tolist()
        self._used: set[int] = set()
        self.disjoint = True
        self._numbered: list[Route] = []
        self._columns = Columns.of([])
        self._number: NDArray[np.int32] | None = None
        if self._ranks**2 <= MOST_NUMBERED:
            self._number = np.full(self._ranks**2 + 1, UNKNOWN, dtype=np.int32)
            self._number[NO_PAIR] = NO_PAIR  # the last place

    def columns(self, codes: Ints) -> tuple[NDArray[np.int32], Columns]:
        """Return the number of each pair's route (−1 for none), and the routes that are numbered so."""
        if self._number is None:
            pairs, number = np.unique(codes, return_inverse=True)
            first = int(len(pairs) > 0 and pairs[0] == NO_PAIR)
            self._note(pairs[first:].tolist())
            return (number - first).astype(np.int32), Columns.of(map(self.route, pairs[first:].tolist()))
        numbers = self._number[codes]
        new = codes[numbers == UNKNOWN]
        if len(new):
            pairs = np.unique(new)
            self._note(pairs.tolist())
            self._number[pairs] = len(self._numbered) + np.arange(len(pairs))
            self._numbered += map(self.route, pairs.tolist())
            self._columns = Columns.of(self._numbered)
            numbers = self._number[codes]
        return numbers, self._columns

    def _note(self, codes: list[int]) -> None:
        if self.disjoint:
            self.look_up(codes)

    def look_up(self, codes: list[int]) -> None:
        """Put the routes of some pairs (−1 is none) into the book, until two share a link."""
        for code in codes:
            if code in self or code < 0:
                continue
            links = self.route(code).links
            if not self._used.isdisjoint(links):
                self.disjoint = False
                return
            self._used.update(links)

    def route(self, code: int) -> Route:
        """Return the route of a pair."""
        found = self.get(code)
        if found is None:
            links = self._source(*divmod(code, self._ranks))
            latency = 0.0
            for link in links:
                latency += self._latency[link]
            found = Route(links, self.link_bandwidth, latency)
            if self.disjoint or len(self) < MOST_KEPT:
                self[code] = found
        return found


_BOOKS: WeakKeyDictionary[Routes, RouteBook] = WeakKeyDictionary()


@dataclass(frozen=True)
class Routed:
    """The transfers of a schedule with their routes.

    Attributes:
        codes: Pair code of each action, −1 for one that uses no link.
        nbytes: Bytes each action puts on its route.
        routes: The route of each pair; those in the schedule are in it if all are disjoint.
    """

    codes: list[int]
    nbytes: list[int]
    routes: RouteBook


def routed(schedule: Schedule) -> Routed:
    """Return the transfers of a schedule with their routes."""
    book, codes = book_of(schedule), pair_codes(schedule).tolist()
    if book.disjoint:
        book.look_up(codes)
    return Routed(codes, schedule.nbytes.tolist(), book)


def book_of(schedule: Schedule) -> RouteBook:
    """Return the book of a schedule's fabric."""
    book = _BOOKS.get(schedule.routes)
    if book is None:
        book = _BOOKS[schedule.routes] = RouteBook(schedule)
    return book


def pair_codes(schedule: Schedule) -> Ints:
    """Return the pair code of each action, −1 for one that uses no link."""
    codes = schedule.src * schedule.ranks + schedule.dst
    codes[schedule.src == schedule.dst] = NO_PAIR
    return codes

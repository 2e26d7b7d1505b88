"""The transfers of a schedule as a fabric sees them: bytes from pair to pair, over the links of a route."""

from dataclasses import dataclass
from itertools import pairwise
from threading import Lock
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from umm.arrays import Floats, Ints
from umm.errors import ScheduleError
from umm.schedules.schedule import Schedule
from umm.schedules.table.resources import Routes


class Route(NamedTuple):
    """The links that a pair's bytes cross."""

    links: list[int]  # link numbers in order
    slowest: int  # the link with the least bandwidth
    bandwidth: float  # of the slowest, in bytes/s
    latency: float  # the latency of all together, in seconds


MOST_NUMBERED = 2**22  # pairs of ranks for which a book keeps a number each
UNKNOWN, NO_PAIR = -2, -1
_NO_NUMBERS = np.zeros(0, dtype=np.int32)


class Columns(NamedTuple):
    """Some routes as arrays, by number."""

    offsets: Ints  # where each one's links start in `links`, and the end
    links: Ints  # the links, in the order in which bytes cross them
    slowest: Ints  # the one with the least bandwidth
    latency: Floats  # seconds of all together

    @classmethod
    def of(cls, lengths: Ints, links: Ints, bandwidth: Floats, latency: Floats) -> "Columns":
        """Return the columns of some routes; ScheduleError if one of them has no links.

        Args:
            lengths: How many links each crosses.
            links: The links of all, one route's after another's.
            bandwidth: Bytes/s of every link.
            latency: Seconds of every link.
        """
        if not lengths.all():
            raise ScheduleError("bytes travel between two ranks that nothing joins")
        starts = lengths.cumsum() - lengths
        slowest, took = links[starts], np.zeros(len(lengths))
        for step in range(
            int(lengths.max(initial=0))
        ):  # in the order of the links, as one route is summed up
            still = (lengths > step).nonzero()[0]
            link = links[starts[still] + step]
            took[still] += latency[link]
            narrower = bandwidth[link] < bandwidth[slowest[still]]
            slowest[still[narrower]] = link[narrower]
        return cls(np.append(starts, len(links)), links, slowest, took)

    def then(self, others: "Columns") -> "Columns":
        """Return these routes and then others."""
        offsets = np.concatenate((self.offsets, len(self.links) + others.offsets[1:]))
        return Columns(offsets, *(np.concatenate(pair) for pair in zip(self[1:], others[1:], strict=True)))


class RouteBook:
    """The routes of one machine's ranks by pair code (source · ranks + destination), found when asked for.

    Kept from schedule to schedule of the same fabric, so that a sweep looks each route up once.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._of_many, self._ranks = schedule.routes.of_many, schedule.ranks
        # Bytes/s of each link.
        self.bandwidth: Floats = np.ascontiguousarray(schedule.links.bandwidth, dtype=np.float64)
        self._latency: Floats = np.asarray(schedule.links.latency, dtype=np.float64)
        self._lock = Lock()
        none = np.zeros(0, dtype=np.int64)
        self._columns = Columns.of(none, none, self.bandwidth, self._latency)
        self._number: NDArray[np.int32] | None = None
        if self._ranks**2 <= MOST_NUMBERED:
            self._number = np.full(self._ranks**2 + 1, UNKNOWN, dtype=np.int32)
            self._number[NO_PAIR] = NO_PAIR  # the last place

    @property
    def known(self) -> tuple[NDArray[np.int32], Columns]:
        """The number of each pair's route, negative for one not asked for yet, and the routes so far.

        A thread may number more meanwhile, so a number may have no route here. No numbers for many ranks.
        """
        return _NO_NUMBERS if self._number is None else self._number, self._columns

    def columns(self, codes: Ints) -> tuple[NDArray[np.int32], Columns]:
        """Return the number of each pair's route (−1 for none), and the routes that are numbered so."""
        with self._lock:  # threads that simulate at once share the book
            return self._numbered(codes)

    def _numbered(self, codes: Ints) -> tuple[NDArray[np.int32], Columns]:
        if self._number is None:
            pairs, number = np.unique(codes, return_inverse=True)
            first = int(len(pairs) > 0 and pairs[0] == NO_PAIR)
            return (number - first).astype(np.int32), self._found(pairs[first:])
        numbers = self._number[codes]
        new = codes[numbers == UNKNOWN]
        if len(new):
            is_new = np.zeros(self._ranks**2, dtype=bool)  # sooner than to sort or hash them
            is_new[new] = True
            pairs = is_new.nonzero()[0]
            self._number[pairs] = len(self._columns.slowest) + np.arange(len(pairs))
            self._columns = self._columns.then(self._found(pairs))
            numbers = self._number[codes]
        return numbers, self._columns

    def are_disjoint(self, numbers: NDArray[np.int32], routes: Columns) -> bool:
        """Return whether no two of a schedule's routes share a link, whatever was simulated before."""
        used = np.bincount(numbers + 1, minlength=len(routes.slowest) + 1)[1:].astype(bool)
        links = routes.links[used.repeat(np.diff(routes.offsets))]
        return bool(np.bincount(links).max(initial=0) <= 1)

    def _found(self, pairs: Ints) -> Columns:
        """Return the routes of some pairs."""
        lengths, links = self._of_many(*np.divmod(pairs, self._ranks))
        return Columns.of(lengths, links, self.bandwidth, self._latency)


_BOOKS: WeakKeyDictionary[Routes, RouteBook] = WeakKeyDictionary()


@dataclass(frozen=True)
class Routed:
    """The transfers of a schedule with their routes."""

    number: list[int]  # each action's route, −1 for one that uses no link
    nbytes: list[int]  # bytes each action puts on its route
    routes: list[Route]  # the routes by number
    bandwidth: list[float]  # Bytes/s of every link
    disjoint: bool  # whether no two of the schedule's routes share a link


def routed(schedule: Schedule) -> Routed:
    """Return the transfers of a schedule with their routes."""
    book = book_of(schedule)
    number, routes = book.columns(pair_codes(schedule))
    disjoint = book.are_disjoint(number, routes)
    links, offsets = routes.links.tolist(), routes.offsets.tolist()
    each = zip(
        (links[start:stop] for start, stop in pairwise(offsets)),
        *(x.tolist() for x in (routes.slowest, book.bandwidth[routes.slowest], routes.latency)),
        strict=True,
    )
    bandwidth = book.bandwidth.tolist()
    return Routed(number.tolist(), schedule.nbytes.tolist(), [*map(Route._make, each)], bandwidth, disjoint)


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

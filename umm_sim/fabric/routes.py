"""The transfers of a schedule as a fabric sees them: bytes from pair to pair, over the links of a route."""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

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


class RouteBook(dict[int, Route]):
    """The routes of one machine's ranks by pair code (source · ranks + destination), filled when asked for.

    Kept from schedule to schedule of the same fabric, so that a sweep looks each route up once.

    Attributes:
        link_bandwidth: Bytes/s of each link.
        disjoint: No two routes of the schedules so far share a link.
    """

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self._source, self._ranks = schedule.routes.links, schedule.ranks
        self.link_bandwidth: list[float] = schedule.links.bandwidth.tolist()
        self._latency: list[float] = schedule.links.latency.tolist()
        self._used: set[int] = set()
        self.disjoint = True

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
    book = _BOOKS.get(schedule.routes)
    if book is None:
        book = _BOOKS[schedule.routes] = RouteBook(schedule)
    code = schedule.src * schedule.ranks + schedule.dst
    code[schedule.src == schedule.dst] = -1
    codes = code.tolist()
    if book.disjoint:
        book.look_up(codes)
    return Routed(codes, schedule.nbytes.tolist(), book)

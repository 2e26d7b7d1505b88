"""The transfers of a schedule as a fabric sees them: bytes from pair to pair, over the links of a route."""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from umm.machines.routes import narrowest
from umm.schedules.resources import Routes
from umm.schedules.schedule import Schedule


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


class RouteBook(dict[int, Route]):
    """The routes of one machine's ranks by pair code (source · ranks + destination), filled when asked for.

    Kept from schedule to schedule of the same fabric, so that a sweep looks each route up once.

    Attributes:
        link_bandwidth: Bytes/s of each link.
        disjoint: No two routes looked up so far share a link.
    """

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self._source, self._ranks = schedule.routes.links, schedule.ranks
        self.link_bandwidth = schedule.links.bandwidth.tolist()
        self._latency = schedule.links.latency.tolist()
        self._latencies: dict[float, float] = {}  # of routes: a million may have the same
        self._used: set[int] = set()
        self.disjoint = True

    def look_up(self, codes: set[int]) -> None:
        """Make sure the routes of some pairs are in the book."""
        bandwidth, latency = self.link_bandwidth, self._latency
        for code in codes.difference(self):
            links = self._source(*divmod(code, self._ranks))
            total = 0.0
            for link in links:
                total += latency[link]
            self[code] = Route(links, bandwidth, self._latencies.setdefault(total, total))
            if self.disjoint:
                self.disjoint = self._used.isdisjoint(links)
                self._used.update(links)


_BOOKS: WeakKeyDictionary[Routes, RouteBook] = WeakKeyDictionary()


@dataclass(frozen=True)
class Routed:
    """The transfers of a schedule with their routes.

    Attributes:
        codes: Pair code of each action, −1 for one that uses no link.
        nbytes: Bytes each action puts on its route.
        routes: The route of each pair.
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
    book.look_up({*codes} - {-1})
    return Routed(codes, schedule.nbytes.tolist(), book)

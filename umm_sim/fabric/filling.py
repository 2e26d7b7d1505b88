"""Max-min fair rates by progressive filling, of those flows alone that a change reaches.

Rates are max-min fair exactly when every flow has a bottleneck: a link of its route that is full and on which
no flow is faster. After a change the flows on the changed links are filled anew with all others held fixed;
then those others join them that have lost their bottleneck, or are faster than a new flow on its bottleneck,
until none is left. The condition makes the result exact, and a change seldom gets far: among hundreds of
flows that start and finish at their own times it reaches a handful; in lockstep the changed links are all.
"""

from collections.abc import Iterable
from math import inf

from umm_sim.fabric.routes import Route
from umm_sim.work import Work

SAME = 1e-12  # relative difference below which a rate or a load is the same


class Flow(Work):
    """A transfer whose bytes flow.

    Attributes:
        links: The links of its route.
        bottleneck: The link of its route that keeps it from going faster; negative until that is found.
        filling: Number of the filling that last reached it.
        new_rate: The rate that filling gives it.
    """

    __slots__ = ("bottleneck", "filling", "links", "new_rate")

    def __init__(self, action: int, route: Route, nbytes: float, now: float) -> None:
        super().__init__(action, nbytes, now)
        self.links = route.links
        self.new_rate = 0.0
        self.bottleneck = route.slowest
        self.filling = 0


class Filling:
    """The flows on every link, and their max-min fair rates.

    Attributes:
        on: The flows on each link.
        bandwidth: Bytes/s of each link.
    """

    def __init__(self, bandwidth: list[float]) -> None:
        self.on: list[list[Flow]] = [[] for _ in bandwidth]
        self.bandwidth = bandwidth
        self._free = [0.0] * len(bandwidth)
        self._count = [0] * len(bandwidth)
        self._number = 0

    def fill(self, touched: Iterable[int]) -> list[Flow]:
        """Find the new rates after flows have come or gone on some links.

        Returns:
            The flows that may have a new rate, each with its ``new_rate`` and ``bottleneck``.
        """
        on, bandwidth = self.on, self.bandwidth
        self._number = number = self._number + 1
        flows: list[Flow] = []
        for link in touched:
            for flow in on[link]:
                if flow.filling != number:
                    flow.filling = number
                    flows.append(flow)
        all_free, counts = self._free, self._count
        while flows:
            links, shares, mixed = [], [], []
            for flow in flows:
                flow.bottleneck = -1
                for link in flow.links:
                    if counts[link]:
                        counts[link] += 1
                    else:
                        counts[link] = 1
                        links.append(link)
            for link in links:
                here, free, count = on[link], bandwidth[link], counts[link]
                if count < len(here):
                    mixed.append(link)
                    for flow in here:
                        if flow.filling != number:
                            free -= flow.rate
                all_free[link] = free
                shares.append(free / count)
            self._raise(len(flows), links, shares)
            if not mixed:
                break
            more = self._unsettled(mixed)
            if not more:
                break
            for flow in more:
                flow.filling = number
            flows += more
        return flows

    def _raise(self, left: int, links: list[int], shares: list[float]) -> None:
        """Raise all rates evenly; when a link is full its flows stay where they are; go on with the others.

        Args:
            left: Number of flows to fill, those whose ``bottleneck`` is negative.
            links: All their links; ``_free`` and ``_count`` say what each has for how many of the flows.
            shares: The quotient of the two.
        """
        on, free, count = self.on, self._free, self._count
        while True:
            rate = min(shares)
            for place, share in enumerate(shares):
                if share == rate:
                    link = links[place]
                    for flow in on[link]:
                        if flow.bottleneck < 0:
                            flow.new_rate, flow.bottleneck = rate, link
                            left -= 1
                            for crossed in flow.links:
                                free[crossed] -= rate
                                count[crossed] -= 1
            if not left:
                return
            links = [link for link in links if count[link]]
            shares = [free[link] / count[link] for link in links]

    def _unsettled(self, links: list[int]) -> list[Flow]:
        """Return the flows held fixed that the new rates leave without a bottleneck, or too fast.

        Args:
            links: The links with both filled and fixed flows.
        """
        number, more = self._number, []
        for link in links:
            fixed, load, fastest, slowest = [], 0.0, 0.0, inf
            for flow in self.on[link]:
                if flow.filling != number:
                    fixed.append(flow)
                    load += flow.rate
                    continue
                rate = flow.new_rate
                load += rate
                if rate > fastest:
                    fastest = rate
                if flow.bottleneck == link and rate < slowest:
                    slowest = rate
            slack = load < self.bandwidth[link] * (1 - SAME)
            for flow in fixed:
                rate = flow.rate
                loose = flow.bottleneck == link and (slack or fastest > rate * (1 + SAME))
                if (loose or rate > slowest * (1 + SAME)) and flow not in more:
                    more.append(flow)
        return more

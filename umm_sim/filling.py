"""Max-min fair rates by progressive filling, of those flows alone that a change reaches.

Rates are max-min fair exactly when every flow has a bottleneck: a link of its route that is full and on which
no flow is faster. After a change the flows on the changed links are filled anew with all others held fixed;
then those others join them that have lost their bottleneck, or are faster than a new flow on its bottleneck,
until none is left. The condition makes the result exact, and a change seldom gets far: among hundreds of
flows that start and finish at their own times it reaches a handful; in lockstep the changed links are all.
"""

from collections.abc import Iterable
from math import inf

from umm_sim.work import Work

SAME = 1e-12  # relative difference below which a rate or a load is the same


class Flow(Work):
    """A transfer whose bytes flow.

    Attributes:
        links: The links of its route.
        bottleneck: The link of its route that keeps it from going faster.
        filling: Number of the filling that last reached it.
        new_rate: The rate that filling gives it.
    """

    __slots__ = ("bottleneck", "filling", "links", "new_rate")

    def __init__(self, action: int, links: tuple[int, ...], nbytes: float, now: float) -> None:
        super().__init__(action, nbytes, now)
        self.links = links
        self.new_rate = 0.0
        self.bottleneck = -1
        self.filling = 0


class Filling:
    """The flows on every link, and their max-min fair rates.

    Attributes:
        on: The flows on each link.
    """

    def __init__(self, bandwidth: list[float]) -> None:
        self.on: list[list[Flow]] = [[] for _ in bandwidth]
        self._bandwidth = bandwidth
        self._free = [0.0] * len(bandwidth)
        self._count = [0] * len(bandwidth)
        self._number = 0

    def fill(self, touched: Iterable[int]) -> list[Flow]:
        """Find the new rates after flows have come or gone on some links.

        Returns:
            The flows that may have a new rate, each with its ``new_rate`` and ``bottleneck``.
        """
        on, bandwidth = self.on, self._bandwidth
        self._number = number = self._number + 1
        flows: list[Flow] = []
        for link in touched:
            for flow in on[link]:
                if flow.filling != number:
                    flow.filling = number
                    flows.append(flow)
        while flows:
            links = list({link for flow in flows for link in flow.links})
            shares, mixed = [], []
            for link in links:
                here, free, count = on[link], bandwidth[link], 0
                for flow in here:
                    if flow.filling == number:
                        count += 1
                    else:
                        free -= flow.rate
                if count < len(here):
                    mixed.append(link)
                self._free[link], self._count[link] = free, count
                shares.append(free / count)
            self._raise(flows, links, shares)
            more = self._unsettled(mixed)
            if not more:
                break
            for flow in more:
                flow.filling = number
            flows += more
        return flows

    def _raise(self, flows: list[Flow], links: list[int], shares: list[float]) -> None:
        """Raise all rates evenly; when a link is full its flows stay where they are; go on with the others.

        Args:
            flows: The flows to fill.
            links: All their links; ``_free`` and ``_count`` say what each has for how many of the flows.
            shares: The quotient of the two.
        """
        free, count = self._free, self._count
        while True:
            rate = min(shares)
            full = {link for link, share in zip(links, shares, strict=False) if share == rate}
            others = []
            for flow in flows:
                for link in flow.links:
                    if link in full:
                        flow.new_rate, flow.bottleneck = rate, link
                        break
                else:
                    others.append(flow)
            if not others:
                return
            for flow in flows:
                if flow.bottleneck in full:
                    for link in flow.links:
                        free[link] -= rate
                        count[link] -= 1
            links = [link for link in links if count[link]]
            shares = [free[link] / count[link] for link in links]
            flows = others

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
            slack = load < self._bandwidth[link] * (1 - SAME)
            for flow in fixed:
                rate = flow.rate
                loose = flow.bottleneck == link and (slack or fastest > rate * (1 + SAME))
                if (loose or rate > slowest * (1 + SAME)) and flow not in more:
                    more.append(flow)
        return more

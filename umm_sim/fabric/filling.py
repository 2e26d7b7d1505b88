"""Max-min fair rates by progressive filling, of those flows alone that a change reaches.

Rates are max-min fair exactly when every flow has a bottleneck: a link of its route that is full and on which
no flow is faster. After a change the flows on the changed links are filled anew with all others held fixed;
then those others join them that have lost their bottleneck, or are faster than a new flow on its bottleneck,
until none is left. The condition makes the result exact, and a change seldom gets far: among hundreds of
flows that start and finish at their own times it reaches a handful; in lockstep the changed links are all.
"""

from math import inf

from umm_sim.work import Work

SAME = 1e-12  # relative difference below which a rate or a load is the same


class Link:
    """A link and the flows on it.

    Attributes:
        free: Bytes/s that a filling under way has left.
        share: The quotient of the two when the rates were last raised.
    """

    __slots__ = ("bandwidth", "count", "flows", "free", "share")

    def __init__(self, bandwidth: float) -> None:
        self.bandwidth = bandwidth  # Bytes/s
        self.flows: list[Flow] = []  # the flows on it, in the order they came
        self.free = self.share = 0.0
        self.count = 0  # flows among which it shares them out, 0 when none is under way

    def leave(self, flow: "Flow") -> None:
        """Take a flow off; ``list.remove`` would ask of each whether it is equal."""
        flows = self.flows
        place = 0
        while flows[place] is not flow:
            place += 1
        del flows[place]


class Flow(Work):
    """A transfer whose bytes flow."""

    __slots__ = ("bottleneck", "filling", "links", "new_rate")

    def __init__(self, action: int, links: list[Link], slowest: Link, nbytes: float, now: float) -> None:
        super().__init__(action, nbytes, now)
        self.links = links  # the links of its route
        self.new_rate = 0.0  # the rate that filling gives it
        # The link of its route that keeps it from going faster; None until that is found.
        self.bottleneck: Link | None = slowest
        self.filling = 0  # number of the filling that last reached it


class Filling:
    """Finds the max-min fair rates of flows; remembers how often it has."""

    def __init__(self) -> None:
        self._number = 0

    def fill(self, touched: list[Link]) -> list[Flow]:
        """Find the new rates after flows have come or gone on some links.

        Returns:
            The flows that may have a new rate, each with its ``new_rate`` and ``bottleneck``.
        """
        self._number = number = self._number + 1
        flows: list[Flow] = []
        for link in touched:
            for flow in link.flows:
                if flow.filling != number:
                    flow.filling = number
                    flows.append(flow)
        while flows:
            links: list[Link] = []
            mixed: list[Link] = []
            for flow in flows:
                flow.bottleneck = None
                for link in flow.links:
                    if not link.count:
                        links.append(link)
                    link.count += 1
            for link in links:
                free = link.bandwidth
                if link.count < len(link.flows):
                    mixed.append(link)
                    for flow in link.flows:
                        if flow.filling != number:
                            free -= flow.rate
                link.free = free
                link.share = free / link.count
            _raise(len(flows), links)
            reached = len(flows)
            for flow in self._unsettled(mixed):
                if flow.filling != number:
                    flow.filling = number
                    flows.append(flow)
            if len(flows) == reached:
                break
        return flows

    def _unsettled(self, links: list[Link]) -> list[Flow]:
        """Return the flows held fixed that the new rates leave without a bottleneck, or too fast.

        Args:
            links: The links with both filled and fixed flows.

        Returns:
            The flows; one may come twice.
        """
        number = self._number
        more: list[Flow] = []
        for link in links:
            fixed: list[Flow] = []
            load, fastest, slowest = 0.0, 0.0, inf
            for flow in link.flows:
                if flow.filling != number:
                    fixed.append(flow)
                    load += flow.rate
                    continue
                rate = flow.new_rate
                load += rate
                if rate > fastest:
                    fastest = rate
                if flow.bottleneck is link and rate < slowest:
                    slowest = rate
            slack = load < link.bandwidth * (1 - SAME)
            for flow in fixed:
                rate = flow.rate
                loose = flow.bottleneck is link and (slack or fastest > rate * (1 + SAME))
                if loose or rate > slowest * (1 + SAME):
                    more.append(flow)
        return more


def _raise(left: int, links: list[Link]) -> None:
    """Raise all rates evenly; when a link is full its flows stay where they are; go on with the others."""
    # left: number of flows to fill, those without a bottleneck. links: all their links, each with what it has
    # for how many of the flows.
    while True:
        rate = inf
        for link in links:
            if link.share < rate:
                rate = link.share
        for link in links:
            if link.share == rate:
                for flow in link.flows:
                    if flow.bottleneck is None:
                        flow.new_rate, flow.bottleneck = rate, link
                        left -= 1
                        for crossed in flow.links:
                            crossed.free -= rate
                            crossed.count -= 1
        if not left:
            return
        links = [link for link in links if link.count]
        for link in links:
            link.share = link.free / link.count

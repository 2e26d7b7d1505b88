"""Fabrics in which transfers of different pairs meet on links: max-min fair rates by progressive filling.

A start or a finish can only change the rates of transfers it is joined to through shared links, so only
those are filled anew, once per instant.
"""

from collections.abc import Callable
from math import inf

from umm_sim.clock import Clock
from umm_sim.traffic import Traffic


class _Flow:
    """A transfer whose bytes flow.

    Attributes:
        action: The action it performs.
        links: The links of its route.
        left: Bytes still to move at time ``since``.
        rate: Bytes/s since then.
        full: Links that are full at its rate; the one among its own keeps it from going faster.
        due: When it finishes at this rate.
        alarm: When the alarm that counts goes off; those at other times are out of date.
        filling: Number of the filling that last reached it.
    """

    __slots__ = ("action", "alarm", "due", "filling", "full", "left", "links", "rate", "since")

    def __init__(self, action: int, links: tuple[int, ...], nbytes: float, now: float) -> None:
        self.action = action
        self.links = links
        self.left = nbytes
        self.rate = 0.0
        self.since = now
        self.full: set[int] = set()
        self.filling = 0
        self.due = self.alarm = inf


class SharedLinks:
    """Max-min fair sharing (progressive filling) on every link of every route."""

    def __init__(self, clock: Clock, traffic: Traffic, finish: Callable[[int], None]) -> None:
        self._clock = clock
        self._finish = finish
        self._codes, self._nbytes, self._routes = traffic.codes, traffic.nbytes, traffic.routes
        self._bandwidth = traffic.routes.link_bandwidth
        self._on: list[list[_Flow]] = [[] for _ in self._bandwidth]
        self._reached = [0] * len(self._on)  # number of the filling that last reached each link
        self._filling = 0
        self._free = [0.0] * len(self._on)
        self._count = [0] * len(self._on)
        self._touched: list[int] = []
        self._joining, self._arriving, self._sharing = self._join, self._arrive, self._share

    def start(self, action: int) -> None:
        """Let a transfer begin: first its latency, then its bytes."""
        clock = self._clock
        clock.at(clock._now + self._routes[self._codes[action]].latency, self._joining, action)

    def _join(self, action: int) -> None:
        links = self._routes[self._codes[action]].links
        flow = _Flow(action, links, self._nbytes[action], self._clock._now)
        for link in links:
            self._on[link].append(flow)
        if not self._touched:
            self._clock.settle(self._sharing)
        self._touched.extend(links)

    def _arrive(self, flow: _Flow) -> None:
        now = self._clock._now
        if flow.alarm != now:
            return
        if flow.due > now:
            flow.alarm = flow.due
            self._clock.at(flow.due, self._arriving, flow)
            return
        flow.alarm = inf
        for link in flow.links:
            on = self._on[link]
            on.remove(flow)
            # Those left on a link can only go faster if it is what holds one of them back.
            for other in on:
                if link in other.full:
                    if not self._touched:
                        self._clock.settle(self._sharing)
                    self._touched.append(link)
                    break
        self._finish(flow.action)

    def _share(self) -> None:
        """Fill the links the instant's changes can reach: raise all rates until a link is full, and so on."""
        flows, links, shares = self._reachable()
        free, count = self._free, self._count
        first = True
        while flows:
            rate = min(shares)
            full = {link for link, share in zip(links, shares) if share == rate}  # noqa: B905 - hot
            others = self._flow_on(flows, rate, full)
            if not others:
                return
            if first:
                first = False
                for link in links:
                    free[link], count[link] = self._bandwidth[link], len(self._on[link])
            for flow in flows:
                if flow.full is full:
                    for link in flow.links:
                        free[link] -= rate
                        count[link] -= 1
            links = [link for link in links if count[link]]
            shares = [free[link] / count[link] for link in links]
            flows = others

    def _flow_on(self, flows: list[_Flow], rate: float, full: set[int]) -> list[_Flow]:
        """Let the flows that cross full links go on at a rate; return the others."""
        now, others = self._clock._now, []
        for flow in flows:
            if full.isdisjoint(flow.links):
                others.append(flow)
                continue
            flow.full = full
            if flow.rate != rate:
                left = flow.left = flow.left - flow.rate * (now - flow.since)
                flow.rate, flow.since = rate, now
                due = flow.due = now + left / rate if left > 0.0 else now
                # An alarm that comes too early sets itself anew, so a flow slowed down keeps its own.
                if due < flow.alarm:
                    flow.alarm = due
                    self._clock.at(due, self._arriving, flow)
        return others

    def _reachable(self) -> tuple[list[_Flow], list[int], list[float]]:
        """Return the flows joined through links to the touched ones, their links, and an even share of each."""
        on, reached, bandwidth = self._on, self._reached, self._bandwidth
        self._filling = number = self._filling + 1
        flows: list[_Flow] = []
        links, shares = [], []
        waiting, self._touched = self._touched, []
        for link in waiting:  # grows while it is walked
            if reached[link] == number:
                continue
            reached[link] = number
            here = on[link]
            if here:
                links.append(link)
                shares.append(bandwidth[link] / len(here))
                for flow in here:
                    if flow.filling != number:
                        flow.filling = number
                        flows.append(flow)
                        waiting += flow.links
        return flows, links, shares

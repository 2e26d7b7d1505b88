"""Fabrics in which transfers of different pairs meet on links: max-min fair rates by progressive filling.

A start or a finish can only change the rates of transfers it is joined to through shared links, so only
those are filled anew, once per instant.
"""

from collections.abc import Callable, Iterable

from umm_sim.clock import Alarm, Clock
from umm_sim.fabric import Traffic


class _Flow:
    """A transfer whose bytes flow.

    Attributes:
        action: The action it performs.
        links: The links of its route.
        left: Bytes still to move at time ``since``.
        rate: Bytes/s since then.
        alarm: The alarm that counts; earlier ones are out of date.
    """

    __slots__ = ("action", "alarm", "left", "links", "rate", "since")

    def __init__(self, action: int, links: tuple[int, ...], nbytes: float, now: float) -> None:
        self.action = action
        self.links = links
        self.left = nbytes
        self.rate = 0.0
        self.since = now
        self.alarm: Alarm | None = None


class SharedLinks:
    """Max-min fair sharing (progressive filling) on every link of every route."""

    def __init__(self, clock: Clock, traffic: Traffic, finish: Callable[[int], None]) -> None:
        self._clock = clock
        self._finish = finish
        self._traffic = traffic
        self._on: list[set[_Flow]] = [set() for _ in traffic.link_bandwidth]
        self._touched: set[int] = set()
        self._joining, self._ringing = [self._join], [self._ring]

    def start(self, action: int) -> None:
        """Let a transfer begin: first its latency, then its bytes."""
        alarm = Alarm(self._joining, action)
        latency = self._traffic.route_latency[self._traffic.route[action]]
        if latency > 0:
            self._clock.ring(alarm, latency)
        else:
            self._join(alarm)

    def _join(self, alarm: Alarm) -> None:
        action: int = alarm.key
        links = self._traffic.links[self._traffic.route[action]]
        flow = _Flow(action, links, self._traffic.nbytes[action], self._clock._now)
        for link in links:
            self._on[link].add(flow)
        self._touch(links)

    def _ring(self, alarm: Alarm) -> None:
        flow: _Flow = alarm.key
        if flow.alarm is not alarm:
            return
        for link in flow.links:
            self._on[link].discard(flow)
        self._touch(flow.links)
        self._finish(flow.action)

    def _touch(self, links: tuple[int, ...]) -> None:
        if not self._touched:
            self._clock.settle(self._share)
        self._touched.update(links)

    def _share(self) -> None:
        """Give the transfers that the instant's changes can reach their new rates."""
        now = self._clock._now
        reached, self._touched = self._reached(self._touched), set()
        for flow, rate in filling(reached, self._traffic.link_bandwidth):
            if rate == flow.rate:
                continue
            flow.left -= flow.rate * (now - flow.since)
            flow.rate, flow.since = rate, now
            flow.alarm = alarm = Alarm(self._ringing, flow)
            self._clock.ring(alarm, max(flow.left, 0.0) / rate)

    def _reached(self, links: set[int]) -> dict[int, set[_Flow]]:
        """Return the links, with their flows, that are joined to some links through flows."""
        reached = {}
        waiting = list(links)
        while waiting:
            link = waiting.pop()
            if link in reached or not self._on[link]:
                continue
            reached[link] = self._on[link]
            for flow in self._on[link]:
                waiting.extend(flow.links)
        return reached


def filling(on: dict[int, set[_Flow]], bandwidth: list[float]) -> Iterable[tuple[_Flow, float]]:
    """Yield each flow's max-min fair rate: fill all evenly, freeze those on the fullest link, go on.

    Args:
        on: The flows on each link that has any.
        bandwidth: Bytes/s of every link.
    """
    free = {link: bandwidth[link] for link in on}
    count = {link: len(flows) for link, flows in on.items()}
    frozen: set[_Flow] = set()
    while count:
        bottleneck = min(count, key=lambda link: free[link] / count[link])
        rate = free[bottleneck] / count[bottleneck]
        for flow in on[bottleneck]:
            if flow in frozen:
                continue
            frozen.add(flow)
            yield flow, rate
            for link in flow.links:
                if link != bottleneck:
                    free[link] -= rate
                    count[link] -= 1
                    if count[link] == 0:
                        del count[link]
        del count[bottleneck]

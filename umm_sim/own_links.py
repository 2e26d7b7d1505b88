"""Fabrics in which no two pairs of ranks share a link: every pair is a server that splits its bandwidth.

All transfers of a pair progress at the same rate, so one number per pair, the bytes each has moved since
the pair was last idle, tells who finishes when; transfers elsewhere change nothing.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import cast

from umm_sim.clock import Alarm, Clock
from umm_sim.fabric import Traffic


class _Pair:
    """The transfers between two ranks.

    Attributes:
        bandwidth: Bytes/s of the slowest link of the route.
        latency: Seconds before a transfer's bytes flow.
        waiting: Transfers in their latency: when they join, bytes, action. All have the same latency, so
            they join in the order they start.
        flowing: Transfers that flow: the moved bytes at which each finishes, action; a heap.
        moved: Bytes each flowing transfer has moved since the pair was idle, at time ``since``.
        alarm: The alarm that counts; earlier ones are out of date.
    """

    __slots__ = ("alarm", "bandwidth", "flowing", "latency", "moved", "since", "waiting")

    def __init__(self, bandwidth: float, latency: float) -> None:
        self.bandwidth = bandwidth
        self.latency = latency
        self.waiting: deque[tuple[float, int, int]] = deque()
        self.flowing: list[tuple[float, int]] = []
        self.moved = 0.0
        self.since = 0.0
        self.alarm: Alarm | None = None


class OwnLinks:
    """Max-min fair sharing where every pair has its own links."""

    def __init__(self, clock: Clock, traffic: Traffic, finish: Callable[[int], None]) -> None:
        self._clock = clock
        self._finish = finish
        self._nbytes = traffic.nbytes
        pairs = [
            _Pair(bandwidth, latency)
            for bandwidth, latency in zip(traffic.route_bandwidth, traffic.route_latency, strict=True)
        ]
        self._pair_of = [pairs[route] if route >= 0 else None for route in traffic.route]
        self._callbacks = [self._ring]

    def start(self, action: int) -> None:
        """Let a transfer begin: first its latency, then its bytes."""
        pair = cast(_Pair, self._pair_of[action])
        pair.waiting.append((self._clock._now + pair.latency, self._nbytes[action], action))
        self._plan(pair)

    def _plan(self, pair: _Pair) -> None:
        """Set the alarm for the pair's next finish, letting those join that come before it."""
        flowing, waiting = pair.flowing, pair.waiting
        while True:
            if flowing:
                done = pair.since + (flowing[0][0] - pair.moved) * len(flowing) / pair.bandwidth
                if not waiting or waiting[0][0] > done:
                    break
                join, nbytes, action = waiting.popleft()
                pair.moved += (join - pair.since) * pair.bandwidth / len(flowing)
            else:
                join, nbytes, action = waiting.popleft()
                pair.moved = 0.0
            pair.since = join
            heappush(flowing, (pair.moved + nbytes, action))
        pair.alarm = alarm = Alarm(self._callbacks, pair)
        self._clock.ring(alarm, done - self._clock._now)

    def _ring(self, alarm: Alarm) -> None:
        pair: _Pair = alarm.key
        if pair.alarm is not alarm:
            return
        flowing = pair.flowing
        moved, action = heappop(flowing)
        pair.moved, pair.since = moved, self._clock._now
        finished = [action]
        while flowing and flowing[0][0] == moved:
            finished.append(heappop(flowing)[1])
        if flowing or pair.waiting:
            self._plan(pair)
        for action in finished:
            self._finish(action)

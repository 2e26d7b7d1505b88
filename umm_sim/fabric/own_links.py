"""Fabrics in which no two pairs of ranks share a link: every pair is a server that splits its bandwidth.

All transfers of a pair progress at the same rate, so one number per pair, the bytes each has moved since
the pair was last idle, decides who finishes when; transfers elsewhere change nothing. Mostly a transfer has
its pair to itself from start to finish, and then its time is known at once.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from math import inf

from umm_sim.clock import Call, Clock
from umm_sim.fabric.routes import Route, Routed

IDLE, SHARED = -1, -2


class _Pair:
    """The transfers between two ranks.

    Attributes:
        joined: When its bytes flow.
        moved: Bytes each flowing transfer has moved since the pair was shared, at time ``since``.
    """

    __slots__ = ("alone", "bandwidth", "due", "flowing", "joined", "latency", "moved", "since", "waiting")

    def __init__(self, route: Route) -> None:
        self.bandwidth = route.bandwidth
        self.latency = route.latency
        self.alone = IDLE  # the only transfer under way, or IDLE, or SHARED
        self.joined = self.moved = self.since = 0.0
        # Transfers in their latency: when they join, bytes, action. All have the same latency, so they join
        # in the order they start.
        self.waiting: deque[tuple[float, float, int]] = deque()
        # Transfers that flow: the moved bytes at which each finishes, action; a heap.
        self.flowing: list[tuple[float, int]] = []
        self.due = inf  # when the next of them finishes; alarms at other times are out of date


class OwnLinks:
    """Max-min fair sharing where every pair has its own links."""

    def __init__(self, clock: Clock, transfers: Routed, finish: Callable[[int], None]) -> None:
        self._clock = clock
        self._finish = finish
        self._nbytes = transfers.nbytes
        self._number = transfers.number
        self._pairs = [_Pair(route) for route in transfers.routes]
        self._arrive_alone: Call = self._alone
        self._arrive_shared: Call = self._shared

    def start(self, action: int) -> None:
        """Let a transfer begin: first its latency, then its bytes."""
        clock = self._clock
        pair = self._pairs[self._number[action]]
        if pair.alone == IDLE:
            pair.alone = action
            pair.joined = clock._now + pair.latency
            clock.at(pair.joined + self._nbytes[action] / pair.bandwidth, self._arrive_alone, action)
            return
        if pair.alone >= 0:
            pair.waiting.append((pair.joined, self._nbytes[pair.alone], pair.alone))
            pair.alone = SHARED
        pair.waiting.append((clock._now + pair.latency, self._nbytes[action], action))
        self._plan(pair)

    def _alone(self, action: int) -> None:
        pair = self._pairs[self._number[action]]
        if pair.alone == action:  # else another transfer has joined it, and its time has changed
            pair.alone = IDLE
            self._finish(action)

    def _plan(self, pair: _Pair) -> None:
        """Set the alarm for a shared pair's next finish, letting those join that come before it."""
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
        if done != pair.due:
            pair.due = done
            self._clock.at(done, self._arrive_shared, pair)

    def _shared(self, pair: _Pair) -> None:
        if pair.due != self._clock._now:
            return
        pair.due = inf
        flowing = pair.flowing
        moved, action = heappop(flowing)
        pair.moved, pair.since = moved, self._clock._now
        finished = [action]
        while flowing and flowing[0][0] == moved:
            finished.append(heappop(flowing)[1])
        if flowing or pair.waiting:
            self._plan(pair)
        else:
            pair.alone = IDLE
        for action in finished:
            self._finish(action)

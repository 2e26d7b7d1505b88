"""The best steps of a rank: every selection of steps, with what cannot be better left out.

A state is what has been fetched, multiplied and accumulated. States are expanded best first, by the cost so
far plus a bound of what must still come that is never too large, so when no state is below the best steps
found, those are an optimum.

- Bound: communication and computation each take at least their sum; before the first gemm something must be
  fetched, and after the last fetch the gemms that read it must run; a step's limits leave no room for more
  than so much overlap.
- Dominance: a step to which something could be added for nothing is not tried.
- Memo: of the ways to one state only the cheapest is kept.
- Symmetry: states are equal up to names: what is ready and what waits to be sent counts by its costs alone,
  and so does each connected part of the graph that is not fetched yet (:mod:`umm.schedules.parts`).
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, count, zip_longest
from math import inf
from time import monotonic
from typing import NamedTuple

from umm.schedules.graph import Graph
from umm.schedules.greedy import cost_greedy, greedy
from umm.schedules.ir import Limits, Step, Steps, total
from umm.schedules.orders import improved
from umm.schedules.parts import Part, bits, selections

TRIES = 100_000
"""Steps a search tries before it settles for the best it has: a second or a few."""
SOON = 3_000
"""Steps it tries before it looks for better steps to begin with."""
TOLERANCE = 1e-12
"""Costs that differ by less, relative to the total, are equal."""


@dataclass(frozen=True)
class Solution:
    """The best steps that were found.

    Attributes:
        steps: The steps.
        cost_s: Their cost in seconds.
        bound_s: No steps cost less.
        states: States that were expanded.
    """

    steps: Steps
    cost_s: float
    bound_s: float
    states: int

    @property
    def gap(self) -> float:
        """Share of the cost that might be saved at most; 0 if the steps are proven to be an optimum."""
        return 1.0 - self.bound_s / self.cost_s if self.cost_s > self.bound_s else 0.0


def exhaustive(
    graph: Graph, limits: Limits, *, tries: int | None = TRIES, seconds: float | None = None
) -> Solution:
    """Return the cheapest steps of a rank.

    Args:
        graph: The rank's computation graph.
        limits: What a step may hold.
        tries: Steps to try at most; None for as many as it takes. Unlike a time, it gives the same steps
            everywhere.
        seconds: Time limit; finding good steps to begin with may add a second.

    Returns:
        An optimum, or after a limit the best found so far and the bound that is proven by then.

    Source: Brock & Golin (2025), section 4.3.
    """
    return _Search(graph, limits).run(tries, seconds)


class _State(NamedTuple):
    """Masks of what is fetched, multiplied and sent, and the seconds of computation and sends left."""

    fetched: int
    done: int
    sent: int
    compute: float
    sends: float


Masks = tuple[int, int, int]
"""A step: its gets, its gemms, its accumulates."""


class _Search:
    """One rank's search; sets are bit masks of the remote data or of the component multiplies."""

    def __init__(self, graph: Graph, limits: Limits) -> None:
        self.graph, self.limits = graph, limits
        self.remote = [x for x in range(len(graph.data)) if x not in graph.own]
        place = {x: i for i, x in enumerate(self.remote)}
        self.fetch = [graph.data[x].seconds for x in self.remote]
        self.readers = [list(graph.readers[x]) for x in self.remote]
        self.needs = [sum(1 << place[x] for x in needs) for needs in graph.needs]
        self.gemm = graph.seconds
        self.send = [update.seconds if update else 0.0 for update in graph.updates]
        self.sending = sum(1 << i for i, update in enumerate(graph.updates) if update)
        self.all_data, self.all_gemms = (1 << len(self.remote)) - 1, (1 << len(graph)) - 1
        self.parts: dict[int, Part] = {}
        self.names: dict[tuple[object, ...], int] = {}
        self.kinds = [(c, self.sending >> i & 1, self.send[i]) for i, c in enumerate(self.gemm)]
        self.ends: dict[int, tuple[float, float]] = {}
        self.talk_sums: dict[tuple[int, int], tuple[list[float], list[float]]] = {}
        self.work_sums: dict[int, tuple[list[float], list[float]]] = {}
        self.start = _State(0, 0, 0, sum(self.gemm), sum(self.send))
        self.steps = greedy(graph, limits)
        self.cost = total(graph, self.steps)
        self.tolerance = TOLERANCE * self.cost

    def run(self, tries: int | None, seconds: float | None) -> Solution:
        until = inf if seconds is None else monotonic() + seconds
        limit = inf if tries is None else tries
        for start in (self.steps, cost_greedy(self.graph, self.limits)):
            self._offer(start)
        solution = self._best_first(min(SOON, limit), until)
        if solution.gap and limit > SOON:
            for method in (greedy, cost_greedy):
                self._offer(improved(self.graph, self.limits, method(self.graph, self.limits)))
            self._offer(improved(self.graph, self.limits, self.steps, seed=1))
            solution = self._best_first(limit, until)
        return solution

    def _best_first(self, tries: float, until: float) -> Solution:
        """Expand states in order of their bounds until none can lead to something better, or a limit."""
        self.tries_left = tries
        best: dict[tuple[object, ...], float] = {}
        trail: list[tuple[int, Masks]] = []
        ticket = count()
        waiting = [(self._least(0.0, self.start), 0.0, next(ticket), 0.0, self.start, -1)]
        expanded = 0
        while waiting and waiting[0][0] < self.cost - self.tolerance:
            if self.tries_left <= 0 or monotonic() > until:
                break
            _, _, _, spent, state, came = heapq.heappop(waiting)
            if spent > best.get(self._key(state), spent):
                continue
            expanded += 1
            for bound, after, then, step in self._reach(state, spent):
                if bound >= self.cost - self.tolerance:
                    continue
                key = self._key(then)
                if after >= best.get(key, inf):
                    continue
                best[key] = after
                trail.append((came, step))
                if self._complete(then):
                    self.cost, self.steps = after, self._traced(trail, len(trail) - 1)
                else:
                    entry = (bound, bound - after, next(ticket), after, then, len(trail) - 1)
                    heapq.heappush(waiting, entry)
        bound = min(waiting[0][0], self.cost) if waiting else self.cost
        if bound >= self.cost - self.tolerance:
            bound = self.cost
        return Solution(self.steps, self.cost, bound, expanded)

    def _offer(self, steps: Steps) -> None:
        """Keep steps if they cost less than the best so far."""
        cost = total(self.graph, steps)
        if cost < self.cost:
            self.steps, self.cost = steps, cost

    def _complete(self, state: _State) -> bool:
        return state.done == self.all_gemms and state.sent == self.sending

    def _traced(self, trail: list[tuple[int, Masks]], end: int) -> Steps:
        steps = []
        while end >= 0:
            end, (data, gemms, sent) = trail[end]
            gets = tuple(self.remote[i] for i in bits(data))
            steps.append(Step(gets, tuple(bits(gemms)), tuple(bits(sent))))
        return tuple(reversed(steps))

    def _part(self, fetched: int) -> Part:
        part = self.parts.get(fetched)
        if part is None:
            part = self.parts[fetched] = Part(self, fetched)
        return part

    def _key(self, state: _State) -> tuple[object, ...]:
        """Return what two states have in common that can be finished at the same cost."""
        part = self._part(state.fetched)
        ready = sorted([self.kinds[i] for i in bits(part.ready & ~state.done)])
        pending = sorted([self.send[i] for i in bits(state.done & self.sending & ~state.sent)])
        return (part.key, tuple(ready), tuple(pending))

    def _least(self, spent: float, state: _State) -> float:
        """Return the cost so far and a bound of what must still come."""
        part, done = self._part(state.fetched), state.done
        least = max(part.fetch + state.sends, state.compute, part.fetch + part.tail)
        if done != self.all_gemms:
            ends = self.ends.get(done)
            if ends is None:
                undone = list(bits(self.all_gemms & ~done))
                ends = min([self.send[i] for i in undone]), min([self.gemm[i] for i in undone])
                self.ends[done] = ends
            if part.ready & ~done:
                least = max(least, state.compute + ends[0])
            else:
                least = max(least, part.head + state.compute + ends[0])
            if not part.fetch and not done & self.sending & ~state.sent:
                least = max(least, state.sends + ends[1])
            everything = part.fetch + state.sends + state.compute
            if everything - least > 0.0:
                least = max(least, everything - self._hidden(state))
        return spent + least

    def _hidden(self, state: _State) -> float:
        """Return the most seconds that can still overlap, by the limits alone.

        The K longest transfers are in at most K steps, which hold no more than the K times ``gemms`` longest
        gemms; the other transfers hide no more than themselves. The same holds with the sides exchanged.
        """
        talk = self.talk_sums.get((state.fetched, state.sent))
        if talk is None:
            left = [self.fetch[x] for x in bits(self.all_data & ~state.fetched)]
            left += [self.send[i] for i in bits(self.sending & ~state.sent)]
            talk = self.talk_sums[state.fetched, state.sent] = _sums(left, self.limits.communications)
        work = self.work_sums.get(state.done)
        if work is None:
            left = [self.gemm[i] for i in bits(self.all_gemms & ~state.done)]
            work = self.work_sums[state.done] = _sums(left, self.limits.gemms)
        return min(_crossing(talk[0], work[1]), _crossing(work[0], talk[1]))

    def _reach(self, state: _State, spent: float) -> Iterator[tuple[float, float, _State, Masks]]:
        """Yield bound, cost so far and step of the states one step away that may lead to a better end."""
        fetched, done, sent, compute, sends = state
        part = self._part(fetched)
        cost = self.cost - self.tolerance
        idle_communication = cost - spent - part.fetch - sends
        idle_compute = cost - spent - compute
        talks = self._talks(part, done & self.sending & ~sent)
        for work, gemms, _, more_work in self._works(part.ready & ~done):
            least, most = work - idle_communication, work + idle_compute
            self.tries_left -= len(talks)
            for talk, data, sending, more_talk, sent_seconds in talks:
                if talk < least or talk > most or not (gemms or data or sending):
                    continue
                took = work if work > talk else talk
                if talk + more_talk <= took or work + more_work <= took:
                    continue
                then = _State(
                    fetched | data, done | gemms, sent | sending, compute - work, sends - sent_seconds
                )
                bound = self._least(spent + took, then)
                if bound < cost:
                    yield bound, spent + took, then, (data, gemms, sending)

    def _works(self, ready: int) -> list[tuple[float, int, int, float]]:
        """Return the sets of ready gemms a step may hold; of equal ones the first stand for all."""
        kinds: dict[tuple[float, int, float], list[int]] = {}
        for i in bits(ready):
            kinds.setdefault(self.kinds[i], []).append(1 << i)
        groups = [(kind[0], same) for kind, same in kinds.items()]
        return [(s, m, 0, more) for s, m, more in selections(groups, self.limits.gemms)]

    def _talks(self, part: Part, pending: int) -> list[tuple[float, int, int, float, float]]:
        """Return the sets of gets and accumulates a step may hold."""
        kinds: dict[float, list[int]] = {}
        for i in bits(pending):
            kinds.setdefault(self.send[i], []).append(1 << i)
        room = self.limits.communications
        sends = [(*chosen, chosen[1].bit_count()) for chosen in selections(list(kinds.items()), room)]
        found = []
        for gets, data, more_gets in part.gets(room):
            left = room - data.bit_count()
            for seconds, sent, more, number in sends:
                if number <= left:
                    least_more = inf if number == left else min(more, more_gets)
                    found.append((gets + seconds, data, sent, least_more, seconds))
        return found


def _sums(seconds: list[float], limit: int) -> tuple[list[float], list[float]]:
    """Return for K = 0, 1, …: all but the K longest, and the K times ``limit`` longest, in seconds."""
    seconds.sort(reverse=True)
    longest = [0.0, *accumulate(seconds)]
    return [longest[-1] - x for x in longest], longest[::limit] + longest[-1:]


def _crossing(falling: list[float], rising: list[float]) -> float:
    """Return the least sum of two lists of one place, the second going on with its last value."""
    least = inf
    for x, y in zip_longest(falling, rising, fillvalue=-1.0):
        if x < 0.0:
            break
        least = min(least, x + (y if y >= 0.0 else rising[-1]))
    return least

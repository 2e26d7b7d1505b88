"""The best steps of a rank: every selection of steps, without those that cannot be better.

A state is the sets fetched, multiplied and accumulated so far. States are expanded best first, by the cost so
far plus a lower bound on the cost to come. So when no state is below the best steps found, those are an
optimum.

- Bound: communication and computation take their sums, and overlap only so far
  (:mod:`umm.policies.parts`).
- Dominance: a step to which something could be added for nothing is not tried.
- Memo: of the ways to one state only the cheapest is kept.
- Symmetry: states are equal up to names: what is ready and what waits to be sent counts by its costs alone.
  So does each connected part of the graph that is not fetched yet (the module ``parts``).
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import count
from math import inf
from time import monotonic

from umm.policies.annealing import improved
from umm.policies.graph import Graph
from umm.policies.greedy import cost_greedy, greedy
from umm.policies.ir import Limits, Step, Steps, total
from umm.policies.parts import Masked, Part, State, StepBound, bits, selections

TRIES = 100_000  # steps a search tries before it settles for the best it has: a second or a few
SOON = 3_000  # steps it tries before it looks for better steps to begin with
TOLERANCE = 1e-12  # costs that differ by less, relative to the total, are equal


@dataclass(frozen=True)
class Solution:
    """The best steps that were found."""

    steps: Steps
    cost_s: float  # their cost in seconds
    bound_s: float  # no steps cost less
    states: int  # states that were expanded

    @property
    def gap(self) -> float:
        """Share of the cost that might be saved at most; 0 if the steps are proven to be an optimum."""
        return 1.0 - self.bound_s / self.cost_s if self.cost_s > self.bound_s else 0.0


def exhaustive(
    graph: Graph, limits: Limits, *, tries: int | None = TRIES, seconds: float | None = None
) -> Solution:
    """Return the cheapest steps of a rank, or after a limit the best so far and the bound proven so far.

    Args:
        tries: Steps to try at most; None for as many as it takes. Unlike a time, it gives the same steps
            everywhere.
        seconds: Time limit; finding good steps to begin with may add a second.

    Source: Brock & Golin (2025), section 4.3.
    """
    return _Search(graph, limits).run(tries, seconds)


Masks = tuple[int, int, int]  # a step: its gets, its gemms, its accumulates


class _Search:
    """One rank's search."""

    def __init__(self, graph: Graph, limits: Limits) -> None:
        self.graph, self.limits, self.masked = graph, limits, Masked(graph)
        self.parts = cache(partial(Part, self.masked))  # by the data fetched
        self.least = StepBound(self.masked, self.parts, limits).least
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
        waiting = [(self.least(0.0, self.masked.start), 0.0, next(ticket), 0.0, self.masked.start, -1)]
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
                if then.done == self.masked.all_gemms and then.sent == self.masked.sending:
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

    def _traced(self, trail: list[tuple[int, Masks]], end: int) -> Steps:
        steps = []
        while end >= 0:
            end, (data, gemms, sent) = trail[end]
            gets = tuple(self.masked.remote[i] for i in bits(data))
            steps.append(Step(gets, tuple(bits(gemms)), tuple(bits(sent))))
        return tuple(reversed(steps))

    def _key(self, state: State) -> tuple[object, ...]:
        """Return a key that is equal for states that can be finished at the same cost."""
        part = self.parts(state.fetched)
        ready = sorted([self.masked.kinds[i] for i in bits(part.ready & ~state.done)])
        pending = sorted([self.masked.send[i] for i in bits(state.done & self.masked.sending & ~state.sent)])
        return (part.key, tuple(ready), tuple(pending))

    def _reach(self, state: State, spent: float) -> Iterator[tuple[float, float, State, Masks]]:
        """Yield bound, cost so far and step of the states one step away that may lead to a better end."""
        fetched, done, sent, compute, sends = state
        part = self.parts(fetched)
        cost = self.cost - self.tolerance
        idle_communication = cost - spent - part.fetch - sends
        idle_compute = cost - spent - compute
        talks = self._talks(part, done & self.masked.sending & ~sent)
        for work, gemms, more_work in self._works(part.ready & ~done):
            least, most = work - idle_communication, work + idle_compute
            self.tries_left -= len(talks)
            for talk, data, sending, more_talk, sent_seconds in talks:
                if talk < least or talk > most or not (gemms or data or sending):
                    continue
                took = work if work > talk else talk
                if talk + more_talk <= took or work + more_work <= took:
                    continue
                then = State(
                    fetched | data, done | gemms, sent | sending, compute - work, sends - sent_seconds
                )
                bound = self.least(spent + took, then)
                if bound < cost:
                    yield bound, spent + took, then, (data, gemms, sending)

    def _works(self, ready: int) -> Iterator[tuple[float, int, float]]:
        """Return the sets of ready gemms a step may hold; of equal ones the first stand for all."""
        kinds: dict[tuple[float, int, float], list[int]] = {}
        for i in bits(ready):
            kinds.setdefault(self.masked.kinds[i], []).append(1 << i)
        groups = [(kind[0], same) for kind, same in kinds.items()]
        return selections(groups, self.limits.gemms)

    def _talks(self, part: Part, pending: int) -> list[tuple[float, int, int, float, float]]:
        """Return the sets of gets and accumulates a step may hold."""
        kinds: dict[float, list[int]] = {}
        for i in bits(pending):
            kinds.setdefault(self.masked.send[i], []).append(1 << i)
        room = self.limits.communications
        sends = [(*chosen, chosen[1].bit_count()) for chosen in selections(list(kinds.items()), room)]
        sets = []
        for gets, data, more_gets in part.gets(room):
            left = room - data.bit_count()
            for seconds, sent, more, number in sends:
                if number <= left:
                    least_more = inf if number == left else min(more, more_gets)
                    sets.append((gets + seconds, data, sent, least_more, seconds))
        return sets

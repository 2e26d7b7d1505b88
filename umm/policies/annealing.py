"""Steps from orders: the best way to cut an order of gemms and an order of communication into steps.

Every list of steps is such a cut of some orders, so good steps can be looked for by moving single gemms, gets
and accumulates to other places. What comes out is good, not proven; the exhaustive search proves.
"""

from dataclasses import dataclass
from itertools import accumulate
from math import inf
from random import Random

import numpy as np

from umm.arrays import Floats
from umm.policies.graph import Graph
from umm.policies.ir import Limits, Step, Steps, total

MOVES = 800  # moves that are tried
WARMTH = 0.003
"""How much worse, as a share of the least cost, a move may make it in the beginning, on average."""


@dataclass(frozen=True)
class Orders:
    """An order of component multiplies and one of communications."""

    gemms: tuple[int, ...]  # the component multiplies
    communications: tuple[int, ...]  # the get of datum x as x, the accumulate of multiply i as −1 − i

    @classmethod
    def of(cls, steps: Steps) -> "Orders":
        """Return the orders in which steps do things."""
        gemms = tuple(i for step in steps for i in step.gemms)
        return cls(gemms, tuple(x for s in steps for x in (*(-1 - i for i in s.accumulates), *s.gets)))


def improved(graph: Graph, limits: Limits, steps: Steps, seed: int = 0) -> Steps:
    """Return steps that cost no more, by simulated annealing."""
    cutter = _Cutter(graph, limits)
    best = now = Orders.of(steps)
    least = cost = cutter.cost(best)
    random = Random(seed)
    for move in range(MOVES):
        moved = _moved(now, random)
        other = cutter.cost(moved)
        worse_allowed = WARMTH * least * (1 - move / MOVES) * random.expovariate(1.0)
        if other <= cost + worse_allowed:
            now, cost = moved, other
            if cost < least:
                best, least = now, cost
    annealed = _steps(best, cutter.path(best))
    return annealed if total(graph, annealed) < total(graph, steps) else steps


def _moved(orders: Orders, random: Random) -> Orders:
    """Return orders with a few neighbours moved elsewhere, or a gemm and its accumulate."""
    gemms, communications = list(orders.gemms), list(orders.communications)
    if random.random() < 0.5:
        chosen = (
            gemms if random.random() * (len(gemms) + len(communications)) < len(gemms) else communications
        )
        size = min(random.choice((1, 1, 2, 4)), len(chosen))
        first = random.randrange(len(chosen) - size + 1)
        block = chosen[first : first + size]
        del chosen[first : first + size]
        at = random.randrange(len(chosen) + 1)
        chosen[at:at] = block
    else:
        i = gemms.pop(random.randrange(len(gemms)))
        at = random.randrange(len(gemms) + 1)
        gemms.insert(at, i)
        if -1 - i in communications:
            communications.remove(-1 - i)
            done = set(gemms[:at])
            after = max((j + 1 for j, x in enumerate(communications) if -1 - x in done), default=0)
            communications.insert(random.randint(after, len(communications)), -1 - i)
    return Orders(tuple(gemms), tuple(communications))


Path = list[tuple[int, int]]  # gemms and communications done after each step, the last step first


class _Cutter:
    """Cuts orders into steps at the least cost, by dynamic programming over how much of each is done."""

    def __init__(self, graph: Graph, limits: Limits) -> None:
        self.graph, self.limits = graph, limits

    def cost(self, orders: Orders) -> float:
        """Return the least cost; infinity if the orders wait for each other."""
        return float(self._table(orders).best[-1, -1])

    def path(self, orders: Orders) -> Path:
        """Return a cut of the least cost, which must be finite."""
        table = self._table(orders)
        i, j = len(orders.gemms), len(orders.communications)
        path = []
        while (i, j) != (0, 0):
            path.append((i, j))
            before = (
                (table.cost(i, j, a, b), a, b)
                for a in range(min(self.limits.gemms, i) + 1)
                for b in range(min(self.limits.communications, j) + 1)
                if a or b
            )
            _, a, b = min(before)
            i, j = i - a, j - b
        return path

    def _table(self, orders: Orders) -> "_Table":
        graph, gemms, talks = self.graph, len(orders.gemms), len(orders.communications)
        place = {x: j for j, x in enumerate(orders.communications)}
        order_of = {i: j for j, i in enumerate(orders.gemms)}
        waits = [max((place[x] + 1 for x in graph.needs[i]), default=0) for i in orders.gemms]
        reach, j = [], 0
        for i in range(gemms + 1):
            while j < talks and (
                orders.communications[j] >= 0 or order_of[-1 - orders.communications[j]] < i
            ):
                j += 1
            reach.append(j)
        work = [0.0, *accumulate(graph.seconds[i] for i in orders.gemms)]
        talk = np.array([0.0, *accumulate(self._seconds(x) for x in orders.communications)])
        table = _Table(np.full((gemms + 1, talks + 1), inf), waits, reach, work, talk)
        table.fill(self.limits)
        return table

    def _seconds(self, communication: int) -> float:
        if communication >= 0:
            return self.graph.data[communication].seconds
        update = self.graph.updates[-1 - communication]
        return update.seconds if update else 0.0


@dataclass(frozen=True, eq=False)
class _Table:
    """The least cost of every number of gemms and communications done."""

    best: Floats  # the cost, shape (gemms + 1, communications + 1)
    waits: list[int]  # for each gemm how many communications must be done before
    reach: list[int]  # for each number of gemms done how many communications can be
    work: list[float]  # seconds of the first gemms, by their number
    talk: Floats  # seconds of the first communications, by their number

    def fill(self, limits: Limits) -> None:
        """Compute the costs row by row."""
        best, talk, ahead = self.best, self.talk, limits.communications
        spans = [talk[b:] - talk[: len(talk) - b] for b in range(min(ahead, len(talk) - 1) + 1)]
        best[0, 0] = 0.0
        for i in range(len(best)):
            row = best[i]
            wait = 0
            for a in range(1, min(limits.gemms, i) + 1):
                wait = max(wait, self.waits[i - a])
                before, work, stop = best[i - a], self.work[i] - self.work[i - a], self.reach[i - a] + 1
                for b, span in enumerate(spans):
                    if stop - b <= wait:
                        break
                    cost = np.maximum(span[wait : stop - b], work)
                    cost += before[wait : stop - b]
                    np.minimum(row[wait + b : stop], cost, out=row[wait + b : stop])
            # Steps without gemms cost what they add.
            stop = self.reach[i] + 1
            row[:stop] = np.minimum.accumulate(row[:stop] - talk[:stop]) + talk[:stop]

    def cost(self, i: int, j: int, a: int, b: int) -> float:
        """Return the cost of getting to (i, j) by a step with a gemms and b communications."""
        allowed = j <= self.reach[i - a] and all(self.waits[x] <= j - b for x in range(i - a, i))
        seconds = max(self.work[i] - self.work[i - a], float(self.talk[j] - self.talk[j - b]))
        return float(self.best[i - a, j - b]) + seconds if allowed else inf


def _steps(orders: Orders, path: Path) -> Steps:
    steps = []
    i = j = 0
    for to_i, to_j in reversed(path):
        talks = orders.communications[j:to_j]
        gets, sends = tuple(x for x in talks if x >= 0), tuple(-1 - x for x in talks if x < 0)
        steps.append(Step(gets, orders.gemms[i:to_i], sends))
        i, j = to_i, to_j
    return tuple(steps)

"""A lower bound of what the steps of a rank still cost, whatever they are."""

from itertools import accumulate, zip_longest
from math import inf

from umm.algorithms.universal.steps.ir import Limits
from umm.algorithms.universal.steps.masks import Masked, State, bits
from umm.algorithms.universal.steps.parts import Parts


class StepBound:
    """The bound for each state of a search, never too large.

    Communication and computation each take at least their sum; before the first gemm something must be
    fetched, and after the last fetch the gemms that read it must run; before the last accumulate there is a
    gemm; a step's limits leave no room for more than so much overlap.
    """

    def __init__(self, graph: Masked, parts: Parts, limits: Limits) -> None:
        self.graph, self.parts, self.limits = graph, parts, limits
        self.ends: dict[int, tuple[float, float]] = {}
        self.talk_sums: dict[tuple[int, int], tuple[list[float], list[float]]] = {}
        self.work_sums: dict[int, tuple[list[float], list[float]]] = {}

    def least(self, spent: float, state: State) -> float:
        """Return the cost so far and the least that must still come, in seconds."""
        graph, part, done = self.graph, self.parts[state.fetched], state.done
        least = max(part.fetch + state.sends, state.compute, part.fetch + part.tail)
        if done != graph.all_gemms:
            ends = self.ends.get(done)
            if ends is None:
                undone = list(bits(graph.all_gemms & ~done))
                ends = min([graph.send[i] for i in undone]), min([graph.gemm[i] for i in undone])
                self.ends[done] = ends
            if part.ready & ~done:
                least = max(least, state.compute + ends[0])
            else:
                least = max(least, part.head + state.compute + ends[0])
            if not part.fetch and not done & graph.sending & ~state.sent:
                least = max(least, state.sends + ends[1])
            everything = part.fetch + state.sends + state.compute
            if everything - least > 0.0:
                least = max(least, everything - self._hidden(state))
        return spent + least

    def _hidden(self, state: State) -> float:
        """Return the most seconds that can still overlap, by the limits alone.

        The K longest transfers are in at most K steps, which hold no more than the K times ``gemms`` longest
        gemms; the other transfers hide no more than themselves. The same holds with the sides exchanged.
        """
        graph = self.graph
        talk = self.talk_sums.get((state.fetched, state.sent))
        if talk is None:
            left = [graph.fetch[x] for x in bits(graph.all_data & ~state.fetched)]
            left += [graph.send[i] for i in bits(graph.sending & ~state.sent)]
            talk = self.talk_sums[state.fetched, state.sent] = _sums(left, self.limits.communications)
        work = self.work_sums.get(state.done)
        if work is None:
            left = [graph.gemm[i] for i in bits(graph.all_gemms & ~state.done)]
            work = self.work_sums[state.done] = _sums(left, self.limits.gemms)
        return min(_crossing(talk[0], work[1]), _crossing(work[0], talk[1]))


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

"""One table of what people use: the universal algorithm in place, after redistribution, and every other."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import overload

from umm.algorithms.registry import algorithms
from umm.chains import Outline
from umm.errors import LayoutError, ProblemError
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.problem import Problem
from umm.space.budget import DEVICE, rank_limit
from umm.space.peers.chains import ChainPeers, chain_peers
from umm.space.peers.choose import MARGIN, chosen, in_words, least_seconds
from umm.space.peers.contender import Contender, Row, Timed, row_of, timed
from umm.space.peers.crossover import REACH, Stretch, stretches
from umm.space.peers.table import Peers
from umm.space.peers.tuned import tuned
from umm.space.peers.universal import anywhere, in_place, redistributed
from umm.space.search.search import Told

RIVAL = 1.25
"""Asked about at all m is who takes at most so many times the best at this one or at an end."""
Memory = str | int | None


@overload
def peers(
    problem: Problem,
    machine: Machine | str,
    *,
    memory: Memory = DEVICE,
    crossover: bool = True,
    progress: Told | None = None,
) -> Peers: ...


@overload
def peers(
    problem: Outline,
    machine: Machine | str,
    *,
    memory: Memory = DEVICE,
    crossover: bool = True,
    progress: Told | None = None,
) -> ChainPeers: ...


def peers(
    problem: Problem | Outline,
    machine: Machine | str,
    *,
    memory: Memory = DEVICE,
    crossover: bool = True,
    progress: Told | None = None,
) -> Peers | ChainPeers:
    """Return the universal algorithm beside everything else that multiplies, and a verdict.

    Every row starts with A and B where the problem has them (``given``, else its layouts) and ends with C
    where it has that; what an algorithm wants elsewhere it brings first. In place and after redistribution
    the universal algorithm has the options that a search proves best, every other the best of its own.

    Args:
        problem: What is multiplied, and where its operands lie; without ranks it gets the machine's number.
            Of a chain the best layouts are beside those of training systems, each assumed at the start; other
            numbers of tokens are :func:`umm.space.peers.chains.chain_peers`'.
        machine: A machine, its name, or the path of its topology file.
        memory: Budget a rank, as in ``umm.search``. A row above it is in the table but never the one to take.
        crossover: Whether other m are simulated for where the verdict changes.
        progress: Called with what is looked at, how much of it has been, and how much there is; 0 if that is
            not known.

    Raises:
        InputError: for a machine, a layout or a budget that there is none of.
    """
    if not isinstance(machine, Machine):
        machine = find_machine(machine)
    told = progress or (lambda what, done, of: None)
    if isinstance(problem, Outline):
        return chain_peers(problem, machine, memory=memory, told=told)
    problem = problem.on(machine.default_ranks)
    machine.check_ranks(problem.p)
    a, b, c = map(str, problem.outside)
    start = replace(problem, a=a, b=b, c=c, given="")
    limit = rank_limit(memory, start, machine)
    others, refused = [], {}
    for name, algorithm in sorted(algorithms().items()):
        found = tuned(algorithm, start, machine, limit, partial(told, name))
        if found.contender is not None:
            others.append(found.contender)
        elif found.refusal is not None:
            refused[name] = found.refusal
    rows = _rows(start, machine, memory, others, told)
    free = anywhere(start, machine, memory, partial(told, "any layouts"))
    around = _Around(start, machine, memory, told).stretches(rows) if crossover else []
    return Peers(start, machine, limit, rows, refused, free, around)


def _rows(start: Problem, machine: Machine, memory: Memory, others: list[Contender], told: Told) -> list[Row]:
    """Return a row for each contender: in place, then those that fit, the fastest first."""
    limit = rank_limit(memory, start, machine)
    stay = row_of(in_place(start, machine, memory, partial(told, "in place")), start, machine, limit)
    moved = redistributed(start, machine, memory, partial(told, "redistribute"))
    rows = [row_of(x, start, machine, limit) for x in (*([moved] if moved else []), *others)]
    return [stay, *sorted(rows, key=lambda row: (not row.fits, row.makespan_s))]


class _Around:
    """What to do at other m than the one at hand.

    Args:
        start: The problem, and where its operands lie.
        machine: Where it runs.
        memory: Budget a rank.
        told: As :func:`peers` takes it.
    """

    def __init__(self, start: Problem, machine: Machine, memory: Memory, told: Told) -> None:
        self.start, self.machine, self.memory, self.told = start, machine, memory, told
        self.others: list[Contender] = []
        self._stays: dict[int, Timed] = {}

    def stretches(self, rows: list[Row]) -> list[Stretch]:
        """Return what to do at all m around; nothing if the layouts are for this one alone.

        Layouts to bring operands to are searched for at the ends; in between those are tried, and those of
        the m at hand.

        Args:
            rows: Those of the m at hand.
        """
        m, here = self.start.m, [row.timed for row in rows]
        self.preferred = in_words(chosen(here, self.start), self.start)
        self.others = [x.contender for x in here[1:]]
        try:
            for end in (max(1, m // REACH), m * REACH):
                start = replace(self.start, m=end)
                moved = self._moved(start) if self._is_open(end) else None
                self.others += [moved] if moved else []
            looked_at = [here, *(self._timed(x) for x in (max(1, m // REACH), m * REACH))]
            self.others = [x for x in self.others if any(_rivals(x, timed) for timed in looked_at)]
            return stretches(m, self.way_at)
        except LayoutError:
            return []

    def way_at(self, m: int) -> str:
        """Return what to do at an m, in words."""
        timed, start = self._timed(m), replace(self.start, m=m)
        return in_words(chosen(timed, start, self.preferred), start)

    def _timed(self, m: int) -> list[Timed]:
        """Return how long contenders take at an m; in place alone if nothing could be worth more."""
        found = [self._in_place(m)]
        if not self._is_open(m):
            return found
        start = replace(self.start, m=m)
        for number, x in enumerate(self.others):
            self.told(f"m = {m}", number, len(self.others))
            with suppress(ProblemError):  # what it needs may depend on m
                found.append(timed(x, start, self.machine, rank_limit(self.memory, start, self.machine)))
        return found

    def _in_place(self, m: int) -> Timed:
        if m not in self._stays:
            start = replace(self.start, m=m)
            stay = in_place(start, self.machine, self.memory, partial(self.told, f"m = {m}, in place"))
            self._stays[m] = timed(stay, start, self.machine, rank_limit(self.memory, start, self.machine))
        return self._stays[m]

    def _moved(self, start: Problem) -> Contender | None:
        told = partial(self.told, f"m = {start.m}, redistribute")
        return redistributed(start, self.machine, self.memory, told)

    def _is_open(self, m: int) -> bool:
        """Whether something could be worth more than staying in place."""
        stay, least = self._in_place(m), least_seconds(replace(self.start, m=m), self.machine)
        return not stay.fits or stay.makespan_s * (1 - MARGIN) > least


def _rivals(contender: Contender, timed: Sequence[Timed]) -> bool:
    """Whether a contender is nearly as fast as the fastest of some."""
    best = min(x.makespan_s for x in timed)
    return any(x.contender is contender and x.makespan_s <= RIVAL * best for x in timed)

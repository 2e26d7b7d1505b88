"""One table of what people use: the universal algorithm, and everything else that computes the same."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from umm.algorithms.scheduling import algorithms
from umm.errors import EndedEarlyError, InfeasibleError, InputError
from umm.executor import executor
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.program import Outline
from umm.program.problem import Problem
from umm.program.systems import CHANGES
from umm.space.budget import DEVICE, limit_of
from umm.space.choice import Choice
from umm.space.peers.contender import BEST, MARGIN, Contender, Row, Scheme, ranged, row_of, systems, timed
from umm.space.peers.multiplies import anywhere, in_place, redistributed, tuned
from umm.space.peers.table import Around, Peers, Stretch, stretches
from umm.space.search.search import Report, search
from umm.space.space import Space

Memory = str | int | None


def peers(
    program: Problem | Outline,
    machine: Machine | str,
    *,
    ranks: int | None = None,
    memory: Memory = DEVICE,
    crossover: bool = True,
    at: Callable[[int], Outline] | None = None,
    tokens: int = 0,
    progress: Report | None = None,
) -> Peers:
    """Return the universal algorithm beside everything else that computes a program, and a verdict.

    Of one multiply every row starts with A and B where the problem has them (``given``, else its layouts) and
    ends with C where it has that; what an algorithm wants elsewhere it moves first. In place and after
    redistribution the universal algorithm has the options that a search proves best, every other the best of
    its own. Of several statements the best layouts are beside those of training systems; inputs start as a
    row wants them, unless the program says where they are given and each row moves them.

    Args:
        program: A problem, or a chain with the layouts of a preset.
        machine: A machine, its name, or the path of its machine file.
        ranks: Ranks that share the work where the program does not say; the machine's own number if None.
        memory: Budget a rank, as in ``umm.search``. A row above it is in the table but never the one to take.
        crossover: Whether other sizes are simulated for where the verdict changes: other m of a multiply.
        at: Returns a chain with another number of tokens, for where the verdict changes; None leaves that
            out.
        tokens: Those of the chain, if ``at`` is given.
        progress: Called with what is looked at, how much of it has been, and how much there is; 0 if that is
            not known.

    Raises:
        InputError: for an unknown machine, layout or budget.
        EndedEarlyError: on Ctrl-C, with the rows so far.
    """
    if not isinstance(machine, Machine):
        machine = find_machine(machine)
    report = progress or (lambda what, done, of: None)
    count = machine.default_ranks if ranks is None else ranks
    if program.kind == "outline":
        at = at if crossover else None
        return _compared(OfProgram(program, count, machine, memory, report, at, tokens), machine, report)
    return _compared(OfMultiply(program.on(count), machine, memory, report, crossover), machine, report)


def _compared(field: "Field", machine: Machine, report: Report) -> Peers:
    """Return a row for each contender, and what follows from them."""
    limit = field.limit(field.start)
    rows: list[Row] = []
    found = Peers(field.start, field.ranks, machine, limit, rows, field.refused, False, None, [], field.size)
    try:
        for contender in field.contenders(limit):
            report(contender.name, 0, 0)
            rows.append(row_of(contender, field.start, machine, limit))
        rows[1:] = sorted(rows[1:], key=_fastest_first)
        report("ranges", 0, 0)
        rows[:] = ranged(rows, field.start, machine)
        found = replace(found, proven=field.proven)
        found = replace(found, anywhere=field.free())
        return replace(found, stretches=field.stretches(rows))
    except KeyboardInterrupt:
        if not rows:
            raise
        rows[1:] = sorted(rows[1:], key=_fastest_first)
        raise EndedEarlyError(replace(found, complete=False)) from None


def _fastest_first(row: Row) -> tuple[bool, float]:
    return not row.fits, row.makespan_s


MOST_ACTIONS = 75_000
"""Actions that the search of several statements simulates: half of its own, for the table is waited for."""


class Field(Protocol):
    """Who competes in a program.

    Attributes:
        start: The program, and where its operands start.
        ranks: Ranks that share the work.
        size: What of it varies for where the verdict changes: ``m`` or ``tokens``.
        refused: By name, why an algorithm cannot compute it, and what would work.
        proven: Whether the first contender is proven to be the best of its space.
    """

    start: Any
    ranks: int
    size: str
    refused: dict[str, str]
    proven: bool

    def limit(self, start: Any) -> int:
        """Return the bytes a rank may hold of the program at some size."""

    def contenders(self, limit: int) -> Iterable[Contender]:
        """Yield who competes, first who asks for no change."""

    def free(self) -> Choice | None:
        """Return the best point with free choice of layouts, if the first contender is not that."""

    def stretches(self, rows: list[Row]) -> list[Stretch]:
        """Return what to do at all sizes around, given the rows of this one."""


class OfMultiply:
    """Who competes in one multiply: the universal algorithm in place, redistributed, and every other one."""

    size = "m"
    proven = True

    def __init__(
        self, problem: Problem, machine: Machine, memory: Memory, report: Report, crossover: bool
    ) -> None:
        machine.check_ranks(problem.p)
        a, b, c = map(str, problem.outside)
        self.start, self.ranks = replace(problem, a=a, b=b, c=c, given=""), problem.p
        self.refused: dict[str, str] = {}
        self._machine, self._memory, self._report, self._crossover = machine, memory, report, crossover

    def limit(self, start: Problem) -> int:
        """Return the bytes a rank may hold of the problem."""
        return limit_of(self._memory, start.unreplicated_share, self._machine, start.p)

    def contenders(self, limit: int) -> Iterator[Contender]:
        """Yield the universal algorithm in place, redistributed, then every other with its best options."""
        where = self.start, self._machine, self._memory
        yield in_place(*where, partial(self._report, "in place"))
        moved = redistributed(*where, partial(self._report, "redistribute"))
        if moved is not None:
            yield moved
        for name, algorithm in sorted(algorithms().items()):
            found = tuned(algorithm, self.start, self._machine, limit, partial(self._report, name))
            if found.contender is not None:
                yield found.contender
            elif found.refusal is not None:
                self.refused[name] = found.refusal

    def free(self) -> Choice | None:
        """Return the best point with free choice of layouts."""
        return anywhere(self.start, self._machine, self._memory, partial(self._report, "any layouts"))

    def stretches(self, rows: list[Row]) -> list[Stretch]:
        """Return what to do at all m around."""
        if not self._crossover:
            return []
        return Around(self.start, self._machine, self._memory, self._report).stretches(rows)


class OfProgram:
    """Who competes in several statements: the best layouts of the space, and those of training systems."""

    size = "tokens"

    def __init__(
        self,
        outline: Outline,
        ranks: int,
        machine: Machine,
        memory: Memory,
        report: Report,
        at: Callable[[int], Outline] | None,
        tokens: int,
    ) -> None:
        machine.check_ranks(ranks)
        self.start, self.ranks, self.proven = outline, ranks, False
        self.refused: dict[str, str] = {}
        self._machine, self._memory, self._report = machine, memory, report
        self._at, self._tokens = at, tokens
        self._schemes: list[Scheme] = []

    def limit(self, start: Outline) -> int:
        """Return the bytes a rank may hold of the program."""
        share = sum(x.nbytes_of_rank.sum() for x in start.laid_out({}, self.ranks).tensors) / self.ranks
        return limit_of(self._memory, float(share), self._machine, self.ranks)

    def contenders(self, limit: int) -> Sequence[Contender]:
        """Return the best layouts, if any fit, then those of training systems."""
        self._schemes = list(systems(self.start, self.ranks, self._machine))
        try:
            self._report("the best layouts", 0, 0)
            best = partial(self._report, "the best layouts")
            space = Space(chain=self.start, ranks=self.ranks)
            found = search(space, self._machine, memory=self._memory, top=1, progress=best, most=MOST_ACTIONS)
            first = found.top[0]
            scheme = Scheme(BEST, first.layouts, self.ranks, stationary=first.stationary)
            outside = self._faster(first.makespan_s, found.named, limit)
            self._schemes.insert(0, scheme if outside is None else replace(outside, name=BEST))
            self.proven = found.proven and outside is None
        except InfeasibleError:
            pass
        return self._schemes

    def _faster(self, best_s: float, named: Mapping[str, float | None], limit: int) -> Scheme | None:
        """Return the fastest scheme that is faster than the best of the space; None if none is.

        Args:
            best_s: Makespan of the best of the space.
            named: Makespans that the search has found out by name.
            limit: Bytes that a rank may hold.
        """
        found = None
        for scheme in self._schemes:
            if scheme.name in CHANGES:
                continue
            seconds = named.get(scheme.name)
            if scheme.name not in named:
                made = timed(scheme, self.start, self._machine, limit)
                seconds = made.makespan_s if made.fits else None
            if seconds is not None and seconds < best_s * (1 - 1e-9):
                best_s, found = seconds, scheme
        return found

    def free(self) -> None:
        """Return nothing: the first contender has free choice."""

    def stretches(self, rows: list[Row]) -> list[Stretch]:
        """Return which scheme is fastest at other numbers of tokens, each with the layouts it has here."""
        if self._at is None:
            return []
        if self._tokens < 1:
            raise InputError(f"{self._tokens} tokens are not possible; give at least 1")
        at, schemes, makespan = self._at, self._schemes, executor("sim").makespan

        def way_at(count: int) -> str:
            self._report(f"{count} tokens", 0, 0)
            start = at(count)
            made = {scheme.name: scheme.schedule(start, self._machine) for scheme in schemes}
            limit = self.limit(start)
            seconds = {x: makespan(y) for x, y in made.items() if int(y.memory_bytes.max()) <= limit}
            if not seconds:
                return "none fits"
            fastest = min(seconds, key=seconds.__getitem__)
            stays = seconds.get(schemes[0].name, float("inf")) * (1 - MARGIN) <= seconds[fastest]
            return schemes[0].name if stays else fastest

        return stretches(self._tokens, way_at)

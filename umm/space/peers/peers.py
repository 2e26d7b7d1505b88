"""One table of current practice: the universal algorithm, and everything else that computes the same."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from types import NoneType
from typing import Any, cast

from umm.algorithms.scheduling import algorithms
from umm.errors import EndedEarlyError, InfeasibleError, InputError, expect
from umm.executor import executor
from umm.files import whole_number
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.numbers import as_int
from umm.plans.movement.blocks import by_owner
from umm.plans.multiply.options import PANELS
from umm.program import Chain, Outline
from umm.program.problem import MATRICES, Problem
from umm.schedules.schedule import Schedule
from umm.space.budget import DEVICE, limit_of
from umm.space.choice import Choice
from umm.space.peers import multiplies
from umm.space.peers.contender import BEST, MARGIN, Contender, Row, Scheme, Stack, ranged, row_of, systems
from umm.space.peers.table import Around, Peers, Stretch, stretches
from umm.space.search.search import Report, search
from umm.space.space import Space
from umm.units import format_bytes, format_seconds

Memory = str | int | None
_Laid = tuple[Scheme, Outline, Chain]  # a scheme, the program as it changes it, and that in its layouts


def peers(
    program: Problem | Outline,
    machine: Machine | str,
    *,
    ranks: int | None = None,
    memory: Memory = DEVICE,
    crossover: bool | None = True,
    at: Callable[[int], Outline] | None = None,
    tokens: int = 0,
    stack: Stack | None = None,
    progress: Report | None = None,
    ended: Callable[[Row], None] | None = None,
) -> Peers:
    """Return the universal algorithm beside everything else that computes a program, and a verdict.

    Of one multiply every row starts with A and B where the problem has them (``given``, else its layouts) and
    ends with C where it has that; what an algorithm wants elsewhere it moves first. In place and after
    redistribution the universal algorithm has the options that a search proves best, every other the best of
    its own. Of several statements the best layouts are beside those of training systems; inputs start as a
    row wants them, unless the program says where they are given and each row moves them.

    InputError for an unknown machine, layout or budget, or a number of ranks that is not the problem's.
    EndedEarlyError on Ctrl-C, with the rows so far.

    Args:
        program: A problem, or a chain with the layouts of a preset.
        machine: A machine, its name, or the path of its machine file.
        ranks: Ranks that share the work where the program does not say; the machine's own number if None.
        memory: Budget a rank, as in ``umm.search``. A row above it is in the table but never the one to take.
        crossover: Whether other sizes are simulated for where the verdict changes: other m of a multiply.
            None leaves out their ranges and the best layouts of all, too.
        at: Returns a chain with another number of tokens, for where the verdict changes; None leaves that
            out.
        tokens: Those of the chain, if ``at`` is given.
        stack: The layers of a model, each the chain, which times and memory are then of; None for the chain
            alone.
        progress: Called with what is looked at and the best row so far, how much of it has been, and how much
            there is; 0 if that is not known.
        ended: Called with each row as it is known, before all are sorted.
    """
    works = "a Problem or a chain, such as umm.Problem(m=64, n=48, k=32)"
    expect(program, (Problem, Outline), "peers", works)
    for name, function in {"at": at, "progress": progress, "ended": ended}.items():
        expect(function, object if callable(function) else NoneType, name, "a function")
    expect(crossover, (bool, NoneType), "crossover", "True, False or None")
    expect(stack, (Stack, NoneType), "stack", "a Stack of layers")
    tokens = whole_number(as_int(tokens), "tokens")
    if ranks is not None:
        ranks = whole_number(as_int(ranks), "ranks", 1)
        if program.kind == "problem" and program.ranks not in (None, ranks):
            raise InputError(f"the problem is for {program.ranks} ranks, not {ranks}; leave out ranks")
    if not isinstance(machine, Machine):
        machine = find_machine(machine)
    rows: list[Row] = []

    def report(what: str, done: int, total: int) -> None:
        if progress is not None:
            # Progress names the best so far, so that a user can end a long comparison early.
            best = min((row for row in rows if row.fits), key=lambda row: row.makespan_s, default=None)
            so_far = f"; best so far {best.algorithm}, {format_seconds(best.makespan_s)}" if best else ""
            progress(f"{what}{so_far}", done, total)

    field: OfMultiply | OfProgram
    count = machine.default_ranks if ranks is None else ranks
    if program.kind == "outline":
        field = OfProgram(program, count, machine, memory, report, at, tokens, stack)
    else:
        field = OfMultiply(program.on(count), machine, memory, report)
    limit, in_order = field.limit(field.start), partial(_in_order, fitting_first=field.size != "m")
    result = Peers(
        field.start, field.ranks, machine, limit, rows, field.refused, False, None, [], field.size,
        asked=field.asked, stack=field.stack,
    )  # fmt: skip
    try:
        for contender in field.contenders(limit, rows):
            report(contender.name, 0, 0)
            # The generator reads this list: the best layouts, which come
            # last, are compared with the rows before.
            rows.append(field.row(contender, limit))
            if ended is not None:
                ended(rows[-1])
        rows.sort(key=in_order)
        if crossover is None:
            return replace(result, proven=field.proven)
        # In place: the caller and the report on progress hold the same list.
        rows[:] = ranged(rows, field.start, machine, partial(report, "ranges of the rows"))
        result = replace(result, proven=field.proven)
        result = replace(result, anywhere=field.free())
        return replace(result, stretches=field.stretches(rows)) if crossover else result
    except KeyboardInterrupt:
        if not rows:
            raise
        rows.sort(key=in_order)
        # Refused names are no loss: they would have no row at the end either.
        priced = {row.algorithm for row in rows}
        missing = tuple(x for x in field.names if x not in priced and x not in field.refused)
        raise EndedEarlyError(replace(result, complete=False, missing=missing)) from None


def _in_order(row: Row, fitting_first: bool) -> tuple[bool, bool, bool, float, bool, str]:
    """Return the sort key of rows: the universal one first, PDGEMM, then those that fit, then the fastest."""
    # fitting_first: whether the universal one is first only if it fits.
    name = row.algorithm
    return (
        name != BEST or (fitting_first and not row.fits),
        name != multiplies.PDGEMM,
        not row.fits,
        row.makespan_s,
        name != multiplies.REDISTRIBUTE,
        name,
    )


MOST_WORK = 200_000
"""Work of the search of several statements: about half of its usual, as a user waits for the table."""


class OfMultiply:
    """Who competes in one multiply: the universal algorithm in place, redistributed, and every other one.

    Attributes:
        start: The program, and where its operands start.
        asked: The problem as it was asked; None of several statements.
        size: What of the program varies for where the verdict changes: ``m`` or ``tokens``.
        stack: The layers of a model; None for the program alone.
        refused: By name, why an algorithm cannot compute it, and what would work.
        proven: Whether the universal contender is proven to be the best of its space.
    """

    start: Any
    size = "m"
    stack: Stack | None = None
    proven = True

    def __init__(self, problem: Problem, machine: Machine, memory: Memory, report: Report) -> None:
        machine.check_ranks(problem.p)
        a, b, c = map(str, problem.outside)
        self.asked: Any = replace(problem, a=a, b=b, c=c, given="")
        self.start, self.ranks = by_owner(self.asked), problem.p
        self._joins = self.start.layouts != self.asked.layouts  # ranks hold several blocks
        self.refused: dict[str, str] = {}
        self._machine, self._memory, self._report = machine, memory, report

    def limit(self, start: Problem) -> int:
        """Return the bytes a rank may hold of the problem."""
        return limit_of(self._memory, start.unreplicated_share, self._machine, start.p)

    @property
    def names(self) -> list[str]:
        """Every algorithm, then the universal one where operands are, and redistributed."""
        joining = [multiplies.PGEMM] if self._joins else []
        return [*self._cheapest_first(), *joining, multiplies.IN_PLACE, multiplies.REDISTRIBUTE]

    def _cheapest_first(self) -> list[str]:
        """Return the names of algorithms, that with the fewest options to try first."""
        able = {x: y for x, y in algorithms().items() if y.compares(self.asked)}
        # Cheapest first, so that a comparison that is ended early has the most rows.
        trials = {x: len(multiplies.trials_of(y, self.start, 0)) for x, y in able.items()}
        return sorted(trials, key=lambda name: (trials[name], name))

    def contenders(self, limit: int, rows: Sequence[Row]) -> Iterator[Contender]:
        """Yield every algorithm with its best options, then the universal one in place and redistributed."""
        where = self.start, self._machine, self._memory
        for name in self._cheapest_first():
            algorithm = algorithms()[name]
            seen = algorithm.sees(self.asked)[1] if self._joins else {}
            report = partial(self._report, name)
            best, refusal = multiplies.tuned(algorithm, self.start, self._machine, limit, report, seen)
            if best is not None:
                yield best
            elif refusal is not None:
                self.refused[name] = refusal
        if self._joins:  # `umm.scalapack.pgemm` of block-cyclic operands where they are, as by default
            yield multiplies.Way(multiplies.PGEMM, options={"stationary": "C", "movement": PANELS})
        yield multiplies.ways_in_place(*where, partial(self._report, "in place"))[0][1]
        moved = multiplies.redistributed(*where, partial(self._report, "redistribute"))
        if moved is not None:
            yield moved

    def row(self, contender: Contender, limit: int) -> Row:
        """Simulate a contender and return its row."""
        return row_of(contender, self.start, self._machine, limit)

    def free(self) -> Choice | None:
        """Return the best point with free choice of layouts; None if nothing fits."""
        space, report = multiplies.space_of(self.start, grids="square"), partial(self._report, "any layouts")
        try:
            return search(space, self._machine, memory=self._memory, top=1, progress=report).top[0]
        except InfeasibleError:
            return None

    def stretches(self, rows: list[Row]) -> list[Stretch]:
        """Return the best action at all m around."""
        return Around(self.start, self._machine, self._memory, self._report).stretches(rows)


class OfProgram:
    """Who competes in several statements: the best layouts of the space, and those of training systems."""

    start: Any
    size = "tokens"
    asked: Any = None

    def __init__(
        self,
        outline: Outline,
        ranks: int,
        machine: Machine,
        memory: Memory,
        report: Report,
        at: Callable[[int], Outline] | None,
        tokens: int,
        stack: Stack | None,
    ) -> None:
        machine.check_ranks(ranks)
        self.start, self.ranks, self.proven = outline, ranks, False
        self.stack = stack
        self._made: Schedule | None = None  # of the last yielded
        self._row: Row | None = None  # of the best layouts
        self.refused: dict[str, str] = {}
        self._machine, self._memory, self._report = machine, memory, report
        self._at, self._tokens = at, tokens
        laid = [(x, x.change(outline)) for x in systems(outline, ranks, machine)]
        # Laying out is cheap beside simulating, so schemes that cannot fit are refused before any schedule.
        ready = [(x, changed, changed.laid_out(x.layouts, ranks)) for x, changed in laid]
        fitting = sorted(self._fitting(ready), key=lambda x: self._price(x[0].name, x[2]))
        self._schemes = [x for x, *_ in fitting]

    def limit(self, start: Outline) -> int:
        """Return the bytes a rank may hold of the program."""
        share = sum(x.nbytes_of_rank.sum() for x in start.laid_out({}, self.ranks).tensors) / self.ranks
        return limit_of(self._memory, float(share), self._machine, self.ranks)

    @property
    def names(self) -> list[str]:
        """The schemes, then the best layouts."""
        return [*(x.name for x in self._schemes if x.name != BEST), BEST]

    def _fitting(self, schemes: list[_Laid]) -> list[_Laid]:
        """Return the schemes whose weights and kept tensors fit; the one that needs least if none does."""
        # The others are refused: how long they take is of no use.
        stack = self.stack
        if stack is None:
            return schemes
        least = {
            scheme.name: min(stack.least_bytes(changed, chain, x) for x in stack.recompute)
            for scheme, changed, chain in schemes
        }
        limit, nearest = self.limit(self.start), min(least, key=least.__getitem__)
        fit = {x for x, nbytes in least.items() if nbytes <= limit} or {nearest}
        self.refused = {
            x: f"at least {format_bytes(nbytes)} a rank"
            for x, nbytes in sorted(least.items(), key=lambda item: item[1])
            if x not in fit
        }
        return [x for x in schemes if x[0].name in fit]

    def _price(self, name: str, chain: Chain) -> tuple[bool, int, int]:
        """Return a measure of a scheme's simulation time: copies of routed rows, tiles of all."""
        # Those with all experts on all ranks come last.
        routed = [x.layout.replicas for x in chain.tensors if x.role == "work" and self.start.has_experts]
        others = self.start.has_experts and name in ("tensor", "whole")
        tiles = sum(x.layout.ranks // x.layout.replicas for x in chain.tensors)
        return others, max(routed, default=1), tiles

    def contenders(self, limit: int, rows: Sequence[Row]) -> Iterator[Contender]:
        """Yield the schemes of training systems, then the best layouts, if any fit."""
        for number, scheme in enumerate(self._schemes):
            self._schemes[number], self._made = scheme.moved_fastest(self.start, self._machine, limit)
            yield self._schemes[number]
        best = partial(self._report, "the best layouts")
        best(0, 0)
        stack = self.stack or Stack(1)
        space = Space(chain=self.start, ranks=self.ranks, layers=stack.layers, state=stack.state)
        try:
            result = search(space, self._machine, memory=self._memory, top=1, progress=best, most=MOST_WORK)
        except InfeasibleError:
            return
        first = result.top[0]
        # The search ends with a gap, so a known scheme may still beat it: then that one is the best there is.
        faster = [x for x in rows if x.fits]
        fastest = min(faster, key=lambda x: x.makespan_s, default=None)
        layouts = first.layouts
        if space.is_multiply:  # the space calls the tensors of a plain multiply A, B and C
            product = self.start.statements[0]
            called = dict(zip(MATRICES, (*product.reads, product.out), strict=True))
            layouts = {called[x]: text for x, text in layouts.items()}
        scheme = Scheme(BEST, layouts, self.ranks, stationary=first.stationary)
        scheme, self._made = scheme.moved_fastest(self.start, self._machine, limit)
        priced = [(x, cast(Scheme, x.contender)) for x in rows]
        # The best layouts are often those of a scheme: its row serves, without another simulation.
        same = (replace(x, contender=scheme) for x, other in priced if replace(other, name=BEST) == scheme)
        self._row = next(same, None) or self._simulated(scheme, limit)
        outside = fastest is not None and fastest.makespan_s < self._row.makespan_s * (1 - 1e-9)
        if outside and fastest is not None:
            scheme = replace(cast(Scheme, fastest.contender), name=BEST)
            self._row = replace(fastest, contender=scheme)
        alone = self.stack is None and scheme.movement == "auto" and not space.is_multiply
        self.proven = result.proven and not outside and alone
        self._schemes.insert(0, scheme)
        yield scheme

    def row(self, contender: Any, limit: int) -> Row:
        """Simulate a contender and return its row."""
        if self._row is not None and contender is self._row.contender:
            return self._row
        return self._simulated(contender, limit)

    def _simulated(self, scheme: Scheme, limit: int) -> Row:
        if self.stack is not None:
            return self.stack.row(scheme, self.start, self._machine, limit)
        return row_of(scheme, self.start, self._machine, limit, self._made)

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
            expect(start, Outline, "at", "a function that returns a chain")
            # Layouts stay as they are at this size: a search at each size would cost far more.
            made = {scheme.name: scheme.schedule(start, self._machine) for scheme in schemes}
            limit = self.limit(start)
            seconds = {x: makespan(y) for x, y in made.items() if int(y.memory_bytes.max()) <= limit}
            if not seconds:
                return "none fits"
            fastest = min(seconds, key=seconds.__getitem__)
            stays = seconds.get(schemes[0].name, float("inf")) * (1 - MARGIN) <= seconds[fastest]
            return schemes[0].name if stays else fastest

        return stretches(self._tokens, way_at)

"""Who competes in one multiply: the universal algorithm, in place or moved, and others, tuned."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import Any, cast

from umm.algorithms.algorithm import Algorithm
from umm.algorithms.scheduling import UNIVERSAL, choices_in_words, find_algorithm, schedule
from umm.errors import InfeasibleError, ScheduleError
from umm.executor import run
from umm.layouts.layout import Layout
from umm.layouts.places import replication_factors
from umm.machines import Machine
from umm.plans.movement.choice import node_count
from umm.plans.multiply.options import Options, known
from umm.plans.option import Option
from umm.program.problem import MATRICES, Problem
from umm.schedules.schedule import Schedule
from umm.space.budget import limit_of
from umm.space.choice import Choice
from umm.space.peers.contender import cost
from umm.space.search.search import search
from umm.space.search.walk import Progress
from umm.space.space import Space
from umm.traces.trace import Trace

IN_PLACE, REDISTRIBUTE = "universal", "redistribute"
PDGEMM, PGEMM = "scalapack", "pgemm"
STAY = "in place"


@dataclass(frozen=True)
class Way:
    """A way to multiply operands that start somewhere already, and to leave C somewhere."""

    name: str  # what its row is called
    algorithm: str = UNIVERSAL  # name of the algorithm
    # Its options, and of the universal one the stationary matrix.
    options: Mapping[str, Any] = field(default_factory=dict)
    # Where the universal algorithm multiplies; None where A, B and C are.
    layouts: tuple[str, str, str] | None = None

    def schedule(self, start: Problem, machine: Machine) -> Schedule:
        """Return its schedule for a problem whose layouts say where A and B start and C ends."""
        if self.layouts is not None:
            given = dict(zip("abc", start.layouts, strict=True))
            a, b, c = self.layouts
            start = replace(start, a=a, b=b, c=c, given=given)
        return schedule(start, machine, algorithm=self.algorithm, **self.options)

    def works_in(self, start: Problem) -> dict[str, str]:
        """Return the layouts of A, B and C in which it multiplies."""
        if self.layouts is not None:
            return dict(zip(MATRICES, self.layouts, strict=True))
        layouts = start.layouts
        if self.algorithm != UNIVERSAL:
            algorithm = find_algorithm(self.algorithm)
            layouts = algorithm.native(start, **algorithm.chosen(self.options))
        pairs = zip(MATRICES, layouts, start.layouts, strict=True)
        return {name: _shortest(x, now) for name, x, now in pairs}

    def how(self, made: Schedule) -> str:
        """Return its choices in words; of the universal algorithm those that are not usual."""
        if "policy" not in made.options:
            return choices_in_words(made)
        usual = Options().to_dict()
        others = [f"{x} {made.options[x]}" for x, value in usual.items() if made.options[x] != value]
        return ", ".join([f"stationary {made.name}", *others])

    def typed(self, start: Problem, asked: Problem) -> list[str]:
        """Return the options of ``umm simulate`` that have the same schedule.

        Args:
            start: The problem whose layouts say where A and B start and C ends.
            asked: The same as its user wrote it, whose ranks may hold several blocks.
        """
        # Others start from tiles joined by owner; these two take the blocks
        # as they lie and join them themselves.
        as_asked = self.algorithm == PDGEMM or self.name == PGEMM  # they join the blocks of a rank themselves
        outside = [getattr(asked if as_asked else start, x) for x in "abc"]
        words = [y for x, text in zip("abc", self.layouts or outside, strict=True) for y in (f"--{x}", text)]
        if self.layouts is not None:
            words += ["--given", ",".join(f"{x}={text}" for x, text in zip("abc", outside, strict=True))]
        if self.algorithm == UNIVERSAL:
            usual = Options().to_dict()
            words += ["--stationary", self.options.get("stationary", "auto")]
            for x in known():
                value = self.options.get(x.name, x.default)
                words += [] if value == usual[x.name] else [f"--{x.name.replace('_', '-')}", x.typed(value)]
            return words
        option_of = {x.name: x for x in find_algorithm(self.algorithm).options}
        follows = find_algorithm(self.algorithm).sees(asked)[1] if as_asked else {}
        chosen = {x: y for x, y in self.options.items() if y != follows.get(x, option_of[x].default)}
        settings = [y for x, value in chosen.items() for y in ("--with", f"{x}={option_of[x].typed(value)}")]
        return [*words, "--algorithm", self.algorithm, *settings]

    def own_seconds(self, start: Problem, machine: Machine, trace: Trace) -> float:
        """Return its makespan with operands that start as it multiplies them."""
        a, b, c = self.works_in(start).values()
        # If operands are already as it wants them, the trace already has the answer.
        native = replace(start, a=a, b=b, c=c, given="")
        if all(x == y for x, y in zip(native.layouts, start.layouts, strict=True)):
            return trace.makespan_s
        return run(replace(self, layouts=None).schedule(native, machine)).makespan_s

    def in_words(self, start: Problem) -> str:
        """Return the action that it stands for.

        >>> start = Problem(m=64, n=64, k=64, a="2d:4x1", b="col", c="col", ranks=4)
        >>> for layouts in (None, ("row@4", "2d:1x4", "col"), ("row", "2d", "col@2")):
        ...     print(Way("", layouts=layouts).in_words(start))
        in place
        gather A
        move B to 2d, C from col@2
        """
        if self.name == PGEMM:
            return "replace PDGEMM by umm.scalapack.pgemm"
        if self.algorithm != UNIVERSAL:
            return f"multiply by {self.name}"
        if self.layouts is None:
            return STAY
        gathered, moved = [], []
        for name, now, then in zip(MATRICES, start.layouts, self.layouts, strict=True):
            if now == Layout.parse(then, now.shape, now.ranks):  # however each is written
                continue
            if name != "C" and then.endswith(f"@{start.p}"):
                gathered.append(name)
            else:
                moved.append(f"{name} {'from' if name == 'C' else 'to'} {then}")
        parts = [f"gather {' and '.join(gathered)}"] if gathered else []
        parts += [f"move {', '.join(moved)}"] if moved else []
        return " and ".join(parts)


def _shortest(layout: Layout, now: Layout) -> str:
    """Return the text of a layout: that of another if they are equal, else the shortest of its own."""
    usual = (Layout.parse(text, layout.shape, layout.ranks) for text in ("row", "col", "2d"))
    return str(next((x for x in (now, *usual) if x == layout), layout))


BETWEEN_NODES = tuple(product("ABC", ("two-level", "gathered", "chunks")))
"""Stationary matrices and movements by which operands cross once for each node, or by collectives."""


def ways_in_place(
    start: Problem,
    machine: Machine,
    memory: str | int | None,
    progress: Progress | None = None,
    between: Collection[tuple[str, str]] = BETWEEN_NODES,
) -> list[tuple[tuple[int, float], Way]]:
    """Return the costs of ways to multiply where A, B and C are, the best first.

    One is proven over stationary matrices and options. Between nodes operands and sums may also cross once
    for each node, or move by collectives.

    Args:
        start: The problem, and where its operands are.
        memory: Budget a rank; where nothing fits it, the fastest without one.
        between: Stationary matrices and movements that are tried between nodes.
    """
    layouts = {x: getattr(start, x) for x in "abc"}
    space = space_of(start, **layouts)
    try:
        best = search(space, machine, memory=memory, top=1, progress=progress).top[0]
    except InfeasibleError:
        # Staying in place needs a row even above the budget: the verdict compares the others with it.
        best = search(space, machine, memory=None, top=1, progress=progress).top[0]
    ways = [Way(IN_PLACE, options=_options(best))]
    if node_count(machine, start.p) == 1:
        return [((0, best.makespan_s), ways[0])]
    ways += [
        Way(IN_PLACE, options=_options(best) | {"stationary": stays, "movement": movement})
        for stays, movement in between
    ]
    # These movements are no axis of the search, so each is simulated with the options that won it.
    limit = limit_of(memory, start.unreplicated_share, machine, start.p)
    costs = []
    for number, way in enumerate(ways):
        if progress:
            progress(number, len(ways))
        costs.append((cost(way.schedule(start, machine), limit), way))
    return sorted(costs, key=lambda x: x[0])


def redistributed(
    start: Problem, machine: Machine, memory: str | int | None, progress: Progress | None = None
) -> Way | None:
    """Return the best way that moves operands to other layouts first, proven best; None if none fits.

    Each to row, col or the squarest 2d, or to every rank; a search with ``given`` knows more layouts.

    Args:
        start: The problem, and where its operands are.
        memory: Budget a rank, for operands and their copies.
    """
    given = {x: getattr(start, x) for x in "abc"}
    space = space_of(start, given=given, grids="square", replication=(1, start.p))
    # The best points may all stay in place, which is another row: widen the list until one moves something.
    top = 8
    while True:
        try:
            choices = search(space, machine, memory=memory, top=top, progress=progress).top
        except InfeasibleError:
            return None
        for choice in choices:
            if cast(Problem, choice.program).layouts != start.layouts:
                a, b, c = choice.layouts.values()
                return Way(REDISTRIBUTE, options=_options(choice), layouts=(a, b, c))
        if len(choices) < top:
            return None
        top *= 4


def space_of(start: Problem, **more: Any) -> Space:
    """Return the space of a problem's sizes and types."""
    sizes = {x: getattr(start, x) for x in ("m", "n", "k", "dtype", "c_dtype")}
    return Space(**sizes, ranks=start.p, **more)


def _options(choice: Choice) -> dict[str, Any]:
    return {"stationary": choice.stationary, **choice.options.to_dict()}


def tuned(
    algorithm: Algorithm,
    start: Problem,
    machine: Machine,
    limit: int,
    progress: Progress | None = None,
    fixed: Mapping[str, Any] | None = None,
) -> tuple[Way | None, str | None]:
    """Return an algorithm with the options that make it fastest within a budget, or why it cannot compete.

    Options that are one of a few are tried one after another, the others as they are best so far; so are
    meshes of ranks, the budget itself where an algorithm takes one, and what its users overlap. If nothing
    fits, what comes nearest; None if no options serve the problem. Why its own do not is None if they do.

    Args:
        start: The problem, and where its operands lie.
        progress: Called with how many choices of options were tried, and how many there are.
        fixed: Options that it has in any case.
    """
    best: tuple[tuple[int, float], Way] | None = None
    refusal = algorithm.refusal(start, machine, algorithm.chosen(fixed or {}))
    trials = trials_of(algorithm, start, limit)
    for number, trial in enumerate(trials):
        if progress:
            progress(number, len(trials))
        # Coordinate descent: each trial changes one option of the best so
        # far, so trials add up, not multiply.
        options = {**(best[1].options if best else fixed or {}), **trial}
        try:
            if algorithm.refusal(start, machine, algorithm.chosen(options)) is not None:
                continue
        except ScheduleError:  # a mesh of more axes than it has
            continue
        contender = Way(algorithm.name, algorithm.name, options)
        its_cost = cost(contender.schedule(start, machine), limit)
        if best is None or its_cost < best[0]:
            best = its_cost, contender
    return best[1] if best else None, refusal


def trials_of(algorithm: Algorithm, start: Problem, limit: int) -> list[Mapping[str, Any]]:
    """Return the trials of an algorithm's options, one change after another; first no change."""
    trials: list[Mapping[str, Any]] = [{}]
    trials += [{x.name: value} for x in algorithm.options for value in _values(x, start, limit)]
    return trials + list(algorithm.piped(start))


def _values(option: Option, start: Problem, limit: int) -> Iterator[Any]:
    """Yield the values of an option to try."""
    if option.name == "grid":
        # Meshes of two axes, and of three for algorithms that replicate
        # (2.5D); others refuse the wrong number.
        for axes in (2, 3):
            for mesh in product(replication_factors(start.p), repeat=axes):
                if prod(mesh) == start.p:
                    yield "x".join(map(str, mesh))
    elif option.name == "memory":
        yield limit / start.unreplicated_share
    elif isinstance(option.default, bool):
        yield not option.default
    elif isinstance(option.default, str):
        yield from (value for value in option.values if value != option.default)

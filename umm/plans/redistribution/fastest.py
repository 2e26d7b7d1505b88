"""The fastest way to move a matrix from one layout to another, and operands from where they are given."""

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.machines.machine import content_sha
from umm.plans.collectives.collective import fastest_of
from umm.plans.collectives.hierarchical import WAY as BY_LEVEL
from umm.plans.collectives.library import BY_LIBRARY
from umm.plans.redistribution.ways import GETS, RELAYS, lowered, program, ways_of
from umm.program.problem import MATRICES, Problem

ROWS = "a=row,b=row,c=row"  # where operands are taken to be where nothing is said
MOST_RANKS = 16
WHOLE, LESS = "broadcast", ("reduce", "reduce-scatter")
"""Endings that leave every replica complete are one here; those that leave less are not."""
MOST_IN_RINGS = 128
"""Ranks of several nodes up to which ways are compared whose steps follow each other from rank to rank.

Among more, what is exchanged by level or read where it is needs a few latencies, a ring hundreds.
"""
OF_MULTIPLIES = {"accumulate_efficiency", "efficiency", "interference", "launch", "peak"}
"""Numbers of a device that slow down who multiplies and accumulates, and nobody who copies."""


def moves(problem: Problem) -> list[str]:
    """Return which of A, B and C do not start or end where they are multiplied."""
    pairs = zip(MATRICES, problem.layouts, problem.outside, strict=True)
    return [x for x, inside, outside in pairs if inside != outside]


class Move(NamedTuple):
    """The fastest way to move a matrix from one layout to another, and its seconds."""

    way: str  # the fastest way
    seconds: float  # how long it takes alone, by simulation


@dataclass(frozen=True)
class _Mover:
    """A machine for who only copies: machines that differ in numbers of multiplies are one."""

    sha: str  # of the other numbers
    machine: Machine = field(compare=False)  # one of them


@lru_cache(maxsize=64)
def _mover(machine: Machine) -> _Mover:
    document = machine.document
    if machine.sha != content_sha(document):  # some of its numbers are not those of its file
        return _Mover(machine.sha, machine)
    # Searches vary these numbers; without them in the key a move is simulated once for all variants.
    devices = {key: value for key, value in document["devices"].items() if key not in OF_MULTIPLIES}
    return _Mover(content_sha({**document, "devices": devices}), machine)


@lru_cache(maxsize=4096)
def _move(x: Layout, y: Layout, cuts: Any, mover: _Mover, dtype: str, final: str) -> Move:
    chain, machine = program(x, y, dtype), mover.machine
    names = ways_of(chain, machine, final)
    # Ways that pass pieces from rank to rank lose there by hundreds of latencies, so they are not simulated.
    if chain.p > MOST_IN_RINGS and BY_LEVEL.name in names:
        names = [name for name in names if name in (GETS, RELAYS, BY_LEVEL.name, BY_LIBRARY.name)]
    fastest = fastest_of({name: lowered(chain, machine, name, final) for name in names})
    return Move(fastest.name, fastest.seconds[fastest.name])


def move(x: Layout, y: Layout, machine: Machine, dtype: str, final: str = WHOLE) -> Move:
    """Find the fastest way to move a matrix from one layout to another.

    Args:
        y: Where it shall be, complete in every replica.
        final: Which replicas are complete, as ``Options.final`` leaves those of C; all if not given.

    >>> from umm.machines import machine
    >>> x, y = (Layout.parse(text, (4096, 4096), ranks=32) for text in ("row", "row@32"))
    >>> move(x, y, machine("dgx-h100x4"), "float32").way
    'hierarchical'
    """
    # Endings that mean the same here share an entry of the cache.
    final = final if x.replicas > 1 and final in LESS else WHOLE
    if x == y:
        return Move(GETS, 0.0)
    return _move(x, y, (x.cuts, y.cuts), _mover(machine), dtype, final)


@lru_cache(maxsize=4096)
def _able(x: Layout, y: Layout, cuts: Any, mover: _Mover, dtype: str) -> tuple[str, ...]:
    return tuple(ways_of(program(x, y, dtype), mover.machine))


def able(x: Layout, y: Layout, machine: Machine, dtype: str) -> tuple[str, ...]:
    """Return the names of the ways that can move a matrix between two layouts, whatever they take."""
    return (GETS,) if x == y else _able(x, y, (x.cuts, y.cuts), _mover(machine), dtype)


def moves_of(problem: Problem, machine: Machine, final: str) -> dict[str, Move]:
    """Find the fastest move of each of A, B and C that is not where it is multiplied."""
    moved = {}
    for x in moves(problem):
        i = MATRICES.index(x)
        inside, outside, dtype = problem.layouts[i], problem.outside[i], problem.tensors[i].dtype
        if x == "C":
            moved[x] = move(inside, outside, machine, dtype, final)
        else:
            moved[x] = move(outside, inside, machine, dtype)
    return moved


def fastest_copies(machine: Machine, x: Layout, y: Layout, dtype: str) -> str:
    """Return how an algorithm moves an operand: by gets, unless ranks shall have more copies of it.

    Ranks that get the same tiles get them of the same owners at the same time; a collective does not.
    """
    return move(x, y, machine, dtype).way if y.replicas > x.replicas else GETS


def move_seconds(problem: Problem, machine: Machine, final: str) -> dict[str, float] | None:
    """Seconds to move A and B in from where they are given, and C out; from rows if nothing is given.

    Each alone, of those that move; None for too many ranks to plan for at once.
    """
    if problem.p > MOST_RANKS:
        return None
    asked = problem if problem.given else replace(problem, given=ROWS)
    return {x: taken.seconds for x, taken in moves_of(asked, machine, final).items()}

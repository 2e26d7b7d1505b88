"""The schedule of a program on a machine, by the name of an algorithm."""

import pkgutil
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from importlib import import_module
from typing import Any

from umm.algorithms.algorithm import Algorithm
from umm.errors import ProblemError, ScheduleError, expect
from umm.files import shown
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.plans.multiply.options import LAYOUTS, PANELS, in_words, showing_options
from umm.plans.multiply.policies import lowered as by_universal
from umm.plugins import loaded, plugin, plugins
from umm.program.chain import Chain
from umm.program.outline import Outline
from umm.program.problem import MATRICES, Problem
from umm.schedules.schedule import Schedule

GROUP = "umm.algorithms"
UNIVERSAL = "universal"
NEAREST = {
    "carma": "cosma (which splits the largest dimension too), 3d, universal",
    "pdgemm": "scalapack",
    "pumma": "scalapack",
    "srumma": "universal",
}
"""What is nearest to algorithms that are known by other names, or are not here."""


def algorithms() -> dict[str, Algorithm]:
    """Return all algorithms but the universal one, by name."""
    return _shipped() | {name: loaded(entry, "algorithm ") for name, entry in plugins(GROUP).items()}


@lru_cache(maxsize=1)
def _shipped() -> dict[str, Algorithm]:
    # Every Algorithm that a module of this folder holds is found: there is no register to keep up to date.
    modules = [
        import_module(f"{GROUP}.{x.name}") for x in pkgutil.iter_modules(import_module(GROUP).__path__)
    ]
    return {x.name: x for module in modules for x in vars(module).values() if isinstance(x, Algorithm)}


def names() -> list[str]:
    """Return the names of all algorithms, the universal one first."""
    return [UNIVERSAL, *sorted(algorithms())]


def find_algorithm(name: str) -> Algorithm:
    """Return the algorithm of a name; ScheduleError naming the nearest if one is known, else all."""
    is_text = isinstance(name, str)
    if not is_text or (name not in _shipped() and plugin(GROUP, name) is None):
        near = NEAREST.get(name.lower()) if is_text else None
        works = f"nearest: {near}" if near else f"choose from {', '.join(names())}"
        raise ScheduleError(f"algorithm {shown(name)} is unknown; {works}")
    return algorithms()[name]


def choices_in_words(schedule: Schedule) -> str:
    """Return the choices of a schedule in words, whichever algorithm has made it.

    >>> import umm
    >>> problem = umm.Problem(m=8, n=8, k=8, ranks=4)
    >>> choices_in_words(umm.schedule(problem, "h100-8", algorithm="summa", grid="1x4"))
    'grid 1x4, broadcast by mpi, whole panels, prefetch 1'
    >>> choices_in_words(umm.schedule(problem, "h100-8", algorithm="2.5d"))  # 0: as many as fit
    '1 layer, reduce-scatter, sum direct'
    """
    options = schedule.options
    other = None if schedule.name in MATRICES else algorithms().get(schedule.name)
    if other:
        if options.get("layers") == 0 and (mesh := other.mesh(schedule.ranks, **options)):
            options = {**options, "layers": mesh[-1]}
        return in_words(options, other.options)
    if schedule.program.kind == "problem" and schedule.problem.layout("C").replicas == 1:
        options = {name: value for name, value in options.items() if name != "final"}
    return in_words(options)


@showing_options
def schedule(
    problem: Problem | Chain | Outline,
    machine: Machine | str,
    *,
    algorithm: str = UNIVERSAL,
    stationary: str | Mapping[str, str] = "auto",
    ways: Mapping[str, str] | None = None,
    layouts: str | Mapping[str, str] | None = None,
    **options: Any,
) -> Schedule:
    """Return the schedule of a problem, or of a whole chain, on a machine.

    ScheduleError for an unknown option or a value that means nothing. ProblemError for an unknown stationary
    matrix. MachineError for an unknown machine, too many ranks, or a dtype without a peak.

    Args:
        problem: What is multiplied; without ranks it gets the machine's own number. Operands that are given
            elsewhere are moved first, and C is moved out at the end. Of a chain every multiply that is
            not a batch is by the universal algorithm, with the same options; an outline gets the machine's
            number of ranks, and the first of its layouts if none are given.
        machine: A machine, its name, or the path of its machine file.
        algorithm: ``universal``, or another of ``umm.algorithms.names()``; it redistributes in and out of its
            own layouts.
        stationary: For the universal algorithm: A, B, C or ``auto`` for the largest matrix; of a chain for
            all multiplies, or for each by the name of what it writes.
        ways: How the universal algorithm moves A, B and C that are given elsewhere: a way to redistribute
            for each, as in ``umm.redistribute``; None for the fastest by simulation.
        layouts: Of an outline: a scheme by name, such as ``tp8-dp4``, or a text for each tensor, as ``umm
            simulate --layouts`` takes them. What a scheme changes of the chain is part of it: ``fsdp32``
            gathers each weight by a copy before it is used.
        options: The algorithm's own; those of the universal one are fields of
            :class:`umm.plans.multiply.options.Options`, such as ``prefetch=1``.

    >>> import umm
    >>> problem = umm.Problem(m=4096, n=4096, k=4096, a="row@8", b="col", c="col", given="a=row")
    >>> umm.schedule(problem, "h100-8").options["bring_a"]
    'gets'
    """
    if not isinstance(machine, Machine):
        machine = find_machine(machine)
    works = "a Problem or a chain, such as umm.Problem(m=64, n=48, k=32)"
    expect(problem, (Problem, Chain, Outline), "schedule", works)
    if ways is not None:
        expect(ways, Mapping, "ways", "a way for some of A, B and C, such as {'A': 'gets'}")
        for name in ways:
            if name not in MATRICES:
                raise ScheduleError(f"ways has no matrix {shown(name)}; choose from {', '.join(MATRICES)}")
    if layouts is not None:
        if not isinstance(problem, Outline):
            raise ScheduleError("layouts are for a chain without any: umm.chain('mlp', …); leave them out")
        expect(layouts, (str, Mapping), "layouts", "a scheme such as tp8-dp4, or a text for each tensor")
        problem, how = _in_layouts(problem, layouts, machine.default_ranks, stationary, options)
        stationary = how.pop("stationary", stationary)
        options |= how
    program = problem.on(machine.default_ranks)
    machine.check_ranks(program.p)
    if program.kind == "chain":
        if algorithm != UNIVERSAL:
            raise ScheduleError(f"a chain is lowered by {UNIVERSAL}, not by {algorithm}; leave algorithm out")
        from umm.plans.lower import lower as lower_chain  # a multiply does without

        return lower_chain(program, machine, stationary=stationary, **options)
    if not isinstance(stationary, str):
        raise ProblemError(f"one multiply keeps A, B or C in place, not {stationary!r}")
    if algorithm != UNIVERSAL:
        other = find_algorithm(algorithm)
        if stationary != "auto":
            raise ScheduleError(f"{algorithm} has no stationary matrix to choose; leave stationary out")
        # PDGEMM, for one, sees all blocks of a rank as one tile; the schedule still reports the user's
        # layouts.
        from umm.algorithms.writing import lowered
        from umm.plans.redistribution.fastest import fastest_copies

        seen, follows = other.sees(program)
        made = lowered(other, seen, machine, {**follows, **options}, partial(fastest_copies, machine))
        if seen.layouts == program.layouts:
            return made
        return replace(made, options={**made.options, LAYOUTS: program.layout_words})
    if not program.given:
        return by_universal(program, machine, stationary, **options)
    if options.get("movement") == PANELS:
        raise ScheduleError(f"movement {PANELS} multiplies operands where they start; leave out given")
    # Lower the multiply as if its operands were in place, then put redistributions around it.
    part = by_universal(replace(program, given=""), machine, stationary, **options)
    from umm.algorithms.writing import joined
    from umm.plans.redistribution.fastest import moves_of

    if ways is None:
        moves = moves_of(program, machine, str(part.options["final"]))
        ways = {x: move.way for x, move in moves.items()}
    return joined(program, machine, part, ways)


def _in_layouts(
    outline: Outline,
    layouts: str | Mapping[str, str],
    ranks: int,
    stationary: str | Mapping[str, str],
    options: Mapping[str, Any],
) -> tuple[Chain, dict[str, Any]]:
    """Return a chain laid out as a scheme runs it, and the scheme's settings of choices left to ``auto``."""
    from umm.program.systems import choices_left, in_scheme

    name = layouts.partition(",")[0].strip() if isinstance(layouts, str) else ""
    # A text such as A=row,B=col gives layouts by tensor, and names no scheme.
    name = "" if "=" in name else name
    chain = in_scheme(name, outline, ranks).laid_out(layouts, ranks)
    how = {"stationary": stationary, "movement": options.get("movement", "auto")}
    return chain, choices_left(chain, how, name)

"""From a problem and a machine to a schedule, by the name of an algorithm.

An algorithm is a file in this package with an ``ALGORITHM`` of :class:`umm.algorithms.algorithm.Algorithm`;
other packages add theirs in the entry-point group ``umm.algorithms``. The universal algorithm stands apart:
it works on any layouts in place.
"""

import pkgutil
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

import umm.algorithms
from umm.algorithms.algorithm import Algorithm
from umm.algorithms.chains.lower import lower as lower_chain
from umm.algorithms.given import joined
from umm.algorithms.moved import lowered
from umm.algorithms.universal.lowered import lowered as by_universal
from umm.algorithms.universal.options import in_words, showing_options
from umm.chains import Chain, Outline
from umm.errors import ScheduleError, expect
from umm.files import shown
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.problem import Problem
from umm.schedules.schedule import Schedule

GROUP = "umm.algorithms"
UNIVERSAL = "universal"


@lru_cache(maxsize=1)
def algorithms() -> dict[str, Algorithm]:
    """Return all algorithms but the universal one, by name."""
    modules = [import_module(f"{GROUP}.{x.name}") for x in pkgutil.iter_modules(umm.algorithms.__path__)]
    found = [module.ALGORITHM for module in modules if hasattr(module, "ALGORITHM")]
    found += [entry.load() for entry in entry_points(group=GROUP)]
    return {algorithm.name: algorithm for algorithm in found}


def names() -> list[str]:
    """Return the names of all algorithms, the universal one first."""
    return [UNIVERSAL, *sorted(algorithms())]


def find_algorithm(name: str) -> Algorithm:
    """Return the algorithm of a name.

    Raises:
        ScheduleError: listing those there are.
    """
    if name not in algorithms():
        algorithms.cache_clear()  # its package may have been installed since
    if name not in algorithms():
        raise ScheduleError(f"algorithm {shown(name)} is unknown; choose from {', '.join(names())}")
    return algorithms()[name]


def choices_in_words(schedule: Schedule) -> str:
    """Return the choices of a schedule in words, whichever algorithm has made it.

    >>> import umm
    >>> problem = umm.Problem(m=8, n=8, k=8, ranks=4)
    >>> choices_in_words(umm.schedule(problem, "h100-8", algorithm="summa", grid="1x4"))
    'grid 1x4, broadcast by tree, whole panels, prefetch 1'
    """
    other, said = algorithms().get(schedule.stationary), schedule.options
    if other:
        return in_words(said, other.options)
    if isinstance(schedule.program, Problem) and schedule.program.layout("C").replicas == 1:
        said = {name: value for name, value in said.items() if name != "final"}
    return in_words(said)


@showing_options
def schedule(
    problem: Problem | Chain | Outline,
    machine: Machine | str,
    *,
    algorithm: str = UNIVERSAL,
    stationary: str = "auto",
    ways: Mapping[str, str] | None = None,
    **options: Any,
) -> Schedule:
    """Return the schedule of a problem, or of a whole chain, on a machine.

    Args:
        problem: What is multiplied; without ranks it gets the machine's own number. Of a chain every multiply
            that is not a batch is by the universal algorithm, with the same options; an outline gets the
            machine's number of ranks and the first of its layouts.
        machine: A machine, its name, or the path of its topology file.
        algorithm: ``universal``, or another of :func:`names`; it redistributes in and out of its own layouts.
        stationary: For the universal algorithm: A, B, C or ``auto`` for the largest matrix.
        ways: Of a problem whose operands are given elsewhere, how the universal algorithm brings A, B and C:
            a way to redistribute each; ``gets`` for one not named. ``umm.schedule`` finds the fastest.
        options: The algorithm's own; those of the universal one are fields of
            :class:`umm.algorithms.universal.options.Options`, such as ``prefetch=1``.

    Raises:
        ScheduleError: for an option that there is none of or a value that means nothing.
        ProblemError: for an unknown stationary matrix.
        MachineError: for an unknown machine, too many ranks, or a dtype without a peak.
    """
    if not isinstance(machine, Machine):
        machine = find_machine(machine)
    works = "a Problem or a chain, such as umm.Problem(m=64, n=48, k=32)"
    expect(problem, (Problem, Chain, Outline), "schedule", works)
    if isinstance(problem, Outline):
        problem = problem.laid_out(ranks=machine.default_ranks)
    if isinstance(problem, Chain):
        if algorithm != UNIVERSAL:
            raise ScheduleError(f"a chain is lowered by {UNIVERSAL}, not by {algorithm}; leave algorithm out")
        return lower_chain(problem, machine, stationary=stationary, **options)
    problem = problem.on(machine.default_ranks)
    machine.check_ranks(problem.p)
    if algorithm != UNIVERSAL:
        other = find_algorithm(algorithm)
        if stationary != "auto":
            raise ScheduleError(f"{algorithm} has no stationary matrix to choose; leave stationary out")
        return lowered(other, problem, machine, options)
    if not problem.given:
        return by_universal(problem, machine, stationary, **options)
    part = by_universal(replace(problem, given=""), machine, stationary, **options)
    return joined(problem, machine, part, ways or {})

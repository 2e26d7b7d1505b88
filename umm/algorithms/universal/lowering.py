"""One multiply by the universal algorithm: its options and stationary matrix made out, then its policy."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from umm.algorithms.option import check_names
from umm.algorithms.universal.oplist import largest_matrix
from umm.algorithms.universal.options import Options, known
from umm.algorithms.universal.policies import POLICIES
from umm.machines import Machine
from umm.program.problem import Problem
from umm.schedules.schedule import Schedule


def lowered(problem: Problem, machine: Machine, stationary: str = "auto", **options: Any) -> Schedule:
    """Return the schedule of a problem by the universal algorithm.

    Args:
        problem: What is multiplied, with its ranks.
        machine: A machine that has them.
        stationary: A, B, C or ``auto`` for the largest matrix.
        options: Fields of :class:`umm.algorithms.universal.options.Options`.

    Raises:
        ScheduleError: for an option that there is none of or a value that means nothing.
        ProblemError: for an unknown stationary matrix.
    """
    try:
        chosen = _chosen(**options)
    except TypeError:  # of a value that cannot be a key, and means nothing either
        chosen = _made_out(options)
    if stationary == "auto":
        stationary = largest_matrix(problem)
    return POLICIES[chosen.policy].lower(problem, machine, stationary, chosen)


@lru_cache(maxsize=256, typed=True)
def _chosen(**options: Any) -> Options:
    return _made_out(options)


def _made_out(options: Mapping[str, Any]) -> Options:
    """Return the options, checked."""
    check_names(known(), options, "a schedule")
    return Options(**options)

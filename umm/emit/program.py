"""From a multiply with its layouts to the text of a program in a framework."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from umm.algorithms.universal.options import Options
from umm.dtypes import is_float8
from umm.emit import jax_program, torch_mesh, torch_ranges, umm_script
from umm.emit.described import Described
from umm.errors import InputError
from umm.layouts.frameworks.words import shared_mesh
from umm.program.problem import Problem


def emit(
    target: str, problem: Problem, machine: str, stationary: str, options: Mapping[str, Any], note: str
) -> str:
    """Return a program that sets up a multiply and runs as it is.

    Args:
        target: ``torch``, ``jax`` or ``umm``.
        problem: What is multiplied, with its layouts.
        machine: Name of the machine it was chosen for, or its file.
        stationary: The matrix that stays in place: A, B or C.
        options: How umm makes the schedule, as keywords of ``umm.schedule``.
        note: What is known of it.

    Raises:
        InputError: for another target, or layouts that the framework cannot have, naming the property.
    """
    if target not in TARGETS:
        raise InputError(f"there is no program for {target!r}; choose from {', '.join(TARGETS)}")
    if is_float8(problem.dtype):
        raise InputError(f"no program is written for {problem.dtype}, which has scales; choose bfloat16")

    defaults = {field.name: field.default for field in fields(Options)}
    said = {name: value for name, value in options.items() if value != defaults.get(name)}
    return TARGETS[target](Described(problem, machine, stationary, said, note))


def _torch(asked: Described) -> str:
    """Return DTensor's program where one mesh has all layouts, else one that sends ranges."""
    found = shared_mesh([*asked.problem.outside, asked.stays])
    return torch_ranges.program(asked) if found is None else torch_mesh.program(asked, found)


TARGETS: dict[str, Callable[[Described], str]] = {
    "torch": _torch,
    "jax": jax_program.program,
    "umm": umm_script.program,
}
"""What programs there are, by the name of the framework."""

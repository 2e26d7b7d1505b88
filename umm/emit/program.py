"""From a multiply with its layouts to the text of a program in a framework."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from umm.dtypes import is_float8
from umm.emit import jax_program, torch_mesh, torch_ranges
from umm.emit.described import Described
from umm.errors import InputError
from umm.layouts.frameworks.words import shared_mesh
from umm.plans.multiply.options import Options
from umm.program.problem import Problem
from umm.quoting import python

TARGETS = ("torch", "jax", "umm")  # frameworks that there are programs for


def emit(
    target: str, problem: Problem, machine: str, stationary: str, options: Mapping[str, Any], note: str
) -> str:
    """Return a program that sets up a multiply and runs as it is.

    InputError for another target, or layouts that the framework cannot have, naming the property.

    Args:
        target: ``torch``, ``jax`` or ``umm``.
        problem: The multiply, with its layouts.
        machine: Name of the machine it was chosen for, or its file.
        stationary: The matrix that stays in place: A, B or C.
        options: How umm makes the schedule, as keywords of ``umm.schedule``.
        note: A sentence for the program's docstring.
    """
    if target not in TARGETS:
        raise InputError(f"there is no program for {target!r}; choose from {', '.join(TARGETS)}")
    if is_float8(problem.dtype):
        raise InputError(f"no program is written for {problem.dtype}, which has scales; choose bfloat16")
    asked = Described(problem, stationary, note)
    if target == "jax":
        return jax_program.program(asked)
    if target == "torch":  # DTensor's program where one mesh has all layouts, else one that sends ranges
        meshes = shared_mesh([*problem.outside, asked.stays])
        if meshes and meshes[0].is_sorted:
            return torch_mesh.program(asked, meshes)
        return torch_ranges.program(asked)
    # A script on umm itself: the schedule, predicted, executed and checked.
    defaults = {field.name: field.default for field in fields(Options)}
    changed = {name: value for name, value in options.items() if value != defaults.get(name)}
    return asked.filled(
        UMM,
        machine=python.literal(machine),
        type=repr(problem.dtype),
        c_type=repr(problem.c_dtype),
        options="".join(f", {name}={value!r}" for name, value in changed.items()),
        given=f" given={problem.given!r}," if problem.given else "",
        **{f"{x}_text": repr(getattr(problem, x)) for x in "abc"},
    )


UMM = '''"""<what>

python FILE executes it on virtual ranks of this process; python FILE mpi on a process for each rank. With
--check the product is checked against the whole matrices.
"""

import sys

import umm
from umm.checks import check_product, random_operands, reference_product
from umm.units import format_seconds
from umm_hw import DistributedMatrix

MACHINE = <machine>
PROBLEM = umm.Problem(
    m=<m>, n=<n>, k=<k>, dtype=<type>, c_dtype=<c_type>, ranks=<ranks>,
    a=<a_text>, b=<b_text>, c=<c_text>,<given>
)
SCHEDULE = umm.schedule(PROBLEM, MACHINE, stationary="<stationary>"<options>)


def operands(transport) -> tuple[DistributedMatrix, DistributedMatrix, DistributedMatrix]:
    """Return A, B and C over the ranks that a transport joins, for programs of your own."""
    return tuple(
        DistributedMatrix(transport, PROBLEM.layout(x), PROBLEM.c_dtype if x == "C" else PROBLEM.dtype)
        for x in "ABC"
    )


def main() -> None:
    executor = next((word for word in sys.argv[1:] if not word.startswith("-")), "numpy")
    print(f"predicted on {MACHINE}: {format_seconds(umm.run(SCHEDULE).makespan_s)}")
    a, b = random_operands(PROBLEM)
    trace = umm.run(SCHEDULE, executor=executor, operands=(a, b))
    if trace.times == "measured":
        print(f"measured with {executor}: {format_seconds(trace.makespan_s)}")
    if "--check" in sys.argv:
        check = check_product(PROBLEM, reference_product(a, b), trace.result)
        print(check)
        if not check.ok:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
'''

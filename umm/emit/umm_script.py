"""A multiply as a script on umm itself: the schedule, predicted, executed and checked."""

from umm.emit.described import Described

PROGRAM = '''"""<what>

python FILE executes it on virtual ranks of this process; python FILE mpi on a process for each rank. With
--check the product is checked against the whole matrices.
"""

import sys

import umm
from umm.checks import check_product, random_operands, reference_product
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
    print(f"predicted on {MACHINE}: {umm.run(SCHEDULE).makespan_s * 1e3:.4g} ms")
    a, b = random_operands(PROBLEM)
    trace = umm.run(SCHEDULE, executor=executor, operands=(a, b))
    if trace.times == "measured":
        print(f"measured with {executor}: {trace.makespan_s * 1e3:.4g} ms")
    if "--check" in sys.argv:
        check = check_product(PROBLEM, reference_product(a, b), trace.result)
        print(check)
        if not check.ok:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
'''


def program(asked: Described) -> str:
    """Return the script."""
    problem = asked.problem
    options = "".join(f", {name}={value!r}" for name, value in asked.options.items())
    return asked.filled(
        PROGRAM,
        machine=repr(asked.machine),
        type=repr(problem.dtype),
        c_type=repr(problem.c_dtype),
        options=options,
        given=f" given={problem.given!r}," if problem.given else "",
        **{f"{x}_text": repr(getattr(problem, x)) for x in "abc"},
    )

"""Which contender to take, and what that means to do, in words."""

from collections.abc import Sequence

from umm.algorithms.registry import UNIVERSAL
from umm.machines import Machine
from umm.problem import MATRICES, Problem
from umm.space.peers.contender import Contender, Timed

MARGIN = 0.01
"""By how much another way has to be faster than staying in place to be worth it, as a share."""
STAY = "in place"


def chosen(timed: Sequence[Timed], start: Problem, preferred: str = "") -> Contender:
    """Return the contender to take of some, the first of which stays in place.

    In place is taken unless another that fits is faster by the margin; then the fastest that fits, or the one
    whose words are preferred if it is as fast but for the margin.
    """
    stay = timed[0]
    fitting = [x for x in timed[1:] if x.fits]
    best = min(fitting, key=lambda x: x.makespan_s, default=stay)
    if stay.fits and stay.makespan_s * (1 - MARGIN) <= best.makespan_s:
        return stay.contender
    for x in fitting:
        near = x.makespan_s * (1 - MARGIN) <= best.makespan_s
        if near and in_words(x.contender, start) == preferred:
            return x.contender
    return best.contender


def in_words(contender: Contender, start: Problem) -> str:
    """Return what taking a contender means to do, such as ``gather A``.

    >>> start = Problem(m=64, n=64, k=64, a="row", b="col", c="col", ranks=4)
    >>> for layouts in (None, ("row@4", "col", "col"), ("row", "2d", "col@2")):
    ...     print(in_words(Contender("", layouts=layouts), start))
    in place
    gather A
    bring B to 2d, C from col@2
    """
    if contender.algorithm != UNIVERSAL:
        return f"multiply by {contender.name}"
    if contender.layouts is None:
        return STAY
    gathered, brought = [], []
    for name, now, then in zip(MATRICES, start.layouts, contender.layouts, strict=True):
        if str(now) == then:
            continue
        if name != "C" and then.endswith(f"@{start.p}"):
            gathered.append(name)
        else:
            brought.append(f"{name} {'from' if name == 'C' else 'to'} {then}")
    parts = [f"gather {' and '.join(gathered)}"] if gathered else []
    parts += [f"bring {', '.join(brought)}"] if brought else []
    return " and ".join(parts)


def least_seconds(problem: Problem, machine: Machine) -> float:
    """Return a bound below any way to multiply: all devices at the best rate a gemm reaches, nothing else."""
    table = machine.efficiency.get(problem.dtype)
    best = 1.0 if table is None else float(table.values.max())
    devices = len({machine.device_of(rank, problem.p) for rank in range(problem.p)})
    return problem.flop / (devices * machine.peak(problem.dtype) * best)

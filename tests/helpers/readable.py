"""Schedules small enough to read, on a machine with round numbers."""

from pathlib import Path

import umm

GOLDEN = Path(__file__).parents[1] / "golden"
MACHINE = umm.machine(GOLDEN / "round.toml")

# A flop takes 1 ns and a byte on a link 1 ns; an accumulate is charged twice its bytes.
READABLE = {
    "gets-2": (("col", "col", "col", 2), "C", {}),
    "remote-c-2": (("col", "row", "row", 2), "B", {}),
    "replicated-c-4": (("col", "row", "2d@2", 4), "B", {"final": "broadcast"}),
    "no-prefetch-4": (("row", "row", "row", 4), "C", {"prefetch": 0, "max_gemms": 1}),
    "slices-2": (("2d", "cyclic:3x8:2x1", "row", 2), "C", {"granularity": "slice", "offset": "none"}),
}


def made(name):
    (a, b, c, ranks), stationary, options = READABLE[name]
    problem = umm.Problem(m=8, n=8, k=8, a=a, b=b, c=c, ranks=ranks)
    return umm.schedule(problem, MACHINE, stationary=stationary, **options)

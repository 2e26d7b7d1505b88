"""Small traces whose every number can be checked by hand."""

import numpy as np

from umm import Problem, machine, schedule
from umm.layouts.layout import Layout
from umm.program import Chain, Map, Multiply
from umm.program.tensors import Tensor
from umm.schedules.writer.builder import Builder
from umm.traces.trace import Trace


def two_ranks():
    """Two ranks, replicated C; 10 s. The schedule is real, the times are made up.

    0  r0 gemm    0-3        4  r0 gemm    5-7   after 3 0
    1  r1 get     0-2        5  r1 gemm    5-6   after 2
    2  r1 gemm    2-5        6  barrier    7     after 4 5
    3  r0 get     1-5        7  r1 reduce  7-10  after 6
    """
    problem = Problem(m=4, n=6, k=2, a="row", b="row", c="row@2", ranks=2)
    start = np.array([0, 0, 2, 1, 5, 5, 7, 7], dtype=float)
    end = np.array([3, 2, 5, 5, 7, 6, 7, 10], dtype=float)
    return Trace(schedule(problem, "h100-8", stationary="C", final="reduce"), "mpi", start, end)


def gelu_of_a_product():
    """Two ranks, H = X·W in rows of H, W got from each other in turn, then Y = gelu(H); 10 s, made up.

    0  r0 gemm  0-2           4  r1 get   0-5
    1  r0 get   0-4           5  r1 gemm  5-6   after 4
    2  r0 gemm  4-6  after 1  6  r1 gemm  6-8
    3  r0 map   6-9  after 2  7  r1 map   8-10  after 5 6
    """
    shapes = {"X": ("row", (4, 6)), "W": ("col", (6, 8)), "H": ("row", (4, 8)), "Y": ("row", (4, 8))}
    roles = {"H": "work", "Y": "output"}
    tensors = tuple(
        Tensor(name, Layout.parse(text, shape, 2), "float32", roles.get(name, "input"))
        for name, (text, shape) in shapes.items()
    )
    chain = Chain("layer", tensors, (Multiply("H", "X", "W"), Map("Y", "gelu", ("H",))), 2)
    build = Builder("by_rows", chain, machine("h100-8"))
    for rank in range(2):
        for owner in range(2):
            w = build.own("W", owner)
            if owner != rank:
                room = build.temporary(rank, "W", w.rows, w.cols, slot="W")
                build.get(w, room)
                w = room
            build.gemm(build.own("H", rank).part(owner, 2, axis=1), build.own("X", rank), w, beta=0)
        build.map("gelu", build.own("Y", rank), build.own("H", rank))
    start = np.array([0, 0, 4, 6, 0, 5, 6, 8], dtype=float)
    end = np.array([2, 4, 6, 9, 5, 6, 8, 10], dtype=float)
    return Trace(build.schedule(), "mpi", start, end)


def slower(trace, factor, times="measured"):
    """The same trace with all times stretched."""
    return Trace(trace.schedule, "mpi", trace.start * factor, trace.end * factor, times=times)

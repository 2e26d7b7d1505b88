"""One small trace whose every number can be checked by hand."""

import numpy as np

from umm import Problem, schedule
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
    return Trace(schedule(problem, "h100-8", stationary="C"), "mpi", start, end)


def slower(trace, factor, times="measured"):
    """The same trace with all times stretched."""
    return Trace(trace.schedule, "mpi", trace.start * factor, trace.end * factor, times=times)

"""Symmetric products of a chain: the universal algorithm, whose second operand is the first, transposed."""

from dataclasses import replace

import numpy as np

from umm.cost import gemm_seconds, pace_of
from umm.machines import Machine
from umm.plans.statements.lowering import Context, write
from umm.plans.statements.multiplies import append_product, as_problem, one_sided_part
from umm.program.problem import Problem
from umm.program.statements.symmetric import Symmetric
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import GEMM
from umm.schedules.writer.builder import Builder


@write.register
def _(statement: Symmetric, build: Builder, context: Context) -> None:
    """Write a symmetric product."""
    problem = as_problem(statement.product, {tensor.name: tensor for tensor in build.tensors})
    stationary, options = context.asked.stationary(statement.out), context.asked.one_sided(statement.out)
    part = one_sided_part(problem, build.machine, stationary, options)
    if statement.kernel == "syrk":
        part = _by_triangles(part, problem, build.machine)
    append_product(build, statement.product, part, context)


def _by_triangles(part: Schedule, problem: Problem, machine: Machine) -> Schedule:
    """Return the schedule with gemms on the diagonal that take the time of one triangle."""
    # A triangle of n rows has n(n + 1)/2 elements: it takes a gemm's time of n by (n + 1)/2. Whatever a gemm
    # shares with others of its kernel, it shares in proportion.
    gemms = np.flatnonzero(part.kind == GEMM)
    d = part.details.taken(gemms)
    # Equal row and column ranges of C mean a tile on the diagonal; all others are plain gemms.
    gemms = gemms[(d.rows[:, 0] == d.cols[:, 0]).all(axis=1)]
    m, n, k = part.details.taken(gemms).multiplied.T
    pace, c_itemsize = pace_of(machine, part.rank[gemms], problem.p), problem.itemsize("C")
    both, one = (
        gemm_seconds(machine, problem.dtype, m, cols, k, c_itemsize, pace=pace, warm=False)
        for cols in (n, (n + 2) // 2)
    )
    seconds = part.seconds.copy()
    seconds[gemms] *= np.minimum(one / both, 1.0)
    return replace(part, seconds=seconds)

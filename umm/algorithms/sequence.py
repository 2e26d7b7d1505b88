"""Sequence parallel layers: Megatron's, with the activations outside cut by rows.

B by columns: all ranks gather A, then each multiplies its columns of C. B by rows: each multiplies, and the
products are summed where the rows of C belong. An all-reduce is these two, so as much moves as in Megatron's
layers, and no rank holds all activations at rest.
"""

from typing import Any

from umm.algorithms.algorithm import Algorithm, Names, Native
from umm.algorithms.megatron import COLLECTIVE, PART, by_rows, laid_out
from umm.algorithms.writing import gathered, near_or_by_level, scatter_sum
from umm.interval import Interval
from umm.program.problem import Problem
from umm.schedules.writer.builder import Builder


def native(problem: Problem, part: str, **options: Any) -> Native:
    """A by rows and C by columns, or A by columns and C by rows; B as Megatron's."""
    return laid_out(problem, *(("col", "row", "row") if by_rows(problem, part) else ("row", "col", "col")))


def write(build: Builder, names: Names, collective: str, **options: Any) -> None:
    """Gather and multiply, or multiply and scatter the sum."""
    ranks = range(build.ranks)
    collective = near_or_by_level(build, collective, ranks)
    a, b, c = ({rank: build.placed(name)(rank) for rank in ranks} for name in names)
    if build.layout(names.b).grid_shape()[0] == 1:
        # B by columns: each rank needs every row of A, and its columns of C are complete.
        all_of_a = gathered(build, a, collective, "A")
        for rank in ranks:
            build.gemm(c[rank], all_of_a[rank], b[rank], beta=0)
        return
    # B by rows: each rank has a partial sum of all of C, and keeps only its rows of the total.
    rows, cols = (Interval(0, size) for size in build.layout(names.c).shape)
    products = {rank: build.temporary(rank, names.c, rows, cols, "C") for rank in ranks}
    for rank in ranks:
        build.gemm(products[rank], a[rank], b[rank], beta=0)
    scatter_sum(build, collective, products, c)


ALGORITHM = Algorithm(
    "sequence",
    "Tensor parallel layers with activations by rows: A is gathered before, or the sum of C scattered after.",
    "Korthikanti et al. (2022), section 4.2.2",
    native,
    write,
    options=(PART, COLLECTIVE),
)

"""The rows of an op list: which actions each op has, where they stand, and which rows they wait for."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umm.arrays import Ints, in_c
from umm.plans.multiply.oplist import OpList
from umm.plans.multiply.options import Options
from umm.schedules.table.resources import Platform

plan_in_c = in_c("umm.plans.multiply._plan", "plan")


@dataclass(frozen=True, eq=False)
class OpRows:
    """The actions of an op list: their rows in the table, and the rows each waits for."""

    kind: NDArray[np.int8]  # kind of each row
    numbers: Ints  # rank, lane, src and dst of each, and zeros for its bytes
    waits: Ints  # how many rows each one waits for; `after` has them, one row's after another's
    after: Ints
    gemm_row: Ints  # row of each op's gemm
    a_gets: int  # how many gets are of A
    get_row: Ints  # row of each get, those of A first
    elements: Ints  # how many each get moves
    update_op: Ints  # the ops whose update of C goes through a pool slot, `update_row` the accumulate of each
    update_row: Ints


def rows_of(ops: OpList, shared: Platform, options: Options) -> OpRows:
    """Return the rows of an op list."""
    count, (a, b, c), (m, n, k) = len(ops), ops.problem.layouts, (ops.m_axis, ops.n_axis, ops.k_axis)
    # Upper bounds for C code that cannot grow arrays: an op has at most four rows (two gets, a gemm and an
    # accumulate) and eight dependencies. What is not used is cut off below.
    kind, waits = np.empty(4 * count, dtype=np.int8), np.empty(4 * count, dtype=np.int64)
    numbers, after = np.empty((5, 4 * count), dtype=np.int64), np.empty(8 * count, dtype=np.int64)
    of_gets, of_ops = np.empty((2, 2 * count), dtype=np.int64), np.empty((3, count), dtype=np.int64)
    rows, dependencies, a_gets, gets, updated = plan_in_c(
        *(ops.rank, ops.m_segment, ops.n_segment, ops.k_segment),
        *(m.first, m.second, n.first, n.second, k.first, k.second, m.edges, n.edges, k.edges),
        *(a.owners, a.replica_of_rank, a.tile_elements, b.owners, b.replica_of_rank, b.tile_elements),
        *(c.owners, c.replica_of_rank),
        *(numbers, waits, after, of_ops[0], *of_gets, of_ops[1], of_ops[2], kind),
        *(ops.problem.p, a.grid_shape()[1], b.grid_shape()[1], c.grid_shape()[1], c.tile_elements.size),
        options.prefetch + options.max_gemms,
        options.max_gemms + options.max_accumulates,
        *(options.max_accumulates, shared.first_accumulate, shared.machine.copy_engines),
        *(shared.lanes_per_rank, options.granularity == "slice", options.reuse),
    )
    return OpRows(
        kind[:rows], numbers[:, :rows], waits[:rows], after[:dependencies],
        of_ops[0], a_gets, *of_gets[:, :gets], *of_ops[1:, :updated],
    )  # fmt: skip

"""The work of a batch of a chain, or of a multiply of slivers, from layouts alone: no schedule is built."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from umm import cost
from umm.arrays import Floats, Ints
from umm.dtypes import payload_bytes, product_dtype
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.plans.multiply.operands import owners, spans, updates
from umm.plans.multiply.oplist import op_list
from umm.plans.statements.multiplies import may_be_together, products
from umm.program import Multiply
from umm.program.problem import Problem
from umm.program.tensors import Tensor


class BatchWork(NamedTuple):
    """The work of the ranks of a batch, or the least work of those of a multiply."""

    gemms: Floats  # seconds of gemms of each rank
    nbytes: Floats  # bytes that move from rank to rank, shape (p, p); 0 from a rank to itself
    actions: int  # gemms and gets of all ranks, or somewhat more


def batch_work(statement: Multiply, tensors: Mapping[str, Tensor], machine: Machine) -> BatchWork:
    """Return the work of a batch: the gemms of its owners, and each piece of a factor that a rank lacks."""
    out, a, b = (tensors[name] for name in (statement.out, statement.a, statement.b))
    ranks = out.layout.ranks
    made = list(products(statement, tensors))
    rank, members = (np.array([getattr(x, name) for x in made]) for name in ("rank", "members"))
    regions = np.array([(x.out, *x.factors) for x in made], dtype=np.int64)
    lines = np.diff(regions, axis=-1)[..., 0].astype(np.float64)
    for operand, axis in enumerate(statement.batch_axes):  # of one member, not of all side by side
        lines[:, operand, axis] /= members // np.array([x.groups[operand] for x in made])
    sizes = lines[:, 0, 0], lines[:, 0, 1], lines[:, 1, 0 if "a" in statement.trans else 1]
    pace = cost.pace_of(machine, rank, ranks)
    dtype = product_dtype(a.dtype, b.dtype, b.stored)
    took = cost.multiply_seconds(machine, dtype, *sizes, out.itemsize, members, pace=pace)
    # A kernel of several members starts once; each of them takes the rest.
    start = machine.gemm_start(dtype)
    seconds = start + members * (took - start)
    moved, pieces = np.zeros((ranks, ranks)), 0
    for operand, x in enumerate((a, b), 1):
        owners, elements = _needed(x.layout, rank, regions[:, operand])
        pairs = (owners * ranks + rank[:, None]).reshape(-1)
        moved += np.bincount(pairs, elements.reshape(-1) * x.itemsize, ranks**2).reshape(ranks, ranks)
        pieces += int(np.count_nonzero(elements))
    np.fill_diagonal(moved, 0.0)
    gemms = np.bincount(rank, seconds, ranks).astype(np.float64)
    return BatchWork(gemms, moved, len(made) + pieces)


def least_work(problem: Problem, machine: Machine, stationary: str) -> BatchWork:
    """Return the least work of a one-sided multiply: its gemms, and each slice that a rank lacks, once.

    Of gemms that one kernel may do together their flop count: no kernel of their k, nor of a part of it, goes
    above some share of the peak.
    """
    ops, p = op_list(problem, stationary), problem.p
    (m, n, k), rank, moved = ops.sizes, ops.rank, np.zeros(p * p)
    pace = cost.pace_of(machine, rank, p)
    if machine.refill or may_be_together(problem):
        rate = machine.peak(problem.dtype) * float(machine.most_efficiency(problem.dtype, problem.k))
        faster = cost.least_factors(machine, problem.dtype, (1, 1, 1), (problem.m, problem.n, problem.k))
        took = 2.0 * m * n * k / (rate * np.asarray(pace.peak)) * faster
    else:
        took = cost.multiply_seconds(machine, problem.dtype, m, n, k, problem.itemsize("C"), pace=pace)
    actions = len(ops)
    for matrix, (slices, size) in enumerate(zip(spans(ops, True), (m * k, k * n), strict=True)):
        src = owners(problem.layouts[matrix], rank, ops.tiles[matrix])
        # A slice is got once per rank: (rank, slice) pairs become one number, and repeated needs collapse.
        number = rank * (int(slices.max(initial=0)) + 1) + slices
        last = np.full(int(number.max(initial=-1)) + 1, -1)  # op that needs each slice last
        last[number] = np.arange(len(ops))
        last_uses = last[last >= 0]
        last_uses = last_uses[src[last_uses] != rank[last_uses]]
        nbytes = payload_bytes(size[last_uses], problem.dtype)
        moved += np.bincount(src[last_uses] * p + rank[last_uses], nbytes, p * p)
        actions += len(last_uses)
    owner, slotted = updates(problem.layouts[2], rank, ops.tiles[2])
    added = (m * n * problem.itemsize("C"))[slotted] / machine.accumulate_efficiency
    moved += np.bincount(rank[slotted] * p + owner[slotted], added, p * p)
    between = moved.reshape(p, p)
    np.fill_diagonal(between, 0.0)
    gemms = np.bincount(rank, took, p).astype(np.float64)
    return BatchWork(gemms, between, actions + int(np.count_nonzero(slotted)))


def _needed(layout: Layout, rank: Ints, regions: Ints) -> tuple[Ints, Ints]:
    """Return who owns each tile, for each region, and the elements that are needed of it."""
    # layout: of a tensor, complete in every replica. rank: who needs each region. regions: rows and columns,
    # shape (regions, 2, 2).
    shared = []
    for edges, (start, stop) in zip(
        (layout.row_edges, layout.col_edges), regions.transpose(1, 2, 0), strict=True
    ):
        low, high = np.maximum(edges[:-1], start[:, None]), np.minimum(edges[1:], stop[:, None])
        shared.append(np.maximum(high - low, 0))
    elements = shared[0][:, :, None] * shared[1][:, None, :]
    # Each rank gets from its own replica, which is complete.
    owners = layout.owners[layout.replica_of_rank[rank]]
    return owners.reshape(len(rank), -1), elements.reshape(len(rank), -1)

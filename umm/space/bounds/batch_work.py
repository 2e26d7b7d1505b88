"""What a batch of a chain takes of each resource, from its layouts alone: no schedule is built."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from umm import cost
from umm.algorithms.chains.batches import products
from umm.arrays import Floats, Ints
from umm.chains import Multiply
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.tensors import Tensor


class BatchWork(NamedTuple):
    """What the ranks of a batch do.

    Attributes:
        gemms: Seconds of gemms of each rank.
        nbytes: Bytes that move from rank to rank, shape (p, p); 0 from a rank to itself.
        actions: Gemms and gets of all ranks, or somewhat more.
    """

    gemms: Floats
    nbytes: Floats
    actions: int


def batch_work(statement: Multiply, tensors: Mapping[str, Tensor], machine: Machine) -> BatchWork:
    """Return what a batch takes: the gemms of its owners, and each piece of a factor that a rank lacks, once.

    Args:
        statement: The batch.
        tensors: Its tensors, laid out.
        machine: Where.
    """
    out, a, b = (tensors[name] for name in (statement.out, statement.a, statement.b))
    ranks = out.layout.ranks
    made = list(products(statement, tensors))
    rank, members = (np.array([getattr(x, name) for x in made]) for name in ("rank", "members"))
    regions = np.array([(x.out, *x.factors) for x in made], dtype=np.int64)
    lines = np.diff(regions, axis=-1)[..., 0].astype(np.float64)
    for operand, axis in enumerate(statement.batch_axes):  # of one member, not of all side by side
        lines[:, operand, axis] /= members // np.array([x.groups[operand] for x in made])
    sizes = lines[:, 0, 0], lines[:, 0, 1], lines[:, 1, 0 if "a" in statement.trans else 1]
    took = cost.gemm_seconds(machine, a.dtype, *sizes, out.itemsize, members)
    seconds = machine.launch_s + members * (took - machine.launch_s)
    moved, pieces = np.zeros((ranks, ranks)), 0
    for operand, x in enumerate((a, b), 1):
        needed, tiles = _needed(x.layout, rank, regions[:, operand])
        moved += needed * x.itemsize
        pieces += tiles
    np.fill_diagonal(moved, 0.0)
    return BatchWork(np.bincount(rank, seconds, ranks).astype(np.float64), moved, len(made) + pieces)


def _needed(layout: Layout, rank: Ints, regions: Ints) -> tuple[Floats, int]:
    """Return the elements that ranks need of each other's tiles, and of how many tiles, with their own.

    Args:
        layout: Of a tensor, complete in every replica.
        rank: Who needs each region.
        regions: Rows and columns, shape (regions, 2, 2).
    """
    shared = []
    for edges, (start, stop) in zip(
        (layout.row_edges, layout.col_edges), regions.transpose(1, 2, 0), strict=True
    ):
        low, high = np.maximum(edges[:-1], start[:, None]), np.minimum(edges[1:], stop[:, None])
        shared.append(np.maximum(high - low, 0))
    elements = shared[0][:, :, None] * shared[1][:, None, :]
    owners = layout.owners[layout.replica_of_rank[rank]]
    found = np.bincount(
        (owners * layout.ranks + rank[:, None, None]).reshape(-1), elements.reshape(-1), layout.ranks**2
    )
    return found.reshape(layout.ranks, -1).astype(np.float64), int(np.count_nonzero(elements))

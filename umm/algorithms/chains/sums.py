"""The sums of a chain over replicas that hold partial sums: all-reduce, reduce-scatter, reduce."""

from umm.algorithms.chains.pieces import tiles_by_rank
from umm.algorithms.collectives.replicas import SUMMED, summed
from umm.program import Sum
from umm.schedules.writer.builder import Builder


def sum_replicas(build: Builder, statement: Sum, written: bool) -> None:
    """Write a sum of a chain; every replica of what it writes is complete afterwards.

    Args:
        build: Where the actions go.
        statement: The sum.
        written: Whether an earlier statement has written to its output, so that it is not zero.
    """
    x = build.layout(statement.x)
    if statement.out == statement.x:
        _in_place(build, statement.x)
        return
    for _, tile, replica in tiles_by_rank(build.layout(statement.out)):
        target = build.tile(statement.out, *tile, replica)
        if written:
            build.map("zero", target)
        for source in range(x.replicas):
            for other in x.overlapping_tiles(target.rows, target.cols):
                piece = build.tile(statement.x, *other, (source + replica) % x.replicas)
                piece = piece.cut(target.rows, target.cols)
                build.accumulate(piece, target.cut(piece.rows, piece.cols))


def _in_place(build: Builder, tensor: str) -> None:
    """Let every replica of a tensor hold the sum, by the all-reduce that takes least."""
    x = build.tensors[build.number(tensor)]
    if x.layout.replicas == 1:
        return
    found = summed("all-reduce", x.layout, x.dtype, build.machine, build.lanes["accumulate"])
    build.append(found.schedule, {SUMMED: tensor}, slots="sum")

"""Sums that a collective leaves where they belong: of partial products, and of replicas."""

from collections.abc import Mapping

from umm.algorithms.collectives.registry import ways
from umm.algorithms.option import Option
from umm.schedules.table.slices import Slice
from umm.schedules.writer.builder import Builder

SUM = Option(
    "sum", "direct", "How partial sums of C are added up.", ("direct", "ring"), words="sum {}".format
)


def scatter_sum(build: Builder, way: str, partials: Mapping[int, Slice], owners: Mapping[int, Slice]) -> None:
    """Add the sum of what some ranks hold to where its parts belong; what they hold is spoilt.

    Args:
        build: Where the actions go.
        way: A way to do a reduce-scatter.
        partials: Each rank's partial sum, all of the same rows and columns.
        owners: Where each of these ranks wants its part of the sum, zero before.
    """

    def given(rank: int, owner: int) -> Slice:
        return partials[rank].cut(owners[owner].rows, owners[owner].cols)

    scatter = ways()[way].writers["reduce-scatter"]
    scatter(build, list(partials), given, owners.__getitem__, room=given, zeroed=True)


def sum_replicas(build: Builder, way: str, tensor: str) -> None:
    """Let every replica of a tensor hold the sum of all replicas, in place, tile by tile.

    Args:
        build: Where the actions go.
        way: A way to do an all-reduce.
        tensor: Its name.
    """
    layout = build.layout(tensor)
    rows, cols = layout.grid_shape()
    for i in range(rows):
        for j in range(cols):
            tiles = {x.rank: x for x in (build.tile(tensor, i, j, r) for r in range(layout.replicas))}
            ways()[way].writers["all-reduce"](build, list(tiles), tiles.__getitem__, tiles.__getitem__)

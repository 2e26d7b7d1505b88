"""The layouts an operand may have, as texts: partitions, process grids, replication factors and orders."""

from collections.abc import Iterable, Sequence
from itertools import product

from umm.layouts.edges import square_grid
from umm.layouts.text import FLAGS


def written_layouts(
    ranks: int, partitions: Sequence[str], factors: Sequence[int], orders: Sequence[str], grids: str
) -> Iterable[str]:
    """Yield the text of every combination, those that mean the same included.

    Args:
        ranks: Processes that share the work.
        partitions: Partitions of one replica: ``row``, ``2d``, ``2d:3x4``, ``cyclic:256x128``, …
        factors: Replication factors.
        orders: Replica orders: ``blocked``, ``interleaved``.
        grids: Process grids of ``2d`` and ``cyclic`` without one: ``square`` or ``all``.

    >>> list(written_layouts(4, ("row", "2d"), (1, 2), ("blocked",), "all"))
    ['row', '2d:1x4', '2d:2x2', '2d:4x1', 'row@2', '2d:1x2@2', '2d:2x1@2']
    """
    for factor, partition, order in product(factors, partitions, orders):
        if factor == 1 and order != orders[0]:
            continue  # one replica has no order
        suffix = "" if factor == 1 else f"@{factor}" + (f":{order}" if order != "blocked" else "")
        if ranks % factor:
            yield partition + f"@{factor}"  # parsing it says which factors there are
            continue
        for written in _with_grid(partition, ranks // factor, grids):
            yield written + suffix


def _with_grid(partition: str, places: int, grids: str) -> Iterable[str]:
    """Yield a partition with the process grids it may have on the places of a replica."""
    name, *rest = partition.split(":")
    inner = [word for word in rest if word not in FLAGS]
    tail = "".join(f":{flag}" for flag in FLAGS if flag in rest)
    given = len(inner) == {"2d": 1, "cyclic": 2, "edges": 2}.get(name, -1)
    if given:
        rows, _, cols = inner[-1].partition("x")
        if not (rows.isdecimal() and cols.isdecimal()) or int(rows) * int(cols) == places:
            yield partition
        return
    if name not in ("2d", "cyclic"):
        yield partition
        return
    if grids == "square" and name == "2d":
        yield partition
        return
    square = (square_grid(places),)
    pairs = (
        square if grids == "square" else [(r, places // r) for r in range(1, places + 1) if places % r == 0]
    )
    for rows_, cols_ in pairs:
        yield ":".join([name, *inner, f"{rows_}x{cols_}"]) + tail

"""The actions of a schedule that becomes a part of a larger one, its buffers numbered as there."""

from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np

from umm.interval import Interval
from umm.schedules.table.buffers import first_tiles
from umm.schedules.table.details import Multiplied
from umm.schedules.table.kinds import GEMM
from umm.schedules.table.slices import Slice
from umm.schedules.table.table import Table
from umm.schedules.writer.costs import PLAIN, Action

Temporary = Callable[[int, int, int, Interval, Interval], int]


def appended(
    part: Table,
    tensors: Sequence[int],
    firsts: Sequence[int],
    functions: Sequence[int],
    temporary: Temporary,
    transposed: Collection[int] = (),
    alpha: float = 1.0,
) -> Iterator[Action]:
    """Yield the actions of a part; what each waits for is left to the caller.

    Args:
        part: The schedule.
        tensors: Number in the whole of each of its tensors.
        firsts: Number in the whole of each of the whole's tensors' first owned tile.
        functions: Number in the whole of each of its functions.
        temporary: Makes a temporary of the whole from its rank, slot, tensor, rows and columns.
        transposed: Numbers of its tensors that the whole has transposed.
        alpha: Factor of its products.
    """
    own, buffers, details = first_tiles(part.tensors), part.buffers, part.details
    moved = []
    for number, tensor in enumerate(buffers.tensor[: part.first_temporary].tolist()):
        tile = _transposed_tile(part, number, tensor) if tensor in transposed else number
        moved.append(firsts[tensors[tensor]] + tile - own[tensor])

    def ranges(tensor: int, rows: list[int], cols: list[int]) -> tuple[Interval, Interval]:
        spans = Interval(*rows), Interval(*cols)
        return (spans[1], spans[0]) if tensor in transposed else spans

    held = part.temporaries
    for rank, slot, tensor, rows, cols in zip(
        *(x.tolist() for x in (held.rank, held.slot, held.tensor, held.rows, held.cols)), strict=True
    ):
        moved.append(temporary(rank, slot, tensors[tensor], *ranges(tensor, rows, cols)))
    rank_of, tensor_of = buffers.rank.tolist(), buffers.tensor.tolist()
    means = np.full(len(part), -1) if part.means_of is None else part.means_of
    columns = (part.kind, part.rank, part.lane, part.seconds, part.nbytes, means, details.fn)
    slices = (details.buffer, details.rows, details.cols)
    for (kind, rank, lane, seconds, nbytes, way, fn), *operands, multiplied in zip(
        zip(*(x.tolist() for x in columns), strict=True),
        *(x.tolist() for x in slices),
        _multiplied(part, transposed, alpha),
        strict=True,
    ):
        pieces = tuple(
            Slice(
                moved[buffer],
                rank_of[buffer],
                tensors[tensor_of[buffer]],
                *ranges(tensor_of[buffer], rows, cols),
            )
            for buffer, rows, cols in zip(*operands, strict=True)
            if buffer >= 0
        )
        yield Action(
            kind,
            rank,
            part.lanes.names[lane] if lane >= 0 else "",
            pieces,
            seconds=seconds,
            means=part.means[way].name if way >= 0 else None,
            multiplied=multiplied if kind == GEMM else PLAIN,
            fn=functions[fn] if fn >= 0 else -1,
            nbytes=nbytes,
        )


def _transposed_tile(part: Table, number: int, tensor: int) -> int:
    """Return the number that an owned tile has where the tensor is stored transposed."""
    layout, first = part.tensors[tensor].layout, first_tiles(part.tensors)[tensor]
    grid_rows, grid_cols = layout.grid_shape()
    replica, tile = divmod(number - first, grid_rows * grid_cols)
    i, j = divmod(tile, grid_cols)
    return first + (replica * grid_cols + j) * grid_rows + i


def _multiplied(part: Table, transposed: Collection[int], alpha: float) -> Iterator[Multiplied]:
    """Yield how each action would multiply; only gemms do."""
    d = part.details
    turned = sum(np.isin(part.operand_tensors(operand), list(transposed)) << operand for operand in (1, 2))
    axes, groups = ([tuple(row) for row in x.tolist()] for x in (d.batch_axes, d.groups))
    columns = (x.tolist() for x in (d.trans ^ turned, d.alpha * alpha, d.beta, d.batch))
    return map(Multiplied, *columns, axes, groups)

"""The actions of a schedule that becomes a part of a larger one, its buffers numbered as there."""

from collections.abc import Callable, Collection, Iterator, Sequence

from umm.interval import Interval
from umm.schedules.buffers import first_tiles
from umm.schedules.details import Multiplied
from umm.schedules.kinds import GEMM
from umm.schedules.priced import PLAIN, Action
from umm.schedules.slices import Slice
from umm.schedules.table import Table

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
    for i, kind in enumerate(part.kind.tolist()):
        pieces = tuple(
            Slice(
                moved[buffer],
                rank_of[buffer],
                tensors[tensor_of[buffer]],
                *ranges(tensor_of[buffer], rows, cols),
            )
            for buffer, rows, cols in zip(
                *(x[i].tolist() for x in (details.buffer, details.rows, details.cols)), strict=True
            )
            if buffer >= 0
        )
        lane, means = int(part.lane[i]), -1 if part.means_of is None else int(part.means_of[i])
        yield Action(
            kind,
            int(part.rank[i]),
            part.lanes.names[lane] if lane >= 0 else "",
            pieces,
            seconds=float(part.seconds[i]),
            means=part.means[means].name if means >= 0 else None,
            multiplied=_multiplied(part, i, transposed, alpha) if kind == GEMM else PLAIN,
            fn=functions[details.fn[i]] if details.fn[i] >= 0 else -1,
            nbytes=int(part.nbytes[i]),
        )


def _transposed_tile(part: Table, number: int, tensor: int) -> int:
    """Return the number that an owned tile has where the tensor is stored transposed."""
    layout, first = part.tensors[tensor].layout, first_tiles(part.tensors)[tensor]
    grid_rows, grid_cols = layout.grid_shape()
    replica, tile = divmod(number - first, grid_rows * grid_cols)
    i, j = divmod(tile, grid_cols)
    return first + (replica * grid_cols + j) * grid_rows + i


def _multiplied(part: Table, i: int, transposed: Collection[int], alpha: float) -> Multiplied:
    d = part.details
    tensors = part.buffers.tensor[d.buffer[i, :3]].tolist()
    turned = sum(1 << operand for operand in (1, 2) if tensors[operand] in transposed)
    axes, groups = (tuple(x[i].tolist()) for x in (d.batch_axes, d.groups))
    trans = int(d.trans[i]) ^ turned
    return Multiplied(trans, alpha * float(d.alpha[i]), float(d.beta[i]), int(d.batch[i]), axes, groups)

"""Rows of a schedule while it is built, and how parts become one schedule."""

import gc
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umm.arrays import Ints, offsets_of
from umm.interval import Interval
from umm.program.problem import Problem
from umm.schedules.schedule import Schedule
from umm.schedules.table.buffers import Buffers, Slice, first_tiles, joined
from umm.schedules.table.details import GEMM, Details, Multiplied
from umm.schedules.table.resources import Platform
from umm.schedules.table.table import Data, Table, check_moved
from umm.schedules.writer.costs import PLAIN, Action


@contextmanager
def without_collector() -> Iterator[None]:
    """Keep the collector still while a schedule is made or played: many objects, and none in cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@dataclass(frozen=True, eq=False)
class Rows:
    """Consecutive actions as columns; see :class:`umm.schedules.table.table.Schedule` for their meaning.

    Attributes:
        numbers: Rank, lane, src, dst and nbytes of each action, shape (5, actions): one array, because
            joining parts costs by the array.
        waits: Number of dependencies of each action.
        after: The dependencies, one action's after another's, as table rows.
        fill: Writes the rows' details, given the details' columns cut to these rows and the number that
            its first temporary will have; returns its temporaries.
    """

    kind: NDArray[np.int8]
    numbers: Ints
    waits: Ints
    after: Ints
    seconds: NDArray[np.float64]
    fill: Callable[[Details, int], Buffers]


def no_data(details: Details, first: int) -> Buffers:
    """Leave the details as they are, for rows that touch no data; see :class:`Rows`."""
    return joined([])


def assemble(
    parts: Sequence[Rows],
    problem: Problem,
    stationary: str,
    shared: Platform,
    options: Mapping[str, Any],
    pools: Callable[[], list[Ints]],
) -> Schedule:
    """Return the schedule whose table is these parts, one below the other."""

    def make_data() -> Data:
        details = Details.empty(sum(len(part.kind) for part in parts))
        temporaries: list[Buffers] = []
        start, first = 0, first_tiles(problem.tensors)[-1]
        for part in parts:
            stop = start + len(part.kind)
            temporaries.append(part.fill(details.cut(start, stop), first))
            start, first = stop, first + len(temporaries[-1])
        return Data(details, joined(temporaries))

    machine = shared.machine
    rank, lane, src, dst, nbytes = _joined([part.numbers for part in parts])
    check_moved(nbytes)
    return Schedule(
        program=problem,
        stationary=stationary,
        machine=machine.name,
        ranks=problem.p,
        interference=machine.interference,
        links=shared.links,
        routes=shared.routes,
        lanes=shared.lanes,
        kind=_joined([part.kind for part in parts]),
        rank=rank,
        lane=lane,
        after_offsets=offsets_of(_joined([part.waits for part in parts])),
        after=_joined([part.after for part in parts]),
        src=src,
        dst=dst,
        nbytes=nbytes,
        seconds=_joined([part.seconds for part in parts]),
        make_data=make_data,
        make_pools=pools,
        options=options,
        peak=machine.total_peak(problem.dtype, shared.devices),
    )


def _joined(columns: list[NDArray[Any]]) -> NDArray[Any]:
    return columns[0] if len(columns) == 1 else np.concatenate(columns, axis=-1)


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

"""The memory a schedule in the making uses, its rows, and how parts become one schedule."""

import gc
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umm.arrays import Ints, offsets_of
from umm.errors import ScheduleError
from umm.interval import Interval
from umm.layouts.layout import Layout
from umm.program.problem import Problem
from umm.program.tensors import Tensor
from umm.schedules.schedule import Schedule
from umm.schedules.table.buffers import Buffers, Slice, first_tiles, joined, owned_tiles
from umm.schedules.table.details import GEMM, Details, Multiplied
from umm.schedules.table.resources import Platform
from umm.schedules.table.table import Amounts, Data, Table, check_moved
from umm.schedules.writer.costs import PLAIN, Action


class Room:
    """Slices of the tensors of some ranks.

    Args:
        tensors: All tensors.
        ranks: Number of ranks.

    Attributes:
        firsts: Number of each tensor's first owned tile, and of the first temporary.
        temporaries: Rank, pool slot and extent of each temporary so far.
    """

    def __init__(self, tensors: Sequence[Tensor], ranks: int) -> None:
        self.tensors, self.ranks = tuple(tensors), ranks
        self._numbers = {tensor.name: number for number, tensor in enumerate(self.tensors)}
        if len(self._numbers) < len(self.tensors):
            raise ScheduleError("two tensors have the same name")
        self.firsts = first_tiles(self.tensors)
        self._owners = owned_tiles(self.tensors).rank.tolist()
        self.temporaries: list[tuple[int, int, Slice]] = []
        self._places: list[tuple[int, int]] = []  # rank and pool slot of each temporary
        self._slots: list[dict[Hashable, int]] = [{} for _ in range(ranks)]

    def number(self, tensor: str) -> int:
        """Return the number of a tensor."""
        if tensor not in self._numbers:
            raise ScheduleError(f"there is no tensor {tensor!r}; choose from {', '.join(self._numbers)}")
        return self._numbers[tensor]

    def layout(self, tensor: str) -> Layout:
        """Return the layout of a tensor."""
        return self.tensors[self.number(tensor)].layout

    def tile(self, tensor: str, i: int, j: int, replica: int = 0) -> Slice:
        """Return a tile of a tensor where its owner in a replica keeps it."""
        number = self.number(tensor)
        layout = self.tensors[number].layout
        rows, cols = layout.tile_bounds((i, j))
        grid_rows, grid_cols = layout.grid_shape()
        if not 0 <= replica < layout.replicas:
            raise ScheduleError(f"{tensor} has {layout.replicas} replicas; there is no replica {replica}")
        buffer = self.firsts[number] + (replica * grid_rows + i) * grid_cols + j
        return Slice(buffer, self._owners[buffer], number, rows, cols)

    def own(
        self, tensor: str, rank: int, rows: Interval | None = None, cols: Interval | None = None
    ) -> Slice:
        """Return what a rank owns of a tensor: its tile, or the part of it in some rows and columns.

        A rank that owns several tiles says by rows or columns which one is meant; one that owns none, or
        nothing there, gets an empty slice.

        Raises:
            ScheduleError: if parts of several tiles lie there.
        """
        number = self.number(tensor)
        layout = self.tensors[number].layout
        replica = layout.replica(rank)
        found = None
        for i, j in layout.tiles_of(rank):
            piece = self.tile(tensor, i, j, replica)
            if rows is not None or cols is not None:
                piece = piece.cut(rows or piece.rows, cols or piece.cols)
            if piece.elements and found is not None:
                raise ScheduleError(
                    f"rank {rank} owns several tiles of {tensor} ({layout}); say which rows and columns"
                )
            if piece.elements:
                found = piece
        nothing = Slice(-1, rank, number, Interval(0, 0), Interval(0, 0))
        return found or nothing

    def temporary(
        self, rank: int, tensor: str, rows: Interval, cols: Interval, slot: Hashable = None
    ) -> Slice:
        """Return room for a piece of a tensor in a rank's pool.

        Args:
            rank: Whose pool.
            tensor: What it is a piece of.
            rows: Its rows.
            cols: Its columns.
            slot: Equal keys of a rank share a pool slot; None takes a new one.
        """
        number = self.number(tensor)
        return self._held(rank, number, rows, cols, ("", len(self._slots[rank])) if slot is None else slot)

    def part_temporary(
        self, slots: Hashable, rank: int, slot: int, tensor: int, rows: Interval, cols: Interval
    ) -> int:
        """Return the number of a new temporary for a part whose pool slots are known by a key."""
        return self._held(rank, tensor, rows, cols, (slots, slot)).buffer

    def reserve(self, slots: Hashable, pools: Sequence[Ints]) -> None:
        """Take the pool slots of a part, known by a key, before any other: they keep their numbers."""
        for rank, sizes in enumerate(pools):
            self._slots[rank] = {(slots, slot): slot for slot in range(len(sizes))}

    def place(self, piece: Slice) -> Hashable:
        """Return what accesses to a slice may conflict on: its owned tile, or its pool slot."""
        temporary = piece.buffer - self.firsts[-1]
        return piece.buffer if temporary < 0 else self._places[temporary]

    def _held(self, rank: int, tensor: int, rows: Interval, cols: Interval, key: Hashable) -> Slice:
        slots = self._slots[rank]
        piece = Slice(self.firsts[-1] + len(self.temporaries), rank, tensor, rows, cols)
        if piece.elements:
            place = rank, slots.setdefault(key, len(slots))
            self._places.append(place)
            self.temporaries.append((*place, piece))
        return piece


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
        amounts: Returns what they move and multiply; None if that follows from the details.
    """

    kind: NDArray[np.int8]
    numbers: Ints
    waits: Ints
    after: Ints
    seconds: NDArray[np.float64]
    fill: Callable[[Details, int], Buffers]
    amounts: Callable[[], Amounts] | None = None


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

    amounts = [part.amounts for part in parts if part.amounts is not None]

    def make_amounts() -> Amounts:
        made = [amount() for amount in amounts]
        return Amounts(_joined([x.payload for x in made]), _joined([x.flop for x in made]))

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
        make_amounts=make_amounts if len(amounts) == len(parts) else None,
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

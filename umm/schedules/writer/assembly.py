"""The memory a schedule in the making uses, its rows, and how parts become one schedule."""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umm.arrays import Ints
from umm.errors import ScheduleError
from umm.interval import Interval
from umm.layouts.layout import Layout
from umm.program.tensors import Tensor
from umm.schedules.table.buffers import Buffers, Slice, Slices, first_tiles, joined, owners
from umm.schedules.table.details import GEMM
from umm.schedules.table.table import Table
from umm.schedules.writer.costs import Lines


class Room:
    """Slices of the tensors of some ranks."""

    def __init__(self, tensors: Sequence[Tensor], ranks: int) -> None:
        self.tensors, self.ranks = tuple(tensors), ranks
        self._numbers = {tensor.name: number for number, tensor in enumerate(self.tensors)}
        if len(self._numbers) < len(self.tensors):
            raise ScheduleError("two tensors have the same name")
        # Number of each tensor's first owned tile, and of the first temporary.
        self.firsts = first_tiles(self.tensors)
        self._owners = owners(self.tensors).tolist()
        self._tiles: dict[int, Slice] = {}  # those that were asked for, by buffer
        self._at_ranks: dict[int, list[Slice] | None] = {}  # by tensor, see :meth:`of_ranks`
        self._owned: dict[int, list[Slice]] = {}  # the same where what is empty has no buffer
        self._filled: dict[int, list[list[Slice]]] = {}  # by tensor, those of each rank that are not empty
        self._grids = [tensor.layout.grid_shape() for tensor in self.tensors]
        self.held = 0  # how many temporaries there are
        self._temporaries: list[list[tuple[int, ...]] | Buffers] = []
        self._places: dict[tuple[int, int], int] = {}  # by rank and pool slot
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
        grid_rows, grid_cols = self._grids[number]
        buffer = self.firsts[number] + (replica * grid_rows + i) * grid_cols + j
        # Tiles are asked for again and again by large schedules; bounds are checked for one that was seen
        # too, as a wrong (i, j) may give the number of another tile.
        known = self._tiles.get(buffer)
        if known is not None and 0 <= i < grid_rows and 0 <= j < grid_cols and known.tensor == number:
            return known
        layout = self.tensors[number].layout
        rows, cols = layout.tile_bounds((i, j))
        if not 0 <= replica < layout.replicas:
            raise ScheduleError(f"{tensor} has {layout.replicas} replicas; there is no replica {replica}")
        return self._tiles.setdefault(buffer, Slice(buffer, self._owners[buffer], number, rows, cols))

    def placed(self, tensor: str) -> Callable[[int], Slice]:
        """Return a function from a rank, by its place in a replica, to its tile of a tensor."""
        tiles = self.of_ranks(self.number(tensor))
        if tiles is not None:
            return tiles.__getitem__
        replicas, rows, cols = (x.tolist() for x in self.layout(tensor).place_of_rank)
        return lambda rank: self.tile(tensor, rows[rank], cols[rank], replicas[rank])

    def of_ranks(self, number: int) -> list[Slice] | None:
        """Return the tile of each rank, made at once; None if ranks have several, or some none."""
        if number not in self._at_ranks:
            layout = self.tensors[number].layout
            # As many tiles as ranks of a replica: each rank has one, at its place in the process grid.
            alone = layout.grid_shape() == layout.process_grid
            at = np.arange(self.ranks), *layout.place_of_rank
            self._at_ranks[number] = self._made(number, *at) if alone else None
        return self._at_ranks[number]

    def _made(self, number: int, rank: Ints, replica: Ints, i: Ints, j: Ints) -> list[Slice]:
        """Return some tiles of a tensor, made at once, by owner, replica and place in the grid."""
        layout, (grid_rows, grid_cols) = self.tensors[number].layout, self._grids[number]
        buffer = self.firsts[number] + (replica * grid_rows + i) * grid_cols + j
        edges = ((layout.row_edges, i), (layout.col_edges, j))
        spans = np.stack([side[at + x] for side, at in edges for x in (0, 1)], axis=1)
        return Slices(buffer, rank, np.full_like(rank, number), spans).all()

    def own(
        self, tensor: str, rank: int, rows: Interval | None = None, cols: Interval | None = None
    ) -> Slice:
        """Return a rank's tile of a tensor, or the part of it in some rows and columns.

        A rank that owns several tiles says by rows or columns which one is meant; one that owns none, or
        nothing there, gets an empty slice. ScheduleError if parts of several tiles lie there.
        """
        number, result = self.number(tensor), None
        if number not in self._filled:
            owned = self.tensors[number].layout.filled_by_owner
            of_rank = self._filled[number] = [[] for _ in range(self.ranks)]
            for piece in self._made(number, *owned):
                of_rank[piece.rank].append(piece)
        for piece in self._filled[number][rank]:
            (top, bottom), (left, right) = piece[3:]
            # Most of a rank's tiles are elsewhere; to compare is cheaper than to cut.
            if (rows and (rows[0] >= bottom or rows[1] <= top)) or (
                cols and (cols[0] >= right or cols[1] <= left)
            ):
                continue
            if rows is not None or cols is not None:
                piece = piece.cut(rows or piece.rows, cols or piece.cols)
            if piece.elements and result is not None:
                raise ScheduleError(
                    f"rank {rank} owns several tiles of {tensor} ({self.layout(tensor)}); "
                    "say which rows and columns"
                )
            if piece.elements:
                result = piece
        return result or _nothing(rank, number)

    def temporary(
        self, rank: int, tensor: str, rows: Interval, cols: Interval, slot: Hashable = None
    ) -> Slice:
        """Return room for a piece of a tensor in a rank's pool.

        Args:
            slot: Equal keys of a rank share a pool slot; None takes a new one.
        """
        number = self.number(tensor)
        return self._held(rank, number, rows, cols, ("", len(self._slots[rank])) if slot is None else slot)

    def room(
        self, tensor: str, spans: Mapping[int, tuple[Interval, Interval]], slot: Hashable
    ) -> dict[int, Slice]:
        """Return room for pieces of a tensor in the pools of some ranks; see :meth:`temporary`."""
        number = self.number(tensor)
        return {rank: self._held(rank, number, *extent, slot) for rank, extent in spans.items()}

    def owned(self, tensor: str) -> Sequence[Slice]:
        """Return each rank's tile of a tensor of which none owns several; see :meth:`own`."""
        number = self.number(tensor)
        if number not in self._owned:
            self._owned[number] = [self.own(tensor, rank) for rank in range(self.ranks)]
        return self._owned[number]

    def part_temporaries(self, slots: Hashable, part: Buffers, here: Buffers) -> Ints:
        """Return the numbers of new temporaries for those of a part whose pool slots are known by a key.

        An empty one, which nothing touches, has the number of the next.

        Args:
            here: The same, of the tensors here.
        """
        which, full, uses = part.uses
        slot, place = np.zeros((2, which.max(initial=-1) + 1), dtype=np.int64)
        for x, rank, of_part in uses:  # slots are numbered as they are first used
            known = self._slots[rank]
            slot[x] = known.setdefault((slots, of_part), len(known))
            place[x] = self._place(rank, int(slot[x]))
        numbers: Ints = self.firsts[-1] + self.held + full.cumsum() - full
        renumbered = Buffers(here.rank, slot[which], here.tensor, here.rows, here.cols)
        self._temporaries.append(renumbered.taken(full))
        self._hold(place[which[full]].tolist())
        return numbers

    def reserve(self, slots: Hashable, pools: Sequence[Ints]) -> None:
        """Take the pool slots of a part, known by a key, before any other: they keep their numbers."""
        for rank, sizes in enumerate(pools):
            self._slots[rank] = {(slots, slot): slot for slot in range(len(sizes))}

    @property
    def temporaries(self) -> Buffers:
        """All temporaries so far."""
        return joined([x if isinstance(x, Buffers) else _temporaries(x) for x in self._temporaries])

    def _held(self, rank: int, tensor: int, rows: Interval, cols: Interval, key: Hashable) -> Slice:
        slots = self._slots[rank]
        # An empty slice takes no slot and is not counted: the next temporary gets its number.
        piece = Slice(self.firsts[-1] + self.held, rank, tensor, rows, cols)
        if piece.elements:
            slot = slots.setdefault(key, len(slots))
            if not (self._temporaries and isinstance(self._temporaries[-1], list)):
                self._temporaries.append([])
            last = self._temporaries[-1]
            assert isinstance(last, list)
            last.append((rank, slot, tensor, *rows, *cols))
            self._hold((self._place(rank, slot),))
        return piece

    def _hold(self, places: Sequence[int]) -> None:
        """Count new temporaries, known by their places."""
        self.held += len(places)

    def _place(self, rank: int, slot: int) -> int:
        """Return the number of a place that accesses may conflict on: owned tiles, then pool slots."""
        # Accesses conflict by memory, not by buffer: two temporaries in one slot of one rank share a place.
        return self._places.setdefault((rank, slot), self.firsts[-1] + len(self._places))


def _temporaries(rows: Sequence[tuple[int, ...]]) -> Buffers:
    rank, slot, tensor, *spans = np.array(rows, dtype=np.int64).reshape(-1, 7).T
    return Buffers(rank, slot, tensor, np.stack(spans[:2], axis=1), np.stack(spans[2:], axis=1))


def part_lines(
    part: Table,
    tensors: Sequence[int],
    firsts: Sequence[int],
    functions: Sequence[int],
    make_temporaries: Callable[[Buffers, Buffers], Ints],
    transposed: Collection[int] = (),
    alpha: float = 1.0,
    anew: Collection[int] = (),
) -> Lines:
    """Return the actions of a part as lines of another schedule; their waits are left to the caller.

    Args:
        tensors: Number in the whole of each of its tensors.
        firsts: Number in the whole of each of the whole's tensors' first owned tile.
        functions: Number in the whole of each of its functions.
        make_temporaries: Makes temporaries of the whole, given those of the part and how they are there, and
            returns their numbers.
        transposed: Numbers of its tensors that the whole has transposed.
        alpha: Factor of its products.
        anew: Its gemms that write what they add to in it.
    """
    d, renamed = part.details, np.array(tensors, dtype=np.int64)
    temporaries, rows, cols, trans = part.temporaries, d.rows, d.cols, d.trans
    here = replace(temporaries, tensor=renamed[temporaries.tensor])
    # A part is renumbered: its tiles to the tiles of the tensor that stands for theirs, its temporaries to
    # new ones. A tensor that is stored transposed swaps the rows and columns of its slices, and a gemm that
    # reads it flips its trans bit, so that no byte moves for it.
    if transposed:
        turned = np.isin(part.buffers.tensor, list(transposed))
        flips = turned[part.first_temporary :, None]
        sides = (np.where(flips, x, y) for x, y in ((here.cols, here.rows), (here.rows, here.cols)))
        here = Buffers(here.rank, here.slot, here.tensor, *sides)
        swap = np.append(turned, False)[d.buffer][..., None]
        rows, cols = np.where(swap, d.cols, d.rows), np.where(swap, d.rows, d.cols)
        flipped = sum(swap[:, operand, 0].astype(np.int8) << operand for operand in (1, 2))
        trans = np.where(part.kind == GEMM, d.trans ^ flipped, d.trans).astype(np.int8)
    number = np.append(_owned_in(part, renamed, firsts, transposed), make_temporaries(temporaries, here))
    beta = d.beta.copy()
    beta[np.array(anew, dtype=np.int64)] = 0.0
    details = replace(
        d,
        beta=beta,
        buffer=np.append(number, -1)[d.buffer].astype(np.int32),
        rows=rows,
        cols=cols,
        trans=trans,
        alpha=d.alpha if alpha == 1.0 else np.where(part.kind == GEMM, d.alpha * alpha, d.alpha),
        fn=np.append(np.array(functions, dtype=np.int32), np.int32(-1))[d.fn],
    )
    ways = np.full(len(part), -1) if part.means_of is None else part.means_of
    means, way = named([x.name for x in part.means], ways)
    lanes, lane = named(part.lanes.names, part.lane)
    return Lines(
        part.kind, part.rank, lanes, lane, part.seconds, part.nbytes, means, way, np.zeros(len(part)), details
    )


def named(names: Sequence[str], number: NDArray[Any]) -> tuple[tuple[str, ...], Ints]:
    """Return the names that numbers stand for, as they are first met, and the numbers by these; −1 stays."""
    # Of a number that is written several times the last place stays, in reverse order the first.
    where = np.full(len(names) + 1, len(number))
    where[number[::-1]] = np.arange(len(number))[::-1]
    known = {names[x]: 0 for x in where[:-1].argsort(kind="stable").tolist() if where[x] < len(number)}
    place = {name: i for i, name in enumerate(known)}
    new_number = np.array([*(place.get(name, -1) for name in names), -1], dtype=np.int64)
    return tuple(known), new_number[number]


def _owned_in(part: Table, tensors: Ints, firsts: Sequence[int], transposed: Collection[int]) -> Ints:
    """Return the number that each owned tile of a part has in a whole."""
    numbers = []
    for number, (tensor, target) in enumerate(zip(part.tensors, tensors.tolist(), strict=True)):
        rows, cols = tensor.layout.grid_shape()
        tiles: Ints = np.arange(tensor.layout.owners.size)
        if number in transposed:
            tiles = tiles.reshape(-1, cols, rows).transpose(0, 2, 1).reshape(-1)
        numbers.append(firsts[target] + tiles)
    return np.concatenate(numbers)


def _nothing(rank: int, tensor: int) -> Slice:
    """Return an empty slice of a tensor at a rank."""
    return Slice(-1, rank, tensor, Interval(0, 0), Interval(0, 0))

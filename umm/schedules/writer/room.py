"""The memory an algorithm speaks of: the tiles ranks own, and room for pieces of tensors in their pools."""

from collections.abc import Hashable, Sequence

from umm.arrays import Ints
from umm.errors import ScheduleError
from umm.interval import Interval
from umm.layouts.layout import Layout
from umm.program.tensors import Tensor
from umm.schedules.table.buffers import Slice, first_tiles, owned_tiles


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

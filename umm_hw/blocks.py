"""Where each action's data lies: the tiles and pool slots it reads and writes, as blocks of memory."""

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from umm.errors import ScheduleError
from umm.interval import Interval
from umm.layouts.tile_grid import Tile
from umm.problem import MATRICES
from umm.schedules.kinds import ACCUMULATE, BARRIER, GEMM, GET, KINDS, LOCAL, PUT, REDUCE
from umm.schedules.table import Details, Schedule
from umm_hw.matrix import DistributedMatrix, array_dtype
from umm_hw.transport import Block, Transport

ADDING = (ACCUMULATE, REDUCE)


class Work(NamedTuple):
    """The memory of one action: ``writes`` becomes, or gains, ``reads[0]`` or for a gemm reads[0] @ reads[1].

    Attributes:
        reads: One block, two for a gemm (A, then B), none for a barrier and local work.
        writes: The block that changes, of the same shape; None for a barrier and local work.
        adds: Whether it is added to rather than overwritten: accumulate, reduce, and gemms in place.
    """

    reads: tuple[Block, ...]
    writes: Block | None
    adds: bool


NOTHING = Work((), None, False)


class Memory(NamedTuple):
    """One rank's handles on what a schedule needs: its tensors, in order, and the heap with the pools."""

    matrices: tuple[DistributedMatrix, ...]
    pool: int


def place(
    schedule: Schedule, transport: Transport, types: Callable[[str], np.dtype[Any]] = array_dtype
) -> Memory:
    """Allocate the tensors and the pools, exactly ``schedule.memory_bytes``; collective.

    Args:
        schedule: What is to be performed.
        transport: How this rank reaches the others.
        types: The NumPy type that stands for a type of a tensor.

    Raises:
        InputError: for a dtype NumPy does not have.
    """
    tensors = schedule.problem.tensors
    matrices = [DistributedMatrix(transport, tensor.layout, types(tensor.dtype)) for tensor in tensors]
    return Memory(tuple(matrices), transport.allocate(schedule.pool_bytes.tolist()))


def slot_offsets(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each slot of a pool starts, in bytes, without gaps and each aligned to its elements.

    A slot's size is a multiple of its element size, so the slots go by the largest power of two that
    divides their sizes, the largest first.

    >>> slot_offsets(np.array([6, 6, 8])).tolist()
    [8, 14, 0]
    """
    order = np.argsort(-(sizes & -sizes), kind="stable")
    offsets = np.empty(len(sizes), dtype=np.int64)
    offsets[order] = np.cumsum(sizes[order]) - sizes[order]
    return offsets


def resolve(schedule: Schedule, memory: Memory) -> Iterator[Work]:
    """Yield the memory of each action, in row order.

    Raises:
        ScheduleError: for an action whose rank does not hold the tile it names, or whose slot is too
            small or, by row order, holds something else.
    """
    return _Resolver(schedule, memory).works()


class _Resolver:
    """The walk over a schedule's rows, with what each pool slot holds at that row."""

    def __init__(self, schedule: Schedule, memory: Memory) -> None:
        self.schedule = schedule
        self.pool = memory.pool
        self.matrices = memory.matrices
        self.replica = [matrix.layout.replica_of_rank.tolist() for matrix in self.matrices]
        self.sizes = [sizes.tolist() for sizes in schedule.pools]
        self.offsets = [slot_offsets(sizes).tolist() for sizes in schedule.pools]
        self.blocks: dict[tuple[int, Tile, int], tuple[Block, Interval, Interval]] = {}
        self.held: dict[tuple[int, int], tuple[int, Block, Interval, Interval]] = {}
        self.columns: dict[str, list[Any]] = {
            field.name: getattr(schedule.details, field.name).tolist() for field in fields(Details)
        } | {name: getattr(schedule, name).tolist() for name in ("rank", "src", "dst")}
        self.row = 0

    def works(self) -> Iterator[Work]:
        for row, kind in enumerate(self.schedule.kind.tolist()):
            self.row = row
            if kind == GEMM:
                yield self._gemm()
            elif kind in (LOCAL, BARRIER):
                yield NOTHING
            else:
                yield self._transfer(kind)

    def _transfer(self, kind: int) -> Work:
        src, dst, slot = self._value("src"), self._value("dst"), self._value("slot")
        where = self._value("matrix"), self._tile_index("tile"), self._range("rows"), self._range("cols")
        if slot < 0:
            return Work((self._tile(src, *where),), self._tile(dst, *where), kind in ADDING)
        if kind in (GET, PUT):
            return Work((self._tile(src, *where),), self._filled_slot(dst, slot, *where), False)
        return Work((self._held(src, slot, *where),), self._tile(dst, *where), True)

    def _gemm(self) -> Work:
        rank, m, n, k = self._value("rank"), self._range("m"), self._range("n"), self._range("k")
        operands = []
        for matrix, name, rows, cols in ((0, "a", m, k), (1, "b", k, n)):
            tile, slot = self._tile_index(f"{name}_tile"), self._value(f"{name}_slot")
            if slot < 0:
                operands.append(self._tile(rank, matrix, tile, rows, cols))
            else:
                operands.append(self._held(rank, slot, matrix, tile, rows, cols))
        tile, slot = self._tile_index("c_tile"), self._value("c_slot")
        if slot < 0:
            return Work(tuple(operands), self._tile(rank, 2, tile, m, n), True)
        return Work(tuple(operands), self._filled_slot(rank, slot, 2, tile, m, n), False)

    def _value(self, column: str) -> int:
        value: int = self.columns[column][self.row]
        return value

    def _tile_index(self, column: str) -> Tile:
        i, j = self.columns[column][self.row]
        return i, j

    def _range(self, column: str) -> Interval:
        return Interval(*self.columns[column][self.row])

    def _tile(self, rank: int, matrix: int, tile: Tile, rows: Interval, cols: Interval) -> Block:
        """Return a part of a tile that a rank holds itself."""
        key = (matrix, tile, self.replica[matrix][rank])
        if key not in self.blocks:
            whole = self.matrices[matrix].block(tile, key[2])
            self.blocks[key] = (whole, *self.matrices[matrix].tile_bounds(tile))
        block, all_rows, all_cols = self.blocks[key]
        if block.rank != rank:
            raise self._error(
                f"uses tile {tile} of {MATRICES[matrix]} as rank {rank}'s own, but rank {block.rank} holds it"
            )
        return block.cut(rows.shift(-all_rows.start), cols.shift(-all_cols.start))

    def _filled_slot(
        self, rank: int, slot: int, matrix: int, tile: Tile, rows: Interval, cols: Interval
    ) -> Block:
        """Return the start of a slot as a block that from this row on holds a part of a matrix."""
        dtype = self.matrices[matrix].dtype
        nbytes = rows.size * cols.size * dtype.itemsize
        if nbytes > self.sizes[rank][slot]:
            raise self._error(f"fills slot {slot} of {self.sizes[rank][slot]} bytes with {nbytes} bytes")
        block = Block(rank, self.pool, self.offsets[rank][slot], rows.size, cols.size, cols.size, dtype)
        self.held[rank, slot] = (matrix, block, rows, cols)
        return block

    def _held(self, rank: int, slot: int, matrix: int, tile: Tile, rows: Interval, cols: Interval) -> Block:
        """Return a part of what a slot holds."""
        held = self.held.get((rank, slot))
        if held is not None and held[0] == matrix:
            _, block, all_rows, all_cols = held
            if rows.intersect(all_rows) == rows and cols.intersect(all_cols) == cols:
                return block.cut(rows.shift(-all_rows.start), cols.shift(-all_cols.start))
        raise self._error(
            f"reads rows {rows.start}:{rows.stop}, columns {cols.start}:{cols.stop} of {MATRICES[matrix]} "
            f"in slot {slot}, where no row before put them"
        )

    def _error(self, why: str) -> ScheduleError:
        kind, rank = KINDS[self.schedule.kind[self.row]], self.schedule.rank[self.row]
        return ScheduleError(f"action {self.row} ({kind} of rank {rank}) {why}")

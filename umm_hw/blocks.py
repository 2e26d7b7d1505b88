"""Where each action's data lies: the tiles and pool slots it reads and writes, as blocks of memory."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from umm.arrays import Ints
from umm.interval import Interval
from umm.program.functions import Function, function
from umm.program.functions.signature import Spans
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import ACCUMULATE, GEMM, MAP, REDUCE, Multiplied
from umm_hw.float8 import pools_of, stand_ins
from umm_hw.matrix import DistributedMatrix, array_dtype
from umm_hw.transport import Block, Transport

ADDING = (ACCUMULATE, REDUCE)


class Mapped(NamedTuple):
    """A map's function and the place of its arrays in the complete tensors."""

    function: Function  # from the arrays that are read to the one that is written
    parameters: Mapping[str, Any]  # keyword arguments of the function
    rows: tuple[int, int]  # global rows r of its signature, half-open
    cols: tuple[int, int]  # global columns c
    shape: tuple[int, int]  # r and c of the complete tensors
    # For a function with more letters: rows and columns of every operand, the written one first.
    spans: Spans = ()

    def __call__(self, *reads: Any, like: Any = None) -> Any:
        """Return the map's output, in float32 or wider, as an array of the kind that ``like`` is."""
        place = {"rows": self.rows, "cols": self.cols, "shape": self.shape, "like": like}
        return self.function(*reads, **place, spans=self.spans, **self.parameters)


class Work(NamedTuple):
    """The memory that one action reads and writes."""

    # One block for a transfer, two for a gemm, those of its function for a map; else none.
    reads: tuple[Block, ...]
    writes: Block | None  # The block that changes; None for a barrier and local work.
    adds: bool = False  # whether it gains `reads[0]`, atomically by element: accumulate and reduce
    product: Multiplied | None = None  # The multiplies of a gemm; None for other kinds.
    mapped: Mapped | None = None  # The function and place of a map; None for other kinds.

    @property
    def in_place(self) -> bool:
        """Whether the block that changes is read first, by the action itself."""
        return self.writes in self.reads or (self.product is not None and self.product.beta != 0)


NOTHING = Work((), None)


class Memory(NamedTuple):
    """One rank's handles on a schedule's memory: its tensors, in order, and the heap with the pools."""

    matrices: tuple[DistributedMatrix, ...]
    pool: int


def place(
    schedule: Schedule, transport: Transport, types: Callable[[str], np.dtype[Any]] = array_dtype
) -> Memory:
    """Allocate the tensors and the pools; collective; InputError for a dtype NumPy does not have.

    That is exactly ``schedule.memory_bytes``, and more where sums of 8-bit factors are kept in float64.

    Args:
        transport: How this rank reaches the others.
        types: The NumPy type that stands for a type of a tensor.
    """
    tensors = schedule.tensors
    dtypes = stand_ins(schedule, types)
    matrices = [
        DistributedMatrix(transport, x.layout, dtype) for x, dtype in zip(tensors, dtypes, strict=True)
    ]
    sizes = [int(sizes.sum()) for sizes in pools_of(schedule, dtypes)]
    return Memory(tuple(matrices), transport.allocate(sizes))


def needed_bytes(schedule: Schedule) -> Ints:
    """Return the bytes of each rank that :func:`place` allocates on CPUs."""
    dtypes = stand_ins(schedule, array_dtype)
    wider = schedule.memory_bytes.copy()
    for tensor, dtype in zip(schedule.tensors, dtypes, strict=True):
        wider += tensor.layout.elements_of_rank * (dtype.itemsize - tensor.itemsize)
    wider += np.array([sizes.sum() for sizes in pools_of(schedule, dtypes)]) - schedule.pool_bytes
    return wider


def slot_offsets(sizes: Ints) -> Ints:
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


def resolve(schedule: Schedule, memory: Memory, rows: Ints | None = None) -> Iterator[Work]:
    """Yield the memory of each action, in row order; of some rows alone if these are given."""
    details = schedule.details
    rows = np.arange(len(schedule)) if rows is None else rows
    blocks = _blocks(schedule, memory)
    written, *read = (_pieces(schedule, blocks, operand, rows) for operand in range(details.operands))
    forms = zip(
        *(x[rows].tolist() for x in (details.trans, details.alpha, details.beta, details.batch)),
        *([tuple(row) for row in x[rows].tolist()] for x in (details.batch_axes, details.groups)),
        strict=True,
    )
    maps = _Maps(schedule)
    for row, kind, form, target, reads in zip(
        rows.tolist(), schedule.kind[rows].tolist(), forms, written, zip(*read, strict=True), strict=True
    ):
        if target is None:
            yield NOTHING
            continue
        product = Multiplied(*form) if kind == GEMM else None
        done = maps.mapped(row) if kind == MAP else None
        yield Work(tuple(x for x in reads if x is not None), target, kind in ADDING, product, done)


class _Maps:
    """The maps of a schedule: functions, and their places in the complete tensors."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._functions = [function(made.name) for made in schedule.functions]

    def mapped(self, row: int) -> Mapped:
        """Return the map of a row."""
        details, tensors = self._schedule.details, self._schedule.tensors
        number = int(details.fn[row])
        known, made = self._functions[number], self._schedule.functions[number]
        buffers = details.buffer[row, : len(known.operands)]
        shapes = [tensors[x].shape for x in self._schedule.buffers.tensor[buffers].tolist()]
        spans: list[tuple[int, int]] = []
        for axis, (letter, ranges) in enumerate((("r", details.rows), ("c", details.cols))):
            having = [x for x, letters in enumerate(known.operands) if letters[axis] == letter]
            start, stop = ranges[row, having[0]].tolist() if having else (0, 1)
            spans.append((start, stop))
        count = 0 if known.is_plain else len(known.operands)
        ends = details.rows[row, :count].tolist(), details.cols[row, :count].tolist()
        pieces = [(Interval(*x), Interval(*y)) for x, y in zip(*ends, strict=True)]
        return Mapped(known, made.parameters, spans[0], spans[1], known.whole(shapes), pieces)


def _pieces(schedule: Schedule, blocks: list[Block], operand: int, actions: Ints) -> list[Block | None]:
    """Return the memory of one operand of some actions, None where there is none."""
    details, buffers = schedule.details, schedule.buffers
    buffer = details.buffer[actions, operand]
    if not blocks:
        return [None] * len(buffer)
    operands = np.array([(x.offset, x.stride, x.dtype.itemsize) for x in blocks])[buffer]
    down = details.rows[actions, operand, 0] - buffers.rows[buffer, 0]
    right = details.cols[actions, operand, 0] - buffers.cols[buffer, 0]
    offsets = operands[:, 0] + (down * operands[:, 1] + right) * operands[:, 2]
    rows, cols = details.shape[actions, operand].T.tolist()
    return [
        None if block is None else Block(block.rank, block.heap, offset, m, n, block.stride, block.dtype)
        for block, offset, m, n in zip(
            (None if x < 0 else blocks[x] for x in buffer.tolist()), offsets.tolist(), rows, cols, strict=True
        )
    ]


def _blocks(schedule: Schedule, memory: Memory) -> list[Block]:
    """Return the memory of every buffer: the owned tiles of all tensors, then the temporaries."""
    blocks = []
    for matrix in memory.matrices:
        owners = matrix.layout.owners
        for replica, i, j in np.ndindex(owners.shape):
            blocks.append(matrix.block((i, j), replica))
    temporaries = schedule.temporaries
    pools = pools_of(schedule, [matrix.dtype for matrix in memory.matrices])
    offsets = [slot_offsets(sizes).tolist() for sizes in pools]
    shape = np.stack(
        [temporaries.rows[:, 1] - temporaries.rows[:, 0], temporaries.cols[:, 1] - temporaries.cols[:, 0]],
        axis=1,
    )
    for rank, slot, tensor, (rows, cols) in zip(
        *(x.tolist() for x in (temporaries.rank, temporaries.slot, temporaries.tensor, shape)), strict=True
    ):
        dtype = memory.matrices[tensor].dtype
        blocks.append(Block(rank, memory.pool, offsets[rank][slot], rows, cols, cols, dtype))
    return blocks

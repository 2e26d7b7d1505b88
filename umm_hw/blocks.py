"""Where each action's data lies: the tiles and pool slots it reads and writes, as blocks of memory."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from umm.interval import Interval
from umm.schedules.kinds import ACCUMULATE, GEMM, REDUCE
from umm.schedules.schedule import Schedule
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
    tensors = schedule.tensors
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
    """Yield the memory of each action, in row order."""
    details = schedule.details
    blocks = _blocks(schedule, memory)
    bounds = np.concatenate([schedule.buffers.rows[:, :1], schedule.buffers.cols[:, :1]], axis=1).tolist()
    columns = (details.buffer, details.rows, details.cols)

    def piece(buffer: int, rows: list[int], cols: list[int]) -> Block:
        top, left = bounds[buffer]
        return blocks[buffer].cut(Interval(*rows).shift(-top), Interval(*cols).shift(-left))

    for kind, beta, buffers, rows, cols in zip(
        schedule.kind.tolist(), details.beta.tolist(), *(x.tolist() for x in columns), strict=True
    ):
        pieces = [piece(*given) for given in zip(buffers, rows, cols, strict=True) if given[0] >= 0]
        if not pieces:
            yield NOTHING
        else:
            yield Work(tuple(pieces[1:]), pieces[0], kind in ADDING or (kind == GEMM and beta != 0))


def _blocks(schedule: Schedule, memory: Memory) -> list[Block]:
    """Return the memory of every buffer: the owned tiles of all tensors, then the temporaries."""
    blocks = []
    for matrix in memory.matrices:
        owners = matrix.layout.owners
        for replica, i, j in np.ndindex(owners.shape):
            blocks.append(matrix.block((i, j), replica))
    held = schedule.temporaries
    offsets = [slot_offsets(sizes).tolist() for sizes in schedule.pools]
    shape = np.stack([held.rows[:, 1] - held.rows[:, 0], held.cols[:, 1] - held.cols[:, 0]], axis=1)
    for rank, slot, tensor, (rows, cols) in zip(
        *(x.tolist() for x in (held.rank, held.slot, held.tensor, shape)), strict=True
    ):
        dtype = memory.matrices[tensor].dtype
        blocks.append(Block(rank, memory.pool, offsets[rank][slot], rows, cols, cols, dtype))
    return blocks

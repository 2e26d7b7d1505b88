"""Distributed matrices as checkpoints: each rank writes its own part, and reads its own tiles.

Tiles in the memory of a GPU go through copies on the host.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umm.checkpoints import Checkpoint, commit, write_part
from umm.checkpoints.manifest import Saved
from umm.checkpoints.reading import Piece
from umm.errors import InputError
from umm_hw.bfloat16 import dtype_name
from umm_hw.matrix import DistributedMatrix
from umm_hw.transport import Block, Transport

Matrices = Mapping[str, DistributedMatrix]


def save(folder: str | Path, matrices: Matrices, replica: int = 0) -> None:
    """Save matrices together; collective, complete on return.

    The checkpoint that the folder holds is replaced, whole or not at all, whenever a rank is killed.

    Args:
        folder: It is made if it is not there; all ranks must see it.
        matrices: By name, all of one transport.
        replica: The replica that is saved; its ranks write.

    Raises:
        InputError: if a matrix has no such replica, or nothing can be written.
    """
    transport = _transport(matrices)
    saved = saved_as(matrices, replica)
    transport.barrier()
    write_parts(folder, matrices, [transport], replica)
    transport.barrier()
    if transport.rank == 0:
        commit(folder, saved)
    transport.barrier()


def load(folder: str | Path, matrices: Matrices) -> None:
    """Fill matrices from a checkpoint, whatever layout or number of ranks saved it; collective.

    Each rank reads the parts that its own tiles lie in. Every replica is complete on return.

    Args:
        folder: Of the checkpoint.
        matrices: By the names that they were saved by; it may hold others.

    Raises:
        InputError: if it does not hold a matrix of this name, shape and type, or a part is damaged.
    """
    transport, checkpoint = _transport(matrices), Checkpoint(folder)
    for name, matrix in matrices.items():
        fill(matrix, checkpoint, name)
    transport.barrier()


def fill(matrix: DistributedMatrix, checkpoint: Checkpoint, name: str) -> None:
    """Fill this rank's own tiles of a matrix from a checkpoint; the owner of other tiles fills those."""
    saved = checkpoint.matrices.get(name)
    dtype = dtype_name(matrix.dtype)
    if saved is not None and (saved.layout.shape, saved.dtype) != (matrix.layout.shape, dtype):
        rows, cols = saved.layout.shape
        raise InputError(
            f"{name} is {rows}x{cols} of {saved.dtype} in {checkpoint.folder}, and is to fill "
            f"{matrix.layout.shape[0]}x{matrix.layout.shape[1]} of {dtype}; make it the same"
        )
    tiles = matrix.layout.tiles_of(matrix.transport.rank)
    tiles_here = [(matrix.block(tile), matrix.tile(tile)) for tile in tiles]
    arrays = [x if _on_host(x) else _empty(block) for block, x in tiles_here]
    checkpoint.fill(
        name, [Piece(*matrix.tile_bounds(tile), array) for tile, array in zip(tiles, arrays, strict=True)]
    )
    for (block, tile_here), array in zip(tiles_here, arrays, strict=True):
        if array is not tile_here:
            matrix.transport.put(array, block)


def saved_as(matrices: Matrices, replica: int) -> list[Saved]:
    """Return the manifest's entries for some matrices."""
    return [Saved(name, x.layout, dtype_name(x.dtype), replica) for name, x in matrices.items()]


def write_parts(folder: str | Path, matrices: Matrices, ranks: Sequence[Transport], replica: int) -> None:
    """Write the parts of the ranks that this process acts for; the others must do so before the commit."""
    for transport in ranks:
        sections = []
        for matrix in matrices.values():
            mine = matrix.layout.replica(transport.rank) == replica
            tiles = matrix.layout.tiles_of(transport.rank) if mine else []
            blocks = (matrix.block(tile, replica) for tile in tiles)
            sections.append([_copied(transport, x) for x in blocks])
        write_part(folder, transport.rank, sections)


def _transport(matrices: Matrices) -> Transport:
    if not matrices:
        raise InputError("there is no matrix to save or to load")
    return next(iter(matrices.values())).transport


def _copied(transport: Transport, block: Block) -> NDArray[Any]:
    """Return a tile of this rank: itself where it lies on the host, else a copy."""
    view = transport.view(block)
    if _on_host(view):
        return view  # type: ignore[no-any-return]
    copy = _empty(block)
    transport.get(block, copy)
    return copy


def _on_host(tile: Any) -> bool:
    return isinstance(tile, np.ndarray)


def _empty(block: Block) -> NDArray[Any]:
    return np.empty((block.rows, block.cols), block.dtype)

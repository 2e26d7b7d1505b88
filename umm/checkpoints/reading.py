"""How a checkpoint is read: any piece of a matrix, whatever layout it was saved in, verified."""

import os
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from umm.checkpoints.manifest import STORED, Saved, part_names, read_manifest
from umm.checkpoints.writing import checksum
from umm.errors import InfeasibleError, InputError, did_you_mean, expect
from umm.files import opened
from umm.host.hardware import free_memory
from umm.interval import Interval
from umm.layouts.edges import Tile
from umm.units import format_bytes

Array = NDArray[Any]


class Piece(NamedTuple):
    """Some rows and columns of a matrix, in global indices, and the array that takes them."""

    rows: Interval
    cols: Interval
    into: Array


class Checkpoint(Mapping[str, Array]):
    """A saved checkpoint: a mapping from names to whole matrices, read when they are asked for.

    InputError in one line, if the folder does not hold one.
    """

    def __init__(self, folder: str | Path) -> None:
        expect(folder, (str, PathLike), "load", "the folder of a checkpoint")
        self.folder = Path(folder)  # the folder that was read
        self.ranks, matrices = read_manifest(self.folder)  # how many ranks saved it
        # What it holds, by name: layout and type of each.
        self.matrices: dict[str, Saved] = {x.name: x for x in matrices}
        self._names = part_names(matrices, self.ranks)

    def __getitem__(self, name: str) -> Array:
        """Return a whole matrix; one of bfloat16 as the float32 values that it has.

        KeyError if no matrix has this name. InputError if a part is missing or damaged. InfeasibleError if
        this host lacks the memory.
        """
        matrix = self.matrices[name]
        rows, cols = matrix.layout.shape
        _check_memory(f"{name} as a whole matrix", rows * cols * matrix.itemsize)
        array = np.empty((rows, cols), STORED[matrix.dtype])
        self.fill(name, [Piece(Interval(0, rows), Interval(0, cols), array)])
        if matrix.dtype == "bfloat16":
            return (array.astype(np.uint32) << 16).view(np.float32)
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self.matrices)

    def __len__(self) -> int:
        return len(self.matrices)

    def fill(self, name: str, pieces: Iterable[Piece]) -> None:
        """Copy pieces of a matrix, bit for bit; each part they lie in is read and verified once.

        InputError if there is no such matrix, or a part is missing or damaged. InfeasibleError if this host
        lacks the memory for what one rank wrote.

        Args:
            pieces: Pieces to fill; their arrays have elements of its type's size.
        """
        if name not in self.matrices:
            raise InputError(f"{self.folder} holds no {name!r}; {did_you_mean(name, self.matrices)}")
        matrix = self.matrices[name]
        layout, replica = matrix.layout, matrix.replica
        wanted: dict[int, list[tuple[Tile, Piece]]] = {}
        for piece in pieces:
            for tile in layout.overlapping_tiles(piece.rows, piece.cols):
                wanted.setdefault(layout.owner(tile, replica), []).append((tile, piece))
        for rank, reads in wanted.items():
            section = self._section(matrix, rank)
            for tile, piece in reads:
                rows, cols = layout.tile_bounds(tile)
                start = int(layout.tile_starts[replica, *tile])
                saved_tile = section[start : start + rows.size * cols.size].reshape(rows.size, cols.size)
                shared = rows.intersect(piece.rows), cols.intersect(piece.cols)
                into = piece.into.view(section.dtype)
                to_row, to_col = (x.shift(-y.start).slice for x, y in zip(shared, piece[:2], strict=True))
                row, col = (x.shift(-y.start).slice for x, y in zip(shared, (rows, cols), strict=True))
                into[to_row, to_col] = saved_tile[row, col]

    def _section(self, matrix: Saved, rank: int) -> Array:
        """Return a rank's part of a matrix, verified."""
        path = self.folder / self._names[rank]
        sizes = [x.elements[rank] * x.itemsize for x in self.matrices.values()]
        place = list(self.matrices).index(matrix.name)
        _check_memory(f"what rank {rank} wrote of {matrix.name}", sizes[place])
        try:
            with opened(path) as file:
                size = os.fstat(file.fileno()).st_size
                if size != sum(sizes):
                    raise InputError(f"{path} has {size} bytes, not {sum(sizes)}")
                file.seek(sum(sizes[:place]))
                section = np.frombuffer(file.read(sizes[place]), STORED[matrix.dtype])
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}; the checkpoint is damaged") from None
        except InputError as error:
            raise InputError(f"{error}; the checkpoint is damaged") from None
        if checksum([section]) != matrix.checksums[rank]:
            raise InputError(f"{path} is damaged: {matrix.name} does not have its checksum")
        return section

    def __str__(self) -> str:
        words = ", ".join(
            f"{x.name} {x.layout.shape[0]}x{x.layout.shape[1]} {x.dtype} in {x.layout}"
            for x in self.matrices.values()
        )
        return f"{len(self)} {'matrix' if len(self) == 1 else 'matrices'} of {self.ranks} ranks: {words}"


def load(folder: str | Path) -> Checkpoint:
    """Return a saved checkpoint: a mapping from names to whole matrices, read when they are asked for.

    InputError in one line, if the folder does not hold one.
    """
    return Checkpoint(folder)


def _check_memory(what: str, nbytes: int) -> None:
    free = free_memory()
    if nbytes > free:
        raise InfeasibleError(f"{what} needs {format_bytes(nbytes)}, but {format_bytes(free)} is free")

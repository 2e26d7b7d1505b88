"""How a checkpoint is saved: every rank writes its part, then the manifest takes the place of the old one.

Until then the old manifest stands, and the parts it names are not touched: a save that is killed leaves the
checkpoint that was there, or, from then on, the new one.
"""

import errno
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from umm.checkpoints.manifest import MANIFEST, SCHEMA, STORED, Saved, is_checksum, part_name, part_names
from umm.dtypes import check_numbers
from umm.errors import InputError
from umm.files import PARTIAL, read_text, synced, whole_file
from umm.program.tensors import Tensor

Array = NDArray[Any]


def write_part(folder: str | Path, rank: int, sections: Iterable[Sequence[Array]]) -> None:
    """Write one rank's part; all ranks must have done so before one of them calls :func:`commit`.

    InputError if it cannot be written.

    Args:
        folder: Of the checkpoint; it is made if it is not there.
        sections: For each matrix the rank's tiles, in row-major order of the tile grid; none if the rank is
            not of the replica that is saved.
    """
    check_folder(folder)
    folder = Path(folder)
    try:
        if not folder.is_dir():
            os.makedirs(folder, exist_ok=True)
            synced(folder.parent)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}") from None
    parts = [[np.ascontiguousarray(tile) for tile in tiles] for tiles in sections]
    checksums = [checksum(tiles) for tiles in parts]
    with whole_file(folder / part_name(rank, checksums), durable=True) as partial, partial.open("wb") as file:
        for tiles in parts:
            for tile in tiles:
                file.write(_bytes_of(tile))
    with whole_file(folder / _note(rank)) as partial:
        partial.write_text("\n".join(checksums), encoding="ascii")


def commit(folder: str | Path, matrices: Sequence[Saved]) -> None:
    """Let the parts that all ranks have just written be the checkpoint, and remove those of the one before.

    InputError if a part is missing, or the manifest cannot be written; the old checkpoint stands.

    Args:
        matrices: In the order of each rank's sections; they need no checksums yet.
    """
    folder, ranks = Path(folder), matrices[0].layout.ranks
    by_rank = [_noted(folder, rank, len(matrices)) for rank in range(ranks)]
    of_matrix = zip(*by_rank, strict=True)
    saved = [replace(x, checksums=checksums) for x, checksums in zip(matrices, of_matrix, strict=True)]
    names = part_names(saved, ranks)
    for name in names:
        if not (folder / name).is_file():
            raise InputError(
                f"{folder} has no {name} after all ranks have saved; one save at a time, into a folder that "
                "all ranks see"
            )
    content = {"schema": SCHEMA, "ranks": ranks, "matrices": [x.to_dict() for x in saved]}
    with whole_file(folder / MANIFEST, durable=True) as partial:
        partial.write_text(json.dumps(content) + "\n", encoding="utf-8")
    for path in folder.iterdir():
        ours = path.suffix in (".part", ".note") and path.name.startswith("rank-")
        if path.name not in names and (ours or path.name.startswith(PARTIAL)):
            with suppress(OSError):
                path.unlink()


def save(folder: str | Path, arrays: Mapping[str, ArrayLike], tensors: Iterable[Tensor]) -> None:
    """Save whole matrices as the ranks of their layouts would, from this one process.

    InputError if a matrix has no tensor, another shape or other numbers, or the folder cannot be written.

    Args:
        folder: Of the checkpoint; it is made, or the checkpoint in it is replaced, whole or not at all.
        tensors: Layout and type of each, such as a chain's ``tensors``; those without an array are left out.

    >>> import tempfile, umm
    >>> mlp = umm.chain("mlp", hidden=4, ffn=6, tokens=2).laid_out("sequence", ranks=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     umm.save(folder, {"W1": np.eye(4, 6)}, mlp.tensors)
    ...     print(umm.load(folder))
    1 matrix of 2 ranks: W1 4x6 float32 in col
    """
    laid_out = {x.name: x for x in tensors}
    for name in arrays:
        if name not in laid_out:
            raise InputError(f"{name!r} has no layout; there are those of {', '.join(laid_out)}")
    chosen = [laid_out[name] for name in arrays]
    if not chosen:
        raise InputError("there is no matrix to save")
    matrices = [Saved(x.name, x.layout, x.dtype) for x in chosen]
    contents = [_whole(np.asarray(arrays[x.name]), x) for x in matrices]
    for rank in range(chosen[0].layout.ranks):
        sections = []
        for matrix, array in zip(matrices, contents, strict=True):
            layout = matrix.layout
            mine = layout.tiles_of(rank) if layout.replica(rank) == matrix.replica else []
            bounds = map(layout.tile_bounds, mine)
            sections.append([array[rows.slice, cols.slice] for rows, cols in bounds])
        write_part(folder, rank, sections)
    commit(folder, matrices)


def checksum(tiles: Iterable[Array]) -> str:
    """Return the checksum of a section: BLAKE2b of its bytes, 128 bits."""
    digest = blake2b(digest_size=16)
    for tile in tiles:
        digest.update(_bytes_of(tile))
    return digest.hexdigest()


def _bytes_of(tile: Array) -> memoryview:
    """Return the bytes of a contiguous array, without copying."""
    return tile.reshape(-1).view(np.uint8).data


def _whole(array: Array, matrix: Saved) -> Array:
    if array.shape != matrix.layout.shape:
        raise InputError(f"{matrix.name} has shape {array.shape}, but its layout is of {matrix.layout.shape}")
    check_numbers(array, matrix.dtype, matrix.name)
    if matrix.dtype == "bfloat16":
        if array.dtype.name != "bfloat16":
            raise InputError(
                f"{matrix.name} is bfloat16, but its array {array.dtype}; give one of ml_dtypes.bfloat16, or "
                "save it as float32"
            )
        return array.view(STORED[matrix.dtype])
    stored = STORED[matrix.dtype]
    if array.dtype.kind == "O":
        try:
            array = array.astype(np.result_type(stored, np.float64))
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"{matrix.name} holds Python objects that are no {matrix.dtype}") from None
    if np.can_cast(array.dtype, stored):
        return array.astype(stored, copy=False)
    with np.errstate(over="ignore"):
        result = array.astype(stored)
    # A checkpoint that holds inf where a weight was large would be noticed only when it is used.
    lost = np.argwhere(np.isfinite(array) & ~np.isfinite(result))
    if len(lost):
        row, col = lost[0].tolist()
        raise InputError(
            f"{matrix.name}[{row}, {col}] = {array[row, col]:g} is beyond {matrix.dtype}, whose largest "
            f"number is {float(np.finfo(stored).max):g}; clip it, or save a wider type"
        )
    return result


def check_folder(folder: str | Path) -> None:
    """Refuse a folder that can be neither used nor made, before the work whose results it is to hold.

    InputError if so; nothing is made.
    """
    if "\0" in str(folder):
        raise InputError(f"{str(folder)!r} cannot name a folder; write a path")
    absolute = Path(folder).absolute()
    try:
        above = next(path for path in (absolute, *absolute.parents) if os.path.lexists(path))
        number = 0 if os.access(above, os.W_OK | os.X_OK) else errno.EACCES
        number = number if above.is_dir() else errno.ENOTDIR
    except OSError as error:
        number = error.errno or errno.EIO
    if number:
        raise InputError(f"cannot make the folder {folder}: {os.strerror(number)}")


def _note(rank: int) -> str:
    """Return the name of the file in which a rank leaves the checksums of its sections for the manifest."""
    return f"rank-{rank}.note"


def _noted(folder: Path, rank: int, count: int) -> list[str]:
    try:
        checksums = read_text(folder / _note(rank)).split("\n")
    except InputError:
        checksums = []
    if len(checksums) != count or not all(map(is_checksum, checksums)):
        raise InputError(
            f"rank {rank} left no checksums in {folder}; all ranks must see it, and save {count} matrices"
        )
    return checksums

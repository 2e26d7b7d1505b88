"""Arrays in .npz files of unknown origin: each is read when it is asked for, and held to what it says."""

from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile, ZipFile, ZipInfo

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from umm.errors import InputError

SMALL = 2**26
"""Bytes of arrays that any file may hold."""
LONGEST = 200
"""Characters of a cause that are told; zipfile's may quote much of the file."""
PACKED = 200
"""Bytes of arrays for each byte of a larger file; columns of a schedule pack to some thirtieth."""


class Archive(Mapping[str, NDArray[Any]]):
    """The arrays of an .npz file by name. Nothing is unpickled, and what nobody asks for is not read.

    Args:
        path: The file.

    Raises:
        InputError: in one line, if it is not an .npz file; so does asking for an array that is damaged, holds
            objects, or is far larger than its file.
        OSError: if it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._room = max(SMALL, PACKED * path.stat().st_size)
            with ZipFile(path) as file:
                self._entries = {x.filename.removesuffix(".npy"): x for x in file.infolist()}
        except (BadZipFile, ValueError, NotImplementedError) as error:
            raise InputError(f"not a whole .npz file: {error}") from None

    def __getitem__(self, name: str) -> NDArray[Any]:
        entry = self._entries[name]
        try:
            with ZipFile(self._path) as file, file.open(entry) as stream:
                return self._read(name, entry, stream)
        except (InputError, OSError):
            raise
        except (
            Exception
        ) as error:  # zipfile, zlib and numpy's reading of a header answer damage with many types
            said = str(error).partition("\n")[0][:LONGEST]
            raise InputError(f"not a whole .npz file: array {name!r}: {said}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def _read(self, name: str, entry: ZipInfo, stream: IO[bytes]) -> NDArray[Any]:
        """Return an array after its header has been held against the bytes that there are."""
        version = npy.read_magic(stream)
        if version not in ((1, 0), (2, 0)):
            raise InputError(f"array {name!r} has version {version} of .npy; save it as 1.0 or 2.0")
        read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, by_columns, dtype = read_header(stream)
        if dtype.hasobject:
            raise InputError(f"array {name!r} holds objects, which are not read")
        nbytes = prod(shape) * dtype.itemsize
        if nbytes != entry.file_size - stream.tell():
            raise InputError(f"array {name!r} of shape {shape} does not have its {nbytes} bytes")
        self._room -= nbytes
        if self._room < 0:
            raise InputError(
                f"its arrays are {PACKED} times larger than the file, which no schedule or trace is"
            )
        found = np.frombuffer(stream.read(nbytes), dtype).reshape(shape, order="F" if by_columns else "C")
        if stream.read(1):
            raise InputError(f"array {name!r} has more bytes than its shape")
        return found

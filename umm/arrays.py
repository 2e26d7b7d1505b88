"""Rows in groups of unequal size without loops, functions compiled from C, .npz files of unknown origin."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from math import prod
from pathlib import Path
from typing import IO, Any, TypeVar
from zipfile import BadZipFile, ZipFile, ZipInfo

import numpy as np
from numpy.lib import format as npy
from numpy.typing import ArrayLike, NDArray

from umm.errors import InputError, UmmError
from umm.files import opened

SMALL = 2**26  # bytes of arrays that any file may hold
LONGEST = 200  # characters of a cause that are shown; zipfile's may quote much of the file
PACKED = 200  # bytes of arrays for each byte of a larger file; columns of a schedule pack to some thirtieth
PASS_KINDS = ADD, EXP, WHERE, POWER = "add", "exp", "where", "power"
"""NumPy's passes over arrays: arithmetic; such as exp, a division, a root; a choice by element; a power."""


class Archive(Mapping[str, NDArray[Any]]):
    """The arrays of an .npz file by name. Nothing is unpickled, and only requested arrays are read.

    InputError in one line, if it cannot be read or is not an .npz file; so does asking for an array that is
    damaged, holds objects, or is far larger than its file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with opened(path) as content, ZipFile(content) as file:
                self._room = max(SMALL, PACKED * os.fstat(content.fileno()).st_size)
                self._entries = {x.filename.removesuffix(".npy"): x for x in file.infolist()}
        except InputError:
            raise
        except (BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise InputError(f"not a whole .npz file: {error}") from None

    def __getitem__(self, name: str) -> NDArray[Any]:
        entry = self._entries[name]
        try:
            with opened(self._path) as content, ZipFile(content) as file, file.open(entry) as stream:
                return self._read(name, entry, stream)
        except (InputError, OSError):
            raise
        except Exception as error:  # zipfile, zlib and numpy answer damage with many types
            reason = str(error).partition("\n")[0][:LONGEST]
            raise InputError(f"not a whole .npz file: array {name!r}: {reason}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def _read(self, name: str, entry: ZipInfo, stream: IO[bytes]) -> NDArray[Any]:
        """Return an array after its header has been checked against the bytes that there are."""
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
        array = np.frombuffer(stream.read(nbytes), dtype).reshape(shape, order="F" if by_columns else "C")
        if stream.read(1):
            raise InputError(f"array {name!r} has more bytes than its shape")
        return array


Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Made = TypeVar("Made")


def frozen(kind: type[Made], fields: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> Made:
    """Return a frozen dataclass with these fields; its own ``__init__`` sets each through a slow call."""
    result = object.__new__(kind)
    vars(result).update(fields)
    return result


def in_c(module: str, name: str) -> Callable[..., Any]:
    """Return a function that was compiled from C.

    UmmError if it was not compiled, or its source has changed since: an old one never runs.
    """
    again = "run python -m umm_sim.build in the clone, or install umm-sim again"
    try:
        compiled = import_module(module)
    except ImportError as error:
        raise UmmError(f"umm's inner loops are not compiled ({error}): {again}") from error
    library = Path(compiled.__file__ or "")
    for source in (library.with_name(f"{module.rpartition('.')[2]}.c"), Path(__file__).with_suffix(".h")):
        if source.exists() and source.stat().st_mtime > library.stat().st_mtime:
            raise UmmError(f"{source} is newer than what was compiled from it: {again}")
    function: Callable[..., Any] = getattr(compiled, name)
    return function


POISON = 255  # a byte that, repeated, is NaN in every type that tensors have, 8-bit floats included


def poisoned() -> bool:
    """Whether memory that nothing has written is filled with NaN, as tests ask by ``UMM_POISON=1``.

    Systems mostly return zeros, which hide a sum that was never set to zero.
    """
    return os.environ.get("UMM_POISON") == "1"


def unwritten(nbytes: int) -> NDArray[np.uint8]:
    """Return so many bytes of new memory, whose content means nothing."""
    memory = np.empty(nbytes, dtype=np.uint8)
    if poisoned():
        memory.fill(POISON)
    return memory


def distinct(numbers: Ints) -> Ints:
    """Return the different ones of some numbers, ascending; NumPy's own imports masked arrays for it first.

    >>> distinct(np.array([5, 2, 5])).tolist()
    [2, 5]
    """
    ordered = np.sort(numbers, axis=None)
    new = np.ones(len(ordered), dtype=bool)
    new[1:] = ordered[1:] != ordered[:-1]
    return ordered[new]


def offsets_of(sizes: ArrayLike) -> Ints:
    """Return where groups of these sizes start when they follow each other, and where the last one ends.

    >>> offsets_of([2, 0, 3]).tolist()
    [0, 2, 2, 5]
    """
    sizes = np.asarray(sizes, dtype=np.int64)
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    sizes.cumsum(out=offsets[1:])
    return offsets


def group_of_row(offsets: Ints) -> Ints:
    """Return the group number of every row, from the offsets.

    >>> group_of_row(np.array([0, 2, 2, 5])).tolist()
    [0, 0, 2, 2, 2]
    """
    return np.arange(len(offsets) - 1).repeat(offsets[1:] - offsets[:-1])


def rows_of_groups(offsets: Ints, groups: Ints) -> Ints:
    """Return the rows of the groups asked for, one group after another; a group may be asked for twice.

    >>> rows_of_groups(np.array([0, 2, 2, 5]), np.array([2, 0, 0])).tolist()
    [2, 3, 4, 0, 1, 0, 1]
    """
    start = offsets[groups]
    size = offsets[groups + 1] - start
    rows: Ints = np.arange(size.sum()) + (start - (size.cumsum() - size)).repeat(size)
    return rows


def summed_before(group: Ints, values: Ints) -> Ints:
    """Return for every row the sum of the values of earlier rows of its group.

    >>> summed_before(np.array([7, 3, 7, 7]), np.array([10, 20, 30, 40])).tolist()
    [0, 0, 10, 40]
    """
    order = group.argsort(kind="stable")
    by_group, value = group[order], values[order]
    before = value.cumsum() - value
    sums = np.empty(len(group), dtype=np.int64)
    sums[order] = before - before[by_group.searchsorted(by_group)]
    return sums


def numbered_within(group: Ints) -> Ints:
    """Return every row's number within its group: how many earlier rows are in it.

    >>> numbered_within(np.array([7, 3, 7, 7])).tolist()
    [0, 0, 1, 2]
    """
    order = group.argsort(kind="stable")
    by_group = group[order]
    number = np.empty(len(group), dtype=np.int64)
    number[order] = np.arange(len(group)) - by_group.searchsorted(by_group)
    return number


def neighbours_within(group: Ints) -> tuple[Ints, Ints]:
    """Return every pair of rows that follow each other in one group: the earlier rows, the later ones.

    Rows of a negative group are in none. Pairs come by group, then by row.

    >>> [rows.tolist() for rows in neighbours_within(np.array([7, -1, 3, 7, -1, 3, 7]))]
    [[2, 0, 3], [5, 3, 6]]
    """
    order = group.argsort(kind="stable")
    by_group = group[order]
    same = (by_group[1:] == by_group[:-1]) & (by_group[1:] >= 0)
    return order[:-1][same], order[1:][same]

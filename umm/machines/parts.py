"""Parts of a table beside a machine file, such as the rows of a type, each read when it is first needed."""

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from umm.errors import InputError, MachineError
from umm.files import read_bytes
from umm.kept import kept
from umm.quoting.terminal import visible

MAX_TABLE = 2**26  # bytes of a table that are read
RECENT_NS = 2 * 10**9
"""Age of a file below which its times may not say yet that it was written again; most clocks of file systems
are finer than a hundredth of that."""

T = TypeVar("T")
Read = Callable[[Path, Any], Mapping[str, T]]


class Parts(Mapping[str, T]):
    """The parts of a table by name.

    A command reads only those that it asks for, of what an earlier one kept (:mod:`umm.kept`): reading and
    checking 270,000 rows takes seconds. Pickled, it is where they are, not what they hold.
    """

    def __init__(self, path: Path, base: Any, read: Read[T]) -> None:
        """Check the table by reading all of it, if no earlier command kept its parts.

        Args:
            base: The machine that it is beside, by its file alone.
            read: Returns all parts of a table beside a machine; MachineError if it is none.
        """
        self.path, self.base, self._read = path, base, read
        self.digest = f"{digest(path)} {base.sha}"  # hash of both
        self.names = tuple(self._every())  # of the parts
        self._parts = {name: self._part(name) for name in self.names}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parts": {}}

    def __getitem__(self, name: str) -> T:
        if name not in self._parts and name in self.names:
            self._parts[name] = self._part(name)
        return self._parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def _part(self, name: str) -> T:
        key = self._read.__qualname__, self.digest, name
        return kept("part", key, lambda: self._every()[name])

    def _every(self) -> Mapping[str, T]:
        every: Mapping[str, T] = _every(self.path, self.base, self._read, self.digest)
        return every


@lru_cache(maxsize=4)  # two machines' tables: of multiplies, and of attention and experts
def _every(path: Path, base: Any, read: Read[T], known: str) -> Mapping[str, T]:
    """Return all parts of a table, unless it has changed since its digest was taken."""
    every = read(path, base)
    if known != f"{_hash(path)} {base.sha}":
        raise MachineError(f"{visible(path.name)} was written while it was read; run the command again")
    return every


def digest(path: Path) -> str:
    """Return a hash of a table's content; of one that was not written since an earlier command that one's."""
    try:
        stat = path.stat()
    except OSError as error:  # deleted since it was seen
        raise MachineError(f"{visible(path.name)} cannot be read: {error.strerror}") from None
    settled = time.time_ns() - max(stat.st_ctime_ns, stat.st_mtime_ns) > RECENT_NS
    return kept("digest", (str(path), *version(stat)) if settled else None, lambda: _hash(path))


def version(stat: os.stat_result) -> tuple[int, ...]:
    """Return numbers that change with a file's content, except within a tick of the file system's clock."""
    return stat.st_ctime_ns, stat.st_mtime_ns, stat.st_size, stat.st_ino


def _hash(path: Path) -> str:
    try:
        return hashlib.sha256(read_bytes(path, MAX_TABLE)).hexdigest()
    except InputError as error:
        raise MachineError(f"{visible(path.name)} cannot be read: {error}") from None

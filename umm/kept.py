"""Answers kept between commands: in the user's cache folder, under a hash of all that they follow from."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

from umm.errors import InputError

VARIABLE = "UMM_KEPT"
"""The variable of the environment that names the folder; empty to keep nothing."""
MAX_ANSWERS, MAX_BYTES = 500, 2**30
"""Most answers in the folder, and most bytes of them; beyond either the older half is deleted.

Most have kilobytes, the rows of an imported table megabytes.
"""
OTHERS = 0o022
"""Who may write, beside the owner of a file."""

T = TypeVar("T")
_folders: list[Path] = []


def allow() -> None:
    """Let this process keep answers, as the command does; a program that imports umm keeps none."""
    folder = os.environ.get(VARIABLE)
    if folder is None:
        import platformdirs

        folder = platformdirs.user_cache_dir("umm", appauthor=False)
    _folders[:] = [Path(folder)] if folder else []


def kept(what: str, key: Any, make: Callable[[], T]) -> T:
    """Return the answer that an earlier command kept, else a new one, which is kept.

    Any doubt means a new answer: a folder or file that others may write or own, another version or a changed
    file of umm, bytes that are not those that were written.

    Args:
        what: The kind of answer.
        key: All that it follows from, with a ``repr`` that says it; None if it is not to be kept.
    """
    if key is None or not _folders:
        return make()
    import hashlib
    import pickle

    folder = _folders[0]
    path = folder / hashlib.sha256(repr((what, key, _program())).encode()).hexdigest()
    with suppress(Exception):  # whatever a file of another origin raises
        if _own(folder) and _own(path):
            content = memoryview(path.read_bytes())  # slices of it are no copies of megabytes
            if hashlib.sha256(content[32:]).digest() == content[:32]:
                return cast(T, pickle.loads(content[32:]))
    answer = make()
    with suppress(OSError, InputError, pickle.PicklingError, AttributeError, TypeError):
        written = pickle.dumps(answer, protocol=5)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _own(folder):
            _write(path, hashlib.sha256(written).digest() + written)
    return answer


def _own(path: Path) -> bool:
    """Whether a file or folder is this user's alone to write."""
    if not hasattr(os, "getuid"):  # Windows' folder is the user's
        return True
    stat = path.stat()
    return stat.st_uid == os.getuid() and not stat.st_mode & OTHERS


def _write(path: Path, written: bytes) -> None:
    """Write a file at once: a reader sees all of it, or none."""
    from umm.files import whole_file

    with whole_file(path) as partial:
        partial.chmod(0o600)  # whatever the user's mask allows: what others may write is not read
        partial.write_bytes(written)
    answers = sorted(os.scandir(path.parent), key=lambda x: x.stat().st_mtime)
    if len(answers) > MAX_ANSWERS or sum(x.stat().st_size for x in answers) > MAX_BYTES:
        for answer in answers[: len(answers) // 2]:
            os.unlink(answer)


@lru_cache(maxsize=1)
def _program() -> tuple[Any, ...]:
    """Return the sources of an answer beside its key: Python, and the files of umm."""
    import sys

    packages = Path(__file__).parents[1]
    return sys.version, *(file for name in ("umm", "umm_sim") for file in _files(str(packages / name)))


def _files(folder: str) -> Iterator[tuple[str, int, int]]:
    """Yield the path, time and size of each file of code in a folder."""
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda x: x.name):
            if entry.name.endswith((".py", ".so", ".pyd")):
                stat = entry.stat()
                yield entry.path, stat.st_mtime_ns, stat.st_size
            elif "." not in entry.name and not entry.name.startswith("_") and entry.is_dir():
                yield from _files(entry.path)

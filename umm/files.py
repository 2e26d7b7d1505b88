"""Files that others wrote or will read: JSON of unknown origin, and files written whole or not at all."""

import json
import os
import reprlib
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from umm.errors import InputError

_SHORT = reprlib.Repr()
_SHORT.maxlevel = 3
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = LONGEST = 80
PARTIAL = ".umm-partial-"
"""What the name of a file that is being written starts with."""


def shown(value: Any) -> str:
    """Return a value of a file as a message shows it: in one line, cut short where it is long or nests deep.

    >>> shown([1, 2.5, "three", [[[["deep"]]]], 5, 6, 7])
    "[1, 2.5, 'three', [[[...]]], 5, 6, ...]"
    """
    text = _SHORT.repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; one that has a key twice says two things at once."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise InputError(f"the JSON has an object with the key {shown(twice)} twice")
    return found


def parse_json(text: str, what: str) -> Any:
    """Return what a JSON text holds.

    Args:
        text: The text.
        what: What it should be, for the message: ``schedule``, ``trace``.

    Raises:
        InputError: if the text is not JSON, or nests or counts beyond reason.
    """
    try:
        return json.loads(text, object_pairs_hook=_object)
    except InputError as error:
        raise InputError(f"not a {what}: {error}") from None
    except json.JSONDecodeError as error:
        raise InputError(
            f"not a {what}: the JSON ends or breaks at line {error.lineno} ({error.msg})"
        ) from None
    except (RecursionError, ValueError):
        raise InputError(f"not a {what}: the JSON nests too deep or has a number too long") from None


@contextmanager
def whole_file(path: str | Path, durable: bool = False) -> Iterator[Path]:
    """Give a path to write to that takes the place of the file when the block ends without an error.

    It is a file of this writer alone, in the same folder, with the mode of the one that it replaces. A link
    is followed to its file. What is not a file, a pipe or ``/dev/stdout`` say, is written to as it is.

    Args:
        path: The file.
        durable: Whether its bytes and its name must outlast a loss of power from the end of the block on.

    Raises:
        InputError: if the file cannot be written.
    """
    if not str(path) or "\0" in str(path):
        raise InputError(f"{str(path)!r} cannot name a file; write a path")
    try:
        mode = _mode_of(path)
        if mode is not None and not stat.S_ISREG(mode):
            yield Path(path)
            return
        target = Path(os.path.realpath(path))
        partial = target.with_name(f"{PARTIAL}{secrets.token_hex(8)}")
        try:
            os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
            if mode is not None:
                partial.chmod(stat.S_IMODE(mode))
            yield partial
            if durable:
                synced(partial)
            partial.replace(target)
            if durable:
                synced(target.parent)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def synced(path: Path) -> None:
    """Wait until a file or a folder is on its disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _mode_of(path: str | Path) -> int | None:
    """Return the type and the mode of what a path leads to, None for nothing."""
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def fields_of(
    data: Any, what: str, required: tuple[str, ...], optional: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return a JSON object that has the required keys, and none but these and the optional ones.

    Args:
        data: What the JSON holds.
        what: What it should be, for the message: ``a tensor``.
        required: Keys it must have.
        optional: Keys it may have.

    Raises:
        InputError: naming the key that is missing or unknown, and those there are.

    >>> fields_of({"name": "X", "shap": [2, 3]}, "a tensor", ("name", "shape"))
    Traceback (most recent call last):
        ...
    umm.errors.InputError: a tensor lacks 'shape'; it has the keys name, shape
    """
    keys = ", ".join(required + optional)
    if not isinstance(data, dict):
        raise InputError(f"{shown(data)} is not {what}; it must be an object with the keys {keys}")
    for key in required:
        if key not in data:
            raise InputError(f"{what} lacks {key!r}; it has the keys {keys}")
    for key in data:
        if key not in required and key not in optional:
            raise InputError(f"{what} has no key {shown(key)}; choose from {keys}")
    return data


def whole_number(value: Any, what: str, least: int = 0, below: int = 2**63) -> int:
    """Return a whole number as a file gives it; 2.0, True and "2" are not taken for one.

    Raises:
        InputError: if it is not one, or lies outside least … below − 1.
    """
    if type(value) is not int or not least <= value < below:
        most = "" if below == 2**63 else f" and < {below}"
        raise InputError(
            f"{what} = {shown(value)} is not possible; it must be a whole number ≥ {least}{most}"
        )
    return value


def real_number(value: Any, what: str) -> float:
    """Return a finite number as a file gives it, whole or not; True and "2" are not taken for one.

    Raises:
        InputError: if it is not one.
    """
    if type(value) not in (int, float) or not abs(value) < 2.0**1000:
        raise InputError(f"{what} = {shown(value)} is not possible; it must be a finite number")
    return float(value)

"""Files that others wrote or will read: JSON of unknown origin, and files written whole or not at all."""

import json
import reprlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from umm.errors import InputError

_SHORT = reprlib.Repr()
_SHORT.maxlevel = 3
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = LONGEST = 80


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
def whole_file(path: str | Path) -> Iterator[Path]:
    """Give a path to write to that takes the place of the file when the block ends without an error.

    A link is followed to its file. What is not a file, a pipe or ``/dev/stdout`` say, is written to as it is.

    Raises:
        InputError: if the file cannot be written.
    """
    if not str(path):
        raise InputError("cannot write a file without a name")
    path = Path(path)
    try:
        if path.exists() and not path.is_file():
            yield path
            return
        target = path.resolve()
        partial = target.with_name(f".{target.name}.partial")
        try:
            yield partial
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


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

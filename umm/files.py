"""Files that others wrote or will read: JSON of unknown origin, and files written whole or not at all."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from umm.errors import InputError


def parse_json(text: str, what: str) -> Any:
    """Return what a JSON text holds.

    Args:
        text: The text.
        what: What it should be, for the message: ``schedule``, ``trace``.

    Raises:
        InputError: if the text is not JSON, or nests or counts beyond reason.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"not a {what}: the JSON ends or breaks at line {error.lineno} ({error.msg})"
        ) from None
    except (RecursionError, ValueError):
        raise InputError(f"not a {what}: the JSON nests too deep or has a number too long") from None


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Give a path to write to that takes the place of the file when the block ends without an error.

    A link is followed to its file. What is no file, a pipe or ``/dev/stdout`` say, is written to as it is.

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

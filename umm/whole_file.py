"""Write a file whole or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from umm.errors import InputError


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

"""Write a file whole or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from umm.errors import InputError


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Give a path to write to that takes the place of the file when the block ends without an error.

    Raises:
        InputError: if the file cannot be written.
    """
    path = Path(path)
    partial = path.with_name(f".{path.name}.partial")
    try:
        yield partial
        partial.replace(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)

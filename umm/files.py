"""Files that others wrote or will read: JSON and TOML of anybody, and files written whole or not at all."""

import json
import os
import re
import reprlib
import stat
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from umm.errors import InputError
from umm.quoting.terminal import visible

_SHORT = reprlib.Repr()
_SHORT.maxlevel = 3
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = LONGEST = 80
LONGEST_MESSAGE = 2000  # characters of a message
PARTIAL = ".umm-partial-"  # what the name of a file that is being written starts with
STALE_S = 2.0
"""Seconds after which a partial file that nobody has locked is left over from a writer that was killed."""
MOST_TEXT = 2**29  # bytes of a text file that are read: more than JSON of the most actions has
MOST_TOML = 2**22
MAX_ROOM = 2**30  # bytes of memory that the values of a JSON text may take
_ROOM_OF = {"{": 184, "[": 64, ",": 40}
"""Bytes of an object, a list and a member of either, in CPython 3.11 to 3.14, by the mark before it."""
MOST_PARTS = 16  # parts of a dotted TOML key that are read; the parser takes time and memory by their square
MOST_DOTS = 200_000  # dots in all keys of a TOML file that are read: each makes a table of about a kilobyte
_OPAQUE = re.compile(
    r'"""(?:\\.|[^\\])*?(?:"{3,5}|\Z)|\'\'\'.*?(?:\'{3,5}|\Z)|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*',
    re.DOTALL,
)
"""The strings and comments of TOML, in whose text dots and equals signs mean nothing; one that does not end
takes all the rest, as for the parser."""
_OPEN_ALREADY = re.compile(r"/dev/stdin|/dev/fd/[0-9]+|/proc/self/fd/[0-9]+")
_KINDS = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))


def shown(value: Any) -> str:
    """Return a value of a file as a message shows it: in one line, cut short where it is long or nests deep.

    >>> shown([1, 2.5, "three", [[[["deep"]]]], 5, 6, 7])
    "[1, 2.5, 'three', [[[...]]], 5, 6, ...]"
    """
    text = _SHORT.repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def shortened(text: str, most: int = LONGEST_MESSAGE) -> str:
    """Return a message without its middle where it is long.

    >>> shortened("abcdefgh", 4)
    'ab … gh'
    """
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 2 :]}"


def read_text(path: str | Path, most: int = MOST_TEXT) -> str:
    """Return the text of a file; InputError in one line, if it cannot be read, is longer, or is not UTF-8.

    Args:
        path: The file, which may be a pipe that is open already.
    """
    try:
        return read_bytes(path, most).decode()
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text file in UTF-8") from None


def read_bytes(path: str | Path, most: int) -> bytes:
    """Return the bytes of a file; one without an end is read no further than ``most``.

    InputError in one line, if it cannot be read, or is longer.

    Args:
        path: The file, which may be a pipe that is open already.
    """
    with opened(path, most, pipe=True) as file:
        try:
            content = file.read(most + 1)
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}") from None
    if len(content) > most:
        raise InputError(f"{path} has more than {most} bytes, which are not read")
    return content


def unpacked(content: bytes, path: str | Path, most: int) -> bytes:
    """Return bytes unpacked by gzip, up to ``most`` of them; plain bytes as they are.

    InputError in one line, if they are no whole gzip file, or have more.
    """
    parts: list[bytes] = []
    left = content
    while left[:2] == b"\x1f\x8b":  # a file may have several members
        unzip = zlib.decompressobj(wbits=31)
        try:
            parts.append(unzip.decompress(left, most + 1 - sum(len(x) for x in parts)))
        except zlib.error as error:
            raise InputError(f"{path} is no gzip file that can be read: {error}") from None
        if sum(len(x) for x in parts) > most:
            raise InputError(f"{path} unpacks to more than {most} bytes, which are not read")
        if not unzip.eof:
            raise InputError(f"{path} ends within its gzip stream; copy it again")
        left = unzip.unused_data
    return b"".join(parts) if parts else content


def opened(path: str | Path, most: int | None = None, pipe: bool = False) -> BinaryIO:
    """Open a file of anybody for reading; all readers begin here.

    A pipe of the file system blocks until somebody writes, a device may never end, and opening either can
    have effects: only what is a file is opened. ``/dev/null`` is an empty one. InputError in one line, if it
    cannot be opened, is not a file, or is longer.

    Args:
        most: Most bytes that it may have; None where the caller reads parts of it.
        pipe: Whether it may also be a pipe that this process has open: ``/dev/stdin``, ``<(command)``.
    """
    if not str(path) or "\0" in str(path):
        raise InputError(f"{shown(str(path))} cannot name a file; write a path")
    try:
        pipe = pipe and _OPEN_ALREADY.fullmatch(str(path)) is not None
        _expect_file(path, os.stat(path), pipe)
        # What was put in its place since then does not block either.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            _expect_file(path, status, pipe)
            if most is not None and status.st_size > most:
                raise InputError(f"{path} has more than {most} bytes, which are not read")
            os.set_blocking(descriptor, not stat.S_ISREG(status.st_mode))
            return os.fdopen(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None


def _expect_file(path: str | Path, status: os.stat_result, pipe: bool) -> None:
    """Refuse anything but a file or, where ``pipe`` is set, a pipe."""
    mode = status.st_mode
    null = stat.S_ISCHR(mode) and status.st_rdev == os.stat(os.devnull).st_rdev
    if not (stat.S_ISREG(mode) or null or (pipe and stat.S_ISFIFO(mode))):
        kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "a device")
        raise InputError(f"cannot read {path}: it is {kind}, not a file")


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file; see :func:`parse_toml`.

    InputError in one line, if it cannot be read, or is not TOML.
    """
    return parse_toml(read_text(path, MOST_TOML), path)


def parse_toml(text: str, path: str | Path) -> dict[str, Any]:
    """Parse a TOML text; its whole numbers fit 64 bits, as TOML has it.

    InputError in one line, if it is not TOML.
    """
    _check_keys(text, path)
    import tomllib

    try:
        content = tomllib.loads(text)
    except RecursionError:
        raise InputError(f"{path} is not TOML that can be read: it nests too deep") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not TOML: {visible(str(error))}") from None
    except ValueError:  # Python's own limit on the digits of a whole number
        raise InputError(f"{path} is not TOML: it has a whole number beyond 64 bits") from None
    values: list[Any] = [content]
    for value in values:  # which grows meanwhile
        if isinstance(value, dict):
            values += value.values()
        elif isinstance(value, list):
            values += value
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise InputError(f"{path} is not TOML: it has a whole number beyond 64 bits")
    return content


def _check_keys(text: str, path: str | Path) -> None:
    """Refuse a key of many dotted parts, and very many dots in all keys; InputError naming the line."""
    if text.count(".") < MOST_PARTS:
        return
    # A string keeps its line ends, by which a line is named, and is a part of a key like any other.
    bare = _OPAQUE.sub(lambda match: "s" + "\n" * match[0].count("\n"), text)
    dots = 0
    for piece in re.finditer(r"[^=,\[\]{}\n]*\.[^=,\[\]{}\n]*", bare):
        here = piece[0].count(".")
        dots += here
        if here >= MOST_PARTS:
            line = bare.count("\n", 0, piece.start()) + 1
            raise InputError(
                f"{path} line {line} has a key of more than {MOST_PARTS} dotted parts; write a shorter one"
            )
    if dots > MOST_DOTS:
        raise InputError(f"{path} has more than {MOST_DOTS} dots in its keys and numbers; write fewer")


def parse_json(text: str, what: str) -> Any:
    """Parse a JSON text; InputError if the text is not JSON, or nests or counts beyond reason.

    Args:
        what: Its expected kind, for the message: ``schedule``, ``trace``.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = dict(pairs)
        if len(keys) < len(pairs):  # an object that has a key twice says two things at once
            twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
            raise InputError(f"the JSON has an object with the key {shown(twice)} twice")
        return keys

    room = sum(text.count(mark) * nbytes for mark, nbytes in _ROOM_OF.items())
    if room > MAX_ROOM:
        raise InputError(f"not a {what}: the JSON would take more than {MAX_ROOM // 2**20} MiB of memory")
    try:
        return json.loads(text, object_pairs_hook=unique)
    except InputError as error:
        raise InputError(f"not a {what}: {error}") from None
    except json.JSONDecodeError as error:
        raise InputError(
            f"not a {what}: the JSON ends or breaks at line {error.lineno} ({error.msg})"
        ) from None
    except (RecursionError, ValueError):  # Python's own limits on depth and on digits
        raise InputError(f"not a {what}: the JSON nests too deep or has a number too long") from None


def read_json(path: str | Path, what: str, most: int = MOST_TEXT) -> Any:
    """Return the value of a JSON file; see :func:`parse_json`.

    InputError in one line naming the file, if it cannot be read, is longer than ``most`` bytes, or is no
    JSON.
    """
    text = read_text(path, most)
    try:
        return parse_json(text, what)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def target_of(path: str | Path) -> Path | None:
    """Return the file that writing to a path makes or replaces, None for a pipe or a device.

    InputError if there can be none: no folder, or one that may not be written to, or links in a circle.
    """
    if not str(path) or "\0" in str(path):
        raise InputError(f"{shown(str(path))} cannot name a file; write a path")
    try:
        mode = _mode_of(path)
        target = Path(os.path.realpath(path))
        why = ""
        if not target.parent.is_dir():
            why = f"there is no folder {Path(path).parent}"
        elif mode is not None and stat.S_ISDIR(mode):
            why = "it is a folder"
        elif not os.access(target.parent, os.W_OK | os.X_OK):
            why = f"the folder {target.parent} may not be written to"
    except OSError as error:
        why = str(error.strerror)
    if why:
        raise InputError(f"cannot write {path}: {why}")
    return target if mode is None or stat.S_ISREG(mode) else None


@contextmanager
def whole_file(path: str | Path, durable: bool = False) -> Iterator[Path]:
    """Give a path to write to that takes the place of the file when the block ends without an error.

    It is a file of this writer alone, in the same folder, with the mode of the one that it replaces. A link
    is followed to its file. What is not a file, a pipe or ``/dev/stdout`` say, is written to as it is.
    InputError if the file cannot be written.

    Args:
        durable: Whether its bytes and its name must outlast a loss of power from the end of the block on.
    """
    if not str(path) or "\0" in str(path):
        raise InputError(f"{str(path)!r} cannot name a file; write a path")
    try:
        mode = _mode_of(path)
        if mode is not None and not stat.S_ISREG(mode):
            yield Path(path)
            return
        target = Path(os.path.realpath(path))
        _drop_stale(target.parent)
        partial = target.with_name(f"{PARTIAL}{os.urandom(8).hex()}")
        descriptor = -1
        try:
            descriptor = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
            with suppress(ImportError):
                _lock(descriptor)
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
            if descriptor >= 0:
                os.close(descriptor)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def _lock(descriptor: int) -> bool:
    """Take the lock of a file until its descriptor is closed, also by a kill; False if another has it."""
    import fcntl  # not on every system; there a partial file stays

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another has it, or the file system has no locks
        return False
    return True


def _drop_stale(folder: Path) -> None:
    """Remove partial files that killed writers have left in a folder: those whose lock is free."""
    for partial in folder.glob(f"{PARTIAL}*"):
        with suppress(OSError, ImportError):
            if not stat.S_ISREG(partial.lstat().st_mode):  # nothing that a writer has made
                continue
            descriptor = os.open(partial, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                # One that was made a moment ago may not be locked yet.
                if time.time() - os.fstat(descriptor).st_mtime > STALE_S and _lock(descriptor):
                    partial.unlink(missing_ok=True)
            finally:
                os.close(descriptor)


def synced(path: Path) -> None:
    """Wait until a file or a folder is on its disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _mode_of(path: str | Path) -> int | None:
    """Return the type and the mode of a path's target, None for nothing."""
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def fields_of(
    data: Any, what: str, required: tuple[str, ...], optional: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return a JSON object that has the required keys, and none but these and the optional ones.

    InputError naming the key that is missing or unknown, and those there are.

    Args:
        what: Its expected kind, for the message: ``a tensor``.

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

    InputError if it is not one, or lies outside least … below − 1.
    """
    if type(value) is not int or not least <= value < below:
        most = "" if below == 2**63 else f" and < {below}"
        raise InputError(
            f"{what} = {shown(value)} is not possible; it must be a whole number ≥ {least}{most}"
        )
    return value


def real_number(value: Any, what: str) -> float:
    """Return a finite number as a file gives it, whole or not; True and "2" are not taken for one.

    InputError if it is not one.
    """
    if type(value) not in (int, float) or not abs(value) < 2.0**1000:
        raise InputError(f"{what} = {shown(value)} is not possible; it must be a finite number")
    return float(value)

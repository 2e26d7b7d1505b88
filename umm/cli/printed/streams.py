"""The streams of a command: none that is missing, and none whose failure is a traceback."""

import errno
import os
import re
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import current_thread, main_thread
from time import monotonic
from typing import IO, Any, cast

from umm.errors import UmmError

MOST_SECONDS = 1e6  # of a limit of time


def open_streams() -> None:
    """Make stdin, stdout and stderr usable, however this process was started."""
    # One that is closed is `/dev/null`: the next file would get its number, and what is printed. What cannot
    # be written to stderr is lost and fails nothing. A terminal without µ gets a ? in its place.
    for size in ("LINES", "COLUMNS"):  # rich would take ² for digits
        if not re.fullmatch("[0-9]{1,4}", os.environ.get(size, "80")):
            del os.environ[size]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115  # to the end
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    if not isinstance(sys.stderr, _Unfailing):
        sys.stderr = cast(Any, _Unfailing(sys.stderr))


LEAST_S = 0.5  # seconds that are shared where a block took longer than all of them

_up: list[float] = []


def stop_after(seconds: float) -> Callable[[], None]:
    """Interrupt this process after a time as Ctrl-C would, and return a function that calls that off."""
    _up.clear()
    if current_thread() is not main_thread():
        return lambda: None

    def stop(number: int, frame: Any) -> None:
        _up.append(seconds)
        raise KeyboardInterrupt

    usual = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, min(seconds, MOST_SECONDS))

    def call_off() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual)

    return call_off


def limit_reached() -> float | None:
    """Return the limit of time in seconds that has ended the command or a part of it, None if none has."""
    return _up[-1] if _up else None


def time_is_up() -> float | None:
    """Return the limit of time that has ended the command, None if none has; it is not said again."""
    seconds = limit_reached()
    _up.clear()
    return seconds


@contextmanager
def share_of_time(blocks: int) -> Iterator[Callable[[], bool]]:
    """Interrupt a block after its share of the remaining limit of time, if there is one.

    Unused time is left for those that follow. The block is given a function that says whether its share is
    used up, and is interrupted at most once.

    Args:
        blocks: That share what is left, this one included.
    """
    before, left = len(_up), signal.getitimer(signal.ITIMER_REAL)[0]
    ends = monotonic() + left
    if left:
        signal.setitimer(signal.ITIMER_REAL, left / blocks)
    try:
        yield lambda: len(_up) > before
    finally:
        if left:
            # After the last block nothing is interrupted: what is found is printed.
            rest = max(ends - monotonic(), LEAST_S) if blocks > 1 else 0.0
            signal.setitimer(signal.ITIMER_REAL, rest)


class _Unfailing:
    """A stream whose failures have no reader."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def reader_left() -> bool:
    """Return whether nobody reads stdout any more, and if so let nothing more be written to it."""
    try:
        watch = select.poll()
        watch.register(sys.stdout.fileno(), 0)
        left = any(event & select.POLLERR for _, event in watch.poll(0))
    except (OSError, ValueError):  # it is no pipe
        return False
    if left:
        _drop_stdout()
    return left


def flushed(code: int) -> tuple[int, str]:
    """Write the rest of stdout; return the code to end with now, and why if that is another.

    A full disk is a failure; a reader who has seen enough is none.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        _drop_stdout()
        if error.errno != errno.EPIPE:
            failure = "" if code else f"cannot write the output: {error.strerror}"
            return code or UmmError.exit_code, failure
    return code, ""


def _drop_stdout() -> None:
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # nothing more is tried at exit

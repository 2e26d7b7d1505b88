"""A process beside the ranks of a host that names the first of them to be killed, with its last call.

mpiexec ends all ranks as soon as one dies, before they could say who, and itself names a process alone. This
one is none of mpiexec's. It is run as a file, ``python -I -S herald.py FILE SINCE PROXY FORM… RANK… PROCESS…
PIPE…``, and imports nothing of umm, so that it starts in some milliseconds; it ends with the last rank, and
then removes what MPICH has left on the host.
"""

import mmap
import os
import select
import signal
import struct
import sys
import time
from contextlib import suppress
from typing import NamedTuple


class Form(NamedTuple):
    """Where a rank's counters and words are on the board, in bytes."""

    counters: int  # bytes of a rank's counters
    left: int  # offset of the counter by which a rank says that its program ends
    entered: int  # offset of the counter of its calls
    texts: int  # bytes of a rank's words, which follow the counters of all ranks
    words: int  # bytes of the words of one call; calls take two places in turn


class Rank(NamedTuple):
    """A rank: how it is called, its process, and a pipe whose other end it holds."""

    number: int
    process: int
    pipe: int


def watch(board: mmap.mmap, form: Form, ranks: list[Rank]) -> str | None:
    """Wait until all ranks have ended, and return in words how one did that had not said it would."""
    # What is ready is reported in the order in which it became so, also if this process looks late.
    ready, rows = select.epoll(), {rank.pipe: row for row, rank in enumerate(ranks)}
    for pipe in rows:
        ready.register(pipe, select.EPOLLIN)
    while rows:
        for pipe, _ in ready.poll():
            row = rows.pop(pipe)
            ready.unregister(pipe)
            if not struct.unpack_from("q", board, row * form.counters + form.left)[0]:
                rank = ranks[row]
                call = _last_call(board, form, row, len(ranks))
                return f"error: rank {rank.number} (process {rank.process}) {_how(rank.process)}; {call}"
    return None


def _last_call(board: mmap.mmap, form: Form, row: int, ranks: int) -> str:
    """Return the last call that a rank has entered, in words."""
    calls = struct.unpack_from("q", board, row * form.counters + form.entered)[0]
    start = ranks * form.counters + row * form.texts + calls % 2 * form.words
    words = board[start : start + form.words].rstrip(b"\0").decode(errors="replace")
    return f"its last call {words}" if calls else "it has made no call yet"


def _how(process: int) -> str:
    """Return how a process ended, as far as the system still knows; it may take a moment to end."""
    until = time.monotonic() + 0.05
    while time.monotonic() < until:
        try:
            with open(f"/proc/{process}/stat") as file:
                state, *_, code = file.read().rsplit(")", 1)[1].split()
        except (OSError, ValueError):
            break
        if state in "ZX":
            number = int(code)
            if number & 0x7F:
                return f"was killed by {signal.Signals(number & 0x7F).name}"
            return f"ended with exit code {number >> 8} while others still ran"
        time.sleep(0.001)
    return "was killed"


def sweep(since: float, proxy: int) -> None:
    """Clean up after a job of a proxy that began at some time."""
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    from umm.host.launcher import sweep_last  # which imports the standard library alone

    sweep_last(since, proxy)


if __name__ == "__main__":
    file, since, proxy, *rest = map(int, sys.argv[1:])
    form, rest = Form(*rest[:5]), rest[5:]
    count = len(rest) // 3
    ranks = [Rank(*x) for x in zip(rest[:count], rest[count : 2 * count], rest[2 * count :], strict=True)]
    words = watch(mmap.mmap(file, 0, prot=mmap.PROT_READ), form, ranks)
    if words is not None:
        with suppress(OSError):  # mpiexec has gone already, as where another rank has ended the job
            os.write(2, f"{words}\n".encode())
    os.close(2)  # mpiexec waits until no process can write to it
    sweep(since, proxy)

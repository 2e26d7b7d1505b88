"""A process beside the ranks of a host that names the first of them to be killed.

mpiexec ends all ranks as soon as one dies, before they could say who, and itself names a process alone. This
one is none of mpiexec's. It is run as a file, ``python -I -S herald.py FILE ROW COLUMN PROCESS… PIPE…``, and
imports nothing of umm, so that it starts in some milliseconds; it ends with the last rank.
"""

import mmap
import os
import select
import signal
import struct
import sys
import time


def watch(board: mmap.mmap, row: int, column: int, processes: list[int], pipes: list[int]) -> str | None:
    """Wait until all processes have ended, and return in words how one did that had not said it would.

    Args:
        board: Counters of the ranks.
        row: Bytes of a rank's counters.
        column: Offset of the counter by which a rank says that its program ends.
        processes: Process of each rank.
        pipes: Of each, a pipe whose other end it holds.
    """
    # What is ready is reported in the order in which it became so, also if this process looks late.
    ready, ranks = select.epoll(), dict(zip(pipes, range(len(pipes)), strict=True))
    for pipe in pipes:
        ready.register(pipe, select.EPOLLIN)
    while ranks:
        for pipe, _ in ready.poll():
            rank = ranks.pop(pipe)
            ready.unregister(pipe)
            if not struct.unpack_from("q", board, rank * row + column)[0]:
                return f"error: rank {rank} (process {processes[rank]}) {_how(processes[rank])}"
    return None


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


if __name__ == "__main__":
    file, row, column, *rest = map(int, sys.argv[1:])
    processes, pipes = rest[: len(rest) // 2], rest[len(rest) // 2 :]
    words = watch(mmap.mmap(file, 0, prot=mmap.PROT_READ), row, column, processes, pipes)
    if words is not None:
        os.write(2, f"{words}\n".encode())

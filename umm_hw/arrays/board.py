"""Memory that the ranks of a host share: a board of counters they wait by, and a part of each for data."""

import mmap
import os
import select
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from time import monotonic, sleep

import numpy as np
from numpy.typing import NDArray

from umm.errors import UmmError
from umm_hw.arrays.group import Group, here, on_one_host

ENTERED, PUBLISHED, READ, SUMMED, LEFT, DIGEST = range(6)
"""Columns of the board: calls a rank has entered, steps it has published, steps of others it has read, the
last call whose sums it has published, whether its program has ended; what its call is, in two columns that
calls take in turn."""
REFUSED = -1
_COLUMNS, _WORDS = 8, 448  # counters of a rank, one cache line; bytes of what it refuses
_YIELDS = 40  # looks at a counter, giving the core to others, before sleeping
_FIRST, _LONGEST = 20e-6, 400e-6  # seconds of sleep between two looks
_ALIVE = 0.02  # seconds between two looks at who lives


class Board:
    """Counters of all ranks in shared memory. Each rank writes its own row alone and reads all.

    Args:
        group: Ranks of one host.
        memory: The shared bytes; zero at first.
        processes: Process of each rank.
    """

    def __init__(self, group: Group, memory: NDArray[np.uint8], processes: Sequence[int]) -> None:
        counters = 8 * _COLUMNS * group.size
        self._counts = memory[:counters].view(np.int64).reshape(group.size, _COLUMNS)
        self._words = memory[counters:].reshape(group.size, 2, _WORDS)
        self._own = self._counts[group.rank]
        self._group = group
        self._processes = processes
        self._fence = Lock()
        self._alive = {rank: _opened(process) for rank, process in enumerate(processes)}

    @staticmethod
    def nbytes(size: int) -> int:
        """Return the bytes a board of so many ranks needs."""
        return size * (8 * _COLUMNS + 2 * _WORDS)

    def set(self, column: int, value: int) -> None:
        """Write a counter of this rank, after everything it wrote before."""
        with self._fence:  # orders the stores on processors that would not
            self._own[column] = value

    def say(self, turn: int, words: str) -> None:
        """Leave words for the others to read, in one of two places."""
        text = words.encode()[:_WORDS]
        self._words[self._group.rank, turn] = np.frombuffer(text.ljust(_WORDS, b"\0"), np.uint8)

    def said(self, rank: int, turn: int) -> str:
        """Return the words of a rank."""
        return bytes(self._words[rank, turn]).rstrip(b"\0").decode(errors="replace")

    def column(self, column: int) -> NDArray[np.int64]:
        """Return a counter of every rank, as it is now."""
        return self._counts[:, column].copy()

    def wait(self, ranks: Iterable[int], column: int, value: int, what: str) -> None:
        """Wait until a counter of some ranks is at least a value, leaving the core to others.

        Raises:
            UmmError: if one of them has ended or was killed.
        """
        wanted = np.fromiter(ranks, dtype=np.int64)
        counts = self._counts
        for _ in range(_YIELDS):
            if (counts[wanted, column] >= value).all():
                break
            os.sched_yield()
        else:
            self._sleep_until(wanted, column, value, what)
        with self._fence:
            pass

    def _sleep_until(self, wanted: NDArray[np.int64], column: int, value: int, what: str) -> None:
        pause, look = _FIRST, monotonic() + _ALIVE
        while not (self._counts[wanted, column] >= value).all():
            sleep(pause)
            pause = min(1.5 * pause, _LONGEST)
            if monotonic() > look:
                late = wanted[self._counts[wanted, column] < value].tolist()
                self._look_for_dead(late, what)
                look = monotonic() + _ALIVE

    def _look_for_dead(self, ranks: Sequence[int], what: str) -> None:
        for rank in ranks:
            if self._counts[rank, LEFT]:
                raise UmmError(
                    f"rank {rank} has ended its program, while rank {self._group.rank} waits for {what}"
                )
            if _is_dead(self._alive[rank]):
                line = f"error: rank {rank} (process {self._processes[rank]}) was killed; the others end\n"
                os.write(2, line.encode())
                self._group.end(1)


def _opened(process: int) -> int | None:
    with suppress(OSError, AttributeError):
        return os.pidfd_open(process)
    return None


def _is_dead(handle: int | None) -> bool:
    return handle is not None and bool(select.select([handle], [], [], 0)[0])


class Parts:
    """A piece of memory of each rank that every rank of the host has mapped.

    Collective to make.

    Args:
        group: Ranks of one host.
        nbytes: Bytes of each rank's part.
    """

    def __init__(self, group: Group, nbytes: Sequence[int]) -> None:
        self.nbytes = tuple(nbytes)
        self.file = own = os.memfd_create("umm-arrays")
        os.ftruncate(own, max(mmap.PAGESIZE, nbytes[group.rank]))
        offers = group.allgather((os.getpid(), own))
        trouble, parts = "", list[NDArray[np.uint8]]()
        for rank, (process, number) in enumerate(offers):
            try:
                parts.append(_mapped(process, number, own if rank == group.rank else None))
            except OSError as error:  # another container, or forbidden here
                trouble = f"rank {group.rank} cannot map memory of rank {rank}: {error}"
        self.trouble = next(filter(None, group.allgather(trouble)), "")
        self.parts = parts

    def close_file(self) -> None:
        """Close the file behind this rank's part, which stays mapped."""
        os.close(self.file)


def _mapped(process: int, number: int, own: int | None) -> NDArray[np.uint8]:
    file = own if own is not None else os.open(f"/proc/{process}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
    try:
        # A rank's own pages are touched now, by the rank: so they lie on its NUMA node, and no multiply pays.
        flags = mmap.MAP_SHARED | (getattr(mmap, "MAP_POPULATE", 0) if own is not None else 0)
        return np.frombuffer(mmap.mmap(file, os.fstat(file).st_size, flags), np.uint8)
    finally:
        if own is None:
            os.close(file)


def shared_board(group: Group) -> Board | None:
    """Return the board of a group whose ranks can share memory, None for any other; collective."""
    places = group.allgather(here())
    wanted = on_one_host(places) and hasattr(os, "memfd_create")
    if not all(group.allgather(wanted and os.environ.get("UMM_MPI_WINDOW") != "remote")):
        return None
    parts = Parts(group, [Board.nbytes(group.size) if rank == 0 else 0 for rank in range(group.size)])
    if not parts.trouble and group.size > 1 and hasattr(os, "pidfd_open") and group.names_killed:
        _start_herald(group, parts.file, [process for _, process in places])
    parts.close_file()
    if parts.trouble:
        return None
    return Board(group, parts.parts[0][: Board.nbytes(group.size)], [process for _, process in places])


def _start_herald(group: Group, board: int, processes: Sequence[int]) -> None:
    """Have a process watch the ranks; collective. Each rank holds an end of a pipe to it for life.

    The system closes the pipes of a process that dies before it lets anybody wait for it, so their order is
    that of the deaths, also where mpiexec ends the other ranks at once.
    """
    pipes = [os.pipe() for _ in range(group.size)] if group.rank == 0 else []
    offers = group.allgather([end for _, end in pipes])[0]
    trouble = False
    if group.rank > 0:
        try:
            os.open(f"/proc/{processes[0]}/fd/{offers[group.rank]}", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            trouble = True
    trouble = any(group.allgather(trouble))
    if group.rank == 0:
        ends = [str(end) for end, _ in pipes]
        herald = str(Path(__file__).with_name("herald.py"))
        words = [str(x) for x in (board, 8 * _COLUMNS, 8 * LEFT, *processes)]
        if not trouble:
            made = subprocess.Popen(
                [sys.executable, "-I", "-S", herald, *words, *ends],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[board, *map(int, ends)],
                start_new_session=True,
            )
            made.returncode = 0  # nobody waits for it: it ends after this process
        for rank, (end, own) in enumerate(pipes):
            os.close(end)
            if rank > 0:
                os.close(own)

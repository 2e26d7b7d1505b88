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
from time import monotonic, sleep, time

import numpy as np
from numpy.typing import NDArray

from umm.errors import UmmError
from umm.host.launcher import is_stopped, proxy_above, started
from umm_hw.arrays.group import Group, here, on_one_host
from umm_hw.arrays.late import Late
from umm_hw.cores.backoff import ROUND_SLACK, Backoff

ENTERED, PUBLISHED, READ, SUMMED, LEFT, DIGEST = range(6)
"""Columns of the board: calls a rank has entered, steps it has published, steps of others it has read, the
last call whose sums it has published, whether its program has ended; what its call is, in two columns that
calls take in turn."""
JUDGED = 7  # the last column: whether a rank has written who keeps the others waiting
REFUSED = -1
_COLUMNS, _WORDS = 8, 448  # counters of a rank, one cache line; bytes of words
_VERDICT = 2  # after the words of two calls
_YIELDS = 40  # looks at a counter, giving the core to others, before sleeping
USUAL_PAUSE = 400e-6  # seconds of sleep between two looks, at a counter or a message
_ALIVE = 0.02  # seconds between two looks at who lives
_LOOK = 0.2  # seconds between two looks at who is stopped
STOPPED = 5.0  # seconds after which a stopped process is an error of those that wait for it
ABSENT = 3.0  # seconds this rank must have been away to count anew: all may have been suspended
LAST = 2.0  # seconds for the last message of a rank that has ended its program
TOGETHER = 0.5  # seconds all that wait have to learn of an error before one of them ends the job


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
        self._words = memory[counters:].reshape(group.size, 3, _WORDS)
        self._own = self._counts[group.rank]
        self._group = group
        self._processes = processes
        self._fence = Lock()
        self._alive = {rank: _opened(process) for rank, process in enumerate(processes)}
        self._stopped: dict[int, float] = {}  # since when a rank has been seen stopped
        self._looked = self._looked_closely = 0.0
        self._left: dict[int, float] = {}  # since when a rank has been seen to have left

    @staticmethod
    def nbytes(size: int) -> int:
        """Return the bytes a board of so many ranks needs."""
        return size * (8 * _COLUMNS + 3 * _WORDS)

    def set(self, column: int, value: int) -> None:
        """Write a counter of this rank, after everything it wrote before."""
        with self._fence:  # orders the stores on processors that would not
            self._own[column] = value

    def say(self, turn: int, words: str) -> None:
        """Leave words for the others to read, in one of two places that calls take in turn."""
        text = words.encode()[:_WORDS]
        self._words[self._group.rank, turn] = np.frombuffer(text.ljust(_WORDS, b"\0"), np.uint8)

    def said(self, rank: int, turn: int) -> str:
        """Return the words of a rank."""
        return bytes(self._words[rank, turn]).rstrip(b"\0").decode(errors="replace")

    def last_call(self, rank: int) -> str:
        """Return the last call that a rank has entered, in words that follow a semicolon."""
        calls = int(self._counts[rank, ENTERED])
        return f"its last call {self.said(rank, calls % 2)}" if calls else "it has made no call yet"

    def column(self, column: int) -> NDArray[np.int64]:
        """Return a counter of every rank, as it is now."""
        return self._counts[:, column].copy()

    def wait(self, ranks: Iterable[int], column: int, value: int, what: str) -> None:
        """Wait until a counter of some ranks is at least a value, leaving the core to others.

        UmmError if one of them has ended, or has been stopped for some seconds.
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
        pauses, notes = Backoff(USUAL_PAUSE, ROUND_SLACK), Late(self._group, what)
        now = monotonic()
        if now - self._looked > ABSENT:
            self._stopped.clear()
        self._looked = self._looked_closely = now
        while not (self._counts[wanted, column] >= value).all():
            pauses.sleep()
            if monotonic() - self._looked > _ALIVE:
                late = wanted[self._counts[wanted, column] < value].tolist()
                self.look(late, what)
                if notes.due:
                    notes.write(late, self.described)

    def look(self, late: Sequence[int], what: str) -> None:
        """Look whether some ranks live, while this one waits for them.

        UmmError if one of them has ended, or has been stopped for some seconds; the same on all ranks that
        wait.
        """
        now = monotonic()
        if now - self._looked > ABSENT:
            self._stopped.clear()
        self._looked = now
        for rank in late:
            if self._counts[rank, LEFT]:
                raise UmmError(
                    f"rank {self._group.numbers[rank]} has ended its program, while rank "
                    f"{self._group.numbers[self._group.rank]} waits for {what}; {self.last_call(rank)}"
                )
            if _is_dead(self._alive[rank]):
                line = f"error: {self._called(rank)} was killed; the others end; {self.last_call(rank)}\n"
                os.write(2, line.encode())
                self._group.end(1)
        if now - self._looked_closely > _LOOK:
            self._looked_closely = now
            self._judge(late, now)
        for judge in np.flatnonzero(self._counts[:, JUDGED]).tolist():
            sleep(TOGETHER)
            raise UmmError(self.said(judge, _VERDICT))

    def look_by_number(self, numbers: Sequence[int], what: str) -> None:
        """Look whether ranks of this board live, while this one waits for a message of theirs.

        Args:
            numbers: The numbers by which ranks are named, of other boards too.
            what: The message, in words.
        """
        rows = {number: row for row, number in enumerate(self._group.numbers)}
        late, now = [rows[number] for number in numbers if number in rows], monotonic()
        self._left = {row: self._left.get(row, now) for row in late if self._counts[row, LEFT]}
        # The last message of a rank that has ended its program may still be on its way.
        self.look([row for row in late if now - self._left.get(row, now - LAST) >= LAST], what)

    def _judge(self, late: Sequence[int], now: float) -> None:
        """Let all ranks know who has been stopped for too long."""
        self._stopped = {
            rank: self._stopped.get(rank, now) for rank in late if is_stopped(self._processes[rank])
        }
        frozen = [rank for rank, since in self._stopped.items() if now - since > STOPPED]
        if frozen:
            rank = frozen[0]
            self.say(
                _VERDICT,
                f"{self._called(rank)} has been stopped for {STOPPED:.0f} s, and the others wait for it; "
                f"{self.last_call(rank)}",
            )
            self.set(JUDGED, 1)

    def described(self, rank: int) -> str:
        """Return a rank with its process and its last call, in words."""
        return f"{self._called(rank)}, {self.last_call(rank)},"

    def _called(self, rank: int) -> str:
        return f"rank {self._group.numbers[rank]} (process {self._processes[rank]})"


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
        self.file = number_here = os.memfd_create("umm-arrays")
        os.ftruncate(number_here, max(mmap.PAGESIZE, nbytes[group.rank]))
        offers = group.allgather((os.getpid(), number_here))
        trouble, parts = "", list[NDArray[np.uint8]]()
        for rank, (process, number) in enumerate(offers):
            try:
                parts.append(_mapped(process, number, number_here if rank == group.rank else None))
            except OSError as error:  # another container, or forbidden here
                trouble = f"rank {group.rank} cannot map memory of rank {rank}: {error}"
        self.trouble = next(filter(None, group.allgather(trouble)), "")
        self.parts = parts

    def close_file(self) -> None:
        """Close the file behind this rank's part, which stays mapped."""
        os.close(self.file)


def _mapped(process: int, number: int, shared: int | None) -> NDArray[np.uint8]:
    file = shared if shared is not None else os.open(f"/proc/{process}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
    try:
        # A rank's own pages are touched now, by the rank: so they lie on its NUMA node, and no multiply pays.
        flags = mmap.MAP_SHARED | (getattr(mmap, "MAP_POPULATE", 0) if shared is not None else 0)
        return np.frombuffer(mmap.mmap(file, os.fstat(file).st_size, flags), np.uint8)
    finally:
        if shared is None:
            os.close(file)


def shared_board(group: Group, remote: bool | None = None) -> Board | None:
    """Return the board of a group whose ranks can share memory, None for any other; collective.

    Args:
        remote: Whether they are to be taken for ranks of several hosts; None asks the environment.
    """
    apart = os.environ.get("UMM_MPI_WINDOW") == "remote" if remote is None else remote
    places = group.allgather(here())
    wanted = on_one_host(places) and hasattr(os, "memfd_create")
    if not all(group.allgather(wanted and not apart)):
        return None
    parts = Parts(group, [Board.nbytes(group.size) if rank == 0 else 0 for rank in range(group.size)])
    alone = group.size == 1 and remote is None  # else there may be ranks of other hosts
    if not parts.trouble and not alone and hasattr(os, "pidfd_open") and group.names_killed:
        _start_herald(group, parts.file, [process for _, process in places])
    parts.close_file()
    if parts.trouble:
        return None
    return Board(group, parts.parts[0][: Board.nbytes(group.size)], [process for _, process in places])


def _start_herald(group: Group, board: int, processes: Sequence[int]) -> None:
    """Have a process watch the ranks; collective. Each rank holds an end of a pipe to it for life."""
    # The system closes the pipes of a process that dies before it lets anybody wait for it. So their order is
    # that of the deaths, also where mpiexec ends the other ranks at once.
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
        form = (8 * _COLUMNS, 8 * LEFT, 8 * ENTERED, 3 * _WORDS, _WORDS)
        proxy = proxy_above(os.getpid())
        since = int(min(time(), *map(started, (proxy, *processes))))
        words = [str(x) for x in (board, since, proxy, *form, *group.numbers, *processes)]
        if not trouble:
            made = subprocess.Popen(
                [sys.executable, "-I", "-S", herald, *words, *ends],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[board, *map(int, ends)],
                start_new_session=True,
            )
            made.returncode = 0  # nobody waits for it: it ends after this process
        for rank, (end, read_end) in enumerate(pipes):
            os.close(end)
            if rank > 0:
                os.close(read_end)

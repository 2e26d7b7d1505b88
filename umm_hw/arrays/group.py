"""The ranks that hold matrices together, over MPI or another library that started them."""

import os
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from umm_hw.arrays.late import Late
from umm_hw.cores.backoff import ROUND_SLACK, Backoff


class Message(Protocol):
    """A message under way."""

    def done(self) -> bool:
        """Return whether its array may be used again; asking moves it on."""


class Group(Protocol):
    """Ranks that can reach each other. ``allgather`` is collective, called by all in the same order."""

    # Called now and then by a rank that waits, with the ranks it may wait for and for what; it may raise.
    look: Callable[[Sequence[int], str], None] | None

    @property
    def rank(self) -> int:
        """This rank's number."""

    @property
    def size(self) -> int:
        """Number of ranks."""

    @property
    def numbers(self) -> Sequence[int]:
        """The number by which each rank is named."""

    @property
    def names_killed(self) -> bool:
        """Whether umm must name a killed rank, because the launcher does not."""

    def allgather(self, content: Any) -> list[Any]:
        """Return the contents of all ranks, by rank; anything that can be pickled."""

    def send(self, array: NDArray[np.uint8], to: int, tag: int) -> Message:
        """Start to send bytes to a rank; the array must stay as it is until the message is done."""

    def receive(self, array: NDArray[np.uint8], source: int, tag: int) -> Message:
        """Start to receive as many bytes as the array has from a rank."""

    def end(self, code: int) -> None:
        """End the program of every rank, because one of them is gone."""

    def on_host(self) -> "Group | None":
        """Return the ranks of this host as a group, None where only all can be asked; collective."""


_HERE, _ASK, _LATE = range(3)  # tags: what a rank gives, who asks rank 0 whom it waits for, the answer
_ANSWERED = 1.0  # seconds rank 0 has to answer, if it waits too


class MpiGroup:
    """The ranks of an mpi4py communicator; collective to make, for the communicator is duplicated.

    Args:
        comm: An intracommunicator, of all ranks or of some.
        numbers: The number by which each rank is named; its rank in ``comm`` if None.
    """

    def __init__(self, comm: Any, numbers: Sequence[int] | None = None) -> None:
        self.comm = comm.Dup()
        self._gathers = comm.Dup()  # whose messages no other message is taken for
        self._count = 0  # of gathers
        self._sent: list[Any] = []  # questions and answers under way
        self.rank: int = comm.rank
        self.size: int = comm.size
        self.numbers: Sequence[int] = range(comm.size) if numbers is None else numbers
        self.names_killed = True
        self.look: Callable[[Sequence[int], str], None] | None = None

    def allgather(self, content: Any) -> list[Any]:
        """Return one item a rank; a rank that waits sleeps, for MPICH would spin."""
        # Rank 0 receives from each, so that it knows who is late.
        from umm_hw.mpi import wait

        self._count += 1
        self._sent = [x for x in self._sent if not x.Test()]
        if self.rank == 0:
            contents: list[Any] = wait.broadcast(self._gathers, self._taken_in(content))
            return contents
        given = self._gathers.isend(content, 0, _HERE)
        contents = wait.broadcast(self._gathers, look=self._asking())
        given.wait()
        return contents

    def _taken_in(self, content: Any) -> list[Any]:
        """Return one item a rank, on rank 0."""
        from mpi4py import MPI

        from umm_hw.mpi import wait

        contents, late = {0: content}, list(range(1, self.size))
        notes, status = Late(self, "all to call"), MPI.Status()
        pauses = Backoff(wait.USUAL_PAUSE, ROUND_SLACK)
        while late:
            message = self._gathers.improbe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
            if message is None:
                pauses.sleep()
                self._looked(late)
                if notes.due:
                    notes.write(late)
                continue
            given, source = message.recv(), status.source
            if status.tag == _HERE:
                contents[source] = given
                late.remove(source)
            elif given == self._count:  # else it has gone on meanwhile
                self._sent.append(self._gathers.isend((given, late), source, _LATE))
        return [contents[rank] for rank in range(self.size)]

    def _asking(self) -> Callable[[], None]:
        """Return a function that other ranks call while they wait: look who lives, ask rank 0 who is late."""
        notes, others = Late(self, "all to call"), [x for x in range(self.size) if x != self.rank]
        asked: float | None = None

        def look() -> None:
            nonlocal asked
            self._looked(others)
            if asked is None and notes.due:
                self._sent.append(self._gathers.isend(self._count, 0, _ASK))
                asked = monotonic()
            if asked is None:
                return
            message = self._gathers.improbe(0, _LATE)
            number, late = message.recv() if message else (self._count, None)
            if number == self._count and (late or monotonic() - asked > _ANSWERED):
                notes.write(late or [0])
                asked = None

        return look

    def _looked(self, late: Sequence[int]) -> None:
        if self.look is not None:
            self.look(late, "all to call")

    def send(self, array: NDArray[np.uint8], to: int, tag: int) -> Message:
        """Start to send bytes."""
        return _MpiMessage(self.comm.Isend([array, _bytes()], to, tag))

    def receive(self, array: NDArray[np.uint8], source: int, tag: int) -> Message:
        """Start to receive bytes."""
        return _MpiMessage(self.comm.Irecv([array, _bytes()], source, tag))

    def end(self, code: int) -> None:
        """Abort MPI's job."""
        self.comm.Abort(code)

    def on_host(self) -> "MpiGroup":
        """Return the ranks of this host."""
        from mpi4py import MPI

        comm = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        group = MpiGroup(comm, comm.allgather(self.numbers[self.rank]))
        comm.Free()
        return group


class _MpiMessage:
    def __init__(self, request: Any) -> None:
        self._request = request

    def done(self) -> bool:
        return bool(self._request.Test())


def _bytes() -> Any:
    from mpi4py import MPI

    return MPI.BYTE


_KEY: list[int] = []


def group_of(comm: Any) -> Group:
    """Return the group of a communicator: the same object each time; collective at the first."""
    # A group, such as that of a torch process group, is returned as it is.
    if not hasattr(comm, "Get_attr"):
        custom: Group = comm
        return custom
    from mpi4py import MPI

    if not _KEY:
        _KEY.append(MPI.Comm.Create_keyval())
    group = comm.Get_attr(_KEY[0])
    if group is None:
        group = MpiGroup(comm)
        comm.Set_attr(_KEY[0], group)
    kept: Group = group
    return kept


def here() -> tuple[str, int]:
    """Return an identifier of this host, and this process's number."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
    except OSError:
        boot = os.uname().nodename
    return boot, os.getpid()


def on_one_host(places: Sequence[tuple[str, int]]) -> bool:
    """Whether all of these processes run on one host."""
    return len({boot for boot, _ in places}) == 1

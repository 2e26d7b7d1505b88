"""The ranks that hold matrices together: what is asked of MPI, or of another library that started them."""

import os
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class Message(Protocol):
    """A message under way."""

    def done(self) -> bool:
        """Return whether its array may be used again; asking moves it on."""


class Group(Protocol):
    """Ranks that can reach each other. ``allgather`` is collective, called by all in the same order."""

    @property
    def rank(self) -> int:
        """This rank's number."""

    @property
    def size(self) -> int:
        """Number of ranks."""

    @property
    def names_killed(self) -> bool:
        """Whether umm must name a rank that is killed, because what started the ranks does not."""

    def allgather(self, content: Any) -> list[Any]:
        """Return what each rank gave, by rank; anything that can be pickled."""

    def send(self, array: NDArray[np.uint8], to: int, tag: int) -> Message:
        """Start to send bytes to a rank; the array must stay as it is until the message is done."""

    def receive(self, array: NDArray[np.uint8], of: int, tag: int) -> Message:
        """Start to receive as many bytes as the array has from a rank."""

    def end(self, code: int) -> None:
        """End the program of every rank, because one of them is gone."""


class MpiGroup:
    """The ranks of an mpi4py communicator; collective to make, for the communicator is duplicated.

    Args:
        comm: An intracommunicator, of all ranks or of some.
    """

    def __init__(self, comm: Any) -> None:
        self.comm = comm.Dup()
        self.rank: int = comm.rank
        self.size: int = comm.size
        self.names_killed = True

    def allgather(self, content: Any) -> list[Any]:
        """Return what each rank gave; a rank that waits sleeps, for MPICH would spin."""
        from umm_hw.mpi import wait

        found: list[Any] = wait.broadcast(self.comm, wait.gather(self.comm, content))
        return found

    def send(self, array: NDArray[np.uint8], to: int, tag: int) -> Message:
        """Start to send bytes."""
        return _MpiMessage(self.comm.Isend([array, _bytes()], to, tag))

    def receive(self, array: NDArray[np.uint8], of: int, tag: int) -> Message:
        """Start to receive bytes."""
        return _MpiMessage(self.comm.Irecv([array, _bytes()], of, tag))

    def end(self, code: int) -> None:
        """Abort MPI's job."""
        self.comm.Abort(code)


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
    """Return the group of a communicator: the same object each time; collective at the first.

    A group, such as that of a torch process group, is returned as it is.
    """
    if not hasattr(comm, "Get_attr"):
        found: Group = comm
        return found
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
    """Return what identifies this host, and this process."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
    except OSError:
        boot = os.uname().nodename
    return boot, os.getpid()


def on_one_host(places: Sequence[tuple[str, int]]) -> bool:
    """Whether all of these processes run on one host."""
    return len({boot for boot, _ in places}) == 1

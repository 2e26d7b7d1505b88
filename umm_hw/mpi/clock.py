"""One time for all ranks: by how much a rank's clock is behind rank 0's."""

from collections.abc import Sequence
from time import perf_counter

import numpy as np
from mpi4py import MPI

from umm_hw.mpi import wait

EXCHANGES = 200  # questions each host asks; the quickest answer counts


def offset_to_first(comm: MPI.Intracomm, firsts: Sequence[int], first: int) -> float:
    """Return the seconds to add to this rank's ``perf_counter`` to get rank 0's; collective.

    On rank 0's host it is 0: ``perf_counter`` reads CLOCK_MONOTONIC, which all processes of a host share. One
    rank of each other host in turn asks rank 0 for its time; with the quickest of many round trips, the error
    is at most half of that round trip.

    Args:
        firsts: The lowest rank of each host, ascending.
        first: That of this rank's host.

    Source: Cristian (1989), Distributed Computing 3, 146-158.
    """
    if len(firsts) == 1:
        return 0.0
    ahead = 0.0
    for rank in firsts[1:]:
        if comm.rank == 0:
            _answer(comm, rank)
        elif comm.rank == rank:
            ahead = _ask(comm)
        wait.barrier(comm)
    offsets: list[float] = wait.broadcast(comm, wait.gather(comm, ahead))
    return offsets[first]


def _answer(comm: MPI.Intracomm, rank: int) -> None:
    question, time = np.empty(0), np.empty(1)
    for _ in range(EXCHANGES):
        comm.Recv(question, rank)
        time[0] = perf_counter()
        comm.Send(time, rank)


def _ask(comm: MPI.Intracomm) -> float:
    question, time = np.empty(0), np.empty(1)
    offsets = []
    for _ in range(EXCHANGES):
        asked = perf_counter()
        comm.Send(question, 0)
        comm.Recv(time, 0)
        answered = perf_counter()
        offsets.append((answered - asked, time[0] - (asked + answered) / 2))
    return float(min(offsets)[1])

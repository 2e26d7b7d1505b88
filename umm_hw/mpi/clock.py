"""One time for all ranks: by how much a rank's clock is behind rank 0's."""

from time import perf_counter

import numpy as np
from mpi4py import MPI

from umm_hw.mpi import wait

EXCHANGES = 200  # questions each rank asks; the quickest answer counts


def offset_to_first(comm: MPI.Intracomm, same_clock: bool) -> float:
    """Return the seconds to add to this rank's ``perf_counter`` to get rank 0's; collective.

    On one host it is 0: ``perf_counter`` reads CLOCK_MONOTONIC, which all processes share. Across hosts each
    rank in turn asks rank 0 for its time; with the quickest of many round trips, the error is at most half
    of that round trip.

    Args:
        same_clock: Whether they are all on one host.

    Source: Cristian (1989), Distributed Computing 3, 146-158.
    """
    if same_clock:
        return 0.0
    ahead = 0.0
    for rank in range(1, comm.size):
        if comm.rank == 0:
            _answer(comm, rank)
        elif comm.rank == rank:
            ahead = _ask(comm)
        wait.barrier(comm)
    return ahead


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

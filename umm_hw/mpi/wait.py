"""Waiting for MPI without spinning: ranks that share cores must leave them to those who compute."""

import pickle
from collections.abc import Callable
from math import inf
from time import perf_counter
from typing import Any

import numpy as np
from mpi4py import MPI

from umm_hw.cores.backoff import ROUND_SLACK, Backoff

USUAL_PAUSE = 500e-6  # seconds between two looks


def until_complete(
    request: MPI.Request,
    most: float = inf,
    look: Callable[[], None] | None = None,
    pauses: Backoff | None = None,
) -> bool:
    """Wait until a request is complete; look at it now and then, sleeping in between.

    A blocking call of MPICH spins: with 8 ranks on 2 cores it slows another rank's GEMM fivefold.

    Args:
        most: Most seconds to wait.
        look: Called in each pause; it may raise.
        pauses: Those between two looks.

    Returns:
        Whether it is complete.
    """
    pauses, until = pauses or Backoff(USUAL_PAUSE, ROUND_SLACK), perf_counter() + most
    while not request.Test():
        if perf_counter() > until:
            return False
        pauses.sleep()
        if look is not None:
            look()
    return True


def barrier(comm: MPI.Comm) -> None:
    """Wait until every rank has come here."""
    until_complete(comm.Ibarrier())


def broadcast(
    comm: MPI.Comm,
    content: Any = None,
    look: Callable[[], None] | None = None,
    pauses: Backoff | None = None,
) -> Any:
    """Return rank 0's content on every rank; anything that can be pickled.

    Args:
        content: On rank 0.
        look: Called in each pause before rank 0's content comes; it may raise.
        pauses: Those between two looks, before rank 0's content comes.
    """
    data = bytearray(pickle.dumps(content, protocol=5)) if comm.rank == 0 else bytearray()
    size = np.array([len(data)], dtype=np.int64)
    until_complete(comm.Ibcast(size, root=0), look=look, pauses=pauses)
    if comm.rank > 0:
        data = bytearray(int(size[0]))
    until_complete(comm.Ibcast([data, MPI.BYTE], root=0))
    return content if comm.rank == 0 else pickle.loads(data)


def gather(comm: MPI.Comm, content: Any) -> list[Any]:
    """Return the contents of all ranks on rank 0, its own without a copy, and an empty list elsewhere."""
    data = bytearray(pickle.dumps(content, protocol=5)) if comm.rank > 0 else bytearray()
    sizes = np.zeros(comm.size, dtype=np.int64)
    until_complete(comm.Igather(np.array([len(data)], dtype=np.int64), sizes, root=0))
    if comm.rank > 0:
        until_complete(comm.Igatherv([data, MPI.BYTE], None, root=0))
        return []
    starts = np.cumsum(sizes) - sizes
    together = bytearray(int(sizes.sum()))
    until_complete(comm.Igatherv([data, MPI.BYTE], [together, sizes, starts, MPI.BYTE], root=0))
    parts = zip(starts[1:], sizes[1:], strict=True)
    return [content, *(pickle.loads(together[start : start + size]) for start, size in parts)]

"""The ranks that an mpiexec has started: rank 0 submits, the others perform."""

import signal
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import cast

from umm.errors import ExecutorUnavailableError
from umm.host import segments
from umm.host.launcher import end_with_launcher, stay_on_loopback


@contextmanager
def pool(jobs: int | None) -> Iterator[Executor | None]:
    """Yield the pool on rank 0, and None on the others when there is no more to do.

    Raises:
        ExecutorUnavailableError: without mpi4py.
    """
    end_with_launcher()
    stay_on_loopback()
    segments.watch_over()
    try:
        from mpi4py import MPI
        from mpi4py.futures import MPICommExecutor
    except ImportError:
        raise ExecutorUnavailableError(
            "pool mpi needs mpi4py, which is not installed; pip install 'umm-sim[mpi]'"
        ) from None
    if MPI.COMM_WORLD.rank > 0:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # mpiexec gives it to all; rank 0 then ends the others
    MPI.COMM_WORLD.Barrier()
    segments.forget()
    with MPICommExecutor() as ranks:
        yield cast(Executor | None, ranks)

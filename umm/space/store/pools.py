"""Who performs the tasks of a sweep: any pool of ``concurrent.futures``, found by name.

A pool takes the number of jobs, None if that is left to it, and returns an ``Executor`` or a context that
yields one: ``concurrent.futures:ThreadPoolExecutor`` is one as it is. Other packages add theirs in the
entry-point group ``umm.pools``.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import parent_process
from multiprocessing.process import BaseProcess
from typing import Any, cast

from umm.errors import ExecutorUnavailableError, InputError
from umm.files import shown
from umm.host import launcher as segments
from umm.host.launcher import end_with_launcher, ended_by_ctrl_c, stay_on_loopback
from umm.plugins import loaded, plugin, plugins

GROUP = "umm.pools"
Pool = Callable[[int | None], AbstractContextManager[Executor | None]]
"""What it yields is None on processes that only perform, when there is no more to do."""


def pool_names() -> list[str]:
    """Return the names of all pools, sorted.

    >>> pool_names()[:4]
    ['dask', 'mpi', 'none', 'process']
    """
    return sorted({*POOLS, *plugins(GROUP)})


def find_pool(name: str) -> Pool:
    """Return the pool of a name.

    InputError listing those there are. ExecutorUnavailableError if a package of it is missing.
    """
    if name in POOLS:
        return POOLS[name]
    entry = plugin(GROUP, name)
    if entry is None:
        raise InputError(f"pool {shown(name)} is unknown; choose from {', '.join(pool_names())}")
    pool: Pool = loaded(entry, "pool ")
    return pool


class Here(Executor):
    """Performs tasks at once, before ``submit`` returns."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Return a future that is done; an interruption ends the caller."""
        future: Future[Any] = Future()
        try:
            # Ctrl-C is no Exception, so it passes through to the caller.
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


PER_CORE = 4  # most processes for each core


@contextmanager
def process_pool(jobs: int | None) -> Iterator[Executor]:
    """Yield the pool, of one process per core unless asked otherwise.

    BrokenExecutor if one was killed, saying which and how.
    """
    cores = os.cpu_count() or 1
    processes: list[BaseProcess] = []
    try:
        with ProcessPoolExecutor(
            min(jobs or cores, PER_CORE * cores), initializer=_end_with_parent
        ) as workers:
            try:
                yield workers
            finally:  # one that waits for what a killed one has locked would be waited for in vain
                processes += (getattr(workers, "_processes", None) or {}).values()
                for process in processes:
                    process.terminate()
                # One that ends amid a result leaves half of it. The pool would wait for the rest as long as
                # this process could still write it, so its end of that pipe is closed.
                writer = getattr(getattr(workers, "_result_queue", None), "_writer", None)
                if writer is not None:
                    writer.close()
    except BrokenExecutor:  # by now all have ended
        raise BrokenExecutor(_how_ended(processes)) from None


def _how_ended(processes: Iterable[BaseProcess]) -> str:
    """Return in words which processes were killed; a pool then ends the others by SIGTERM."""
    ended = [(x.pid, x.exitcode) for x in processes if x.exitcode not in (None, 0, -signal.SIGTERM)]
    words = [
        f"process {number} of the sweep "
        + (f"was killed by {_name(-code)}" if code < 0 else f"ended with exit code {code}")
        for number, code in ended
    ]
    return " and ".join(words) or f"a process of the sweep was killed by {_name(signal.SIGTERM)}"


def _name(number: int) -> str:
    """Return the name of a signal; some have none."""
    return next((x.name for x in signal.Signals if x == number), f"signal {number}")


def _end_with_parent() -> None:
    """Leave Ctrl-C to the parent, and end when it is killed: a worker would wait for work for ever."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # by which the pool ends its processes

    def watch() -> None:
        parent = parent_process()
        if parent is not None:
            # A killed parent says nothing; joining it returns when it ends, however it does.
            parent.join()
            # sys.exit would end this thread alone.
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def mpi_pool(jobs: int | None) -> Iterator[Executor | None]:
    """Yield the pool on rank 0, and None on the others when there is no more to do.

    ExecutorUnavailableError without mpi4py.
    """
    end_with_launcher()
    stay_on_loopback()
    segments.watch_over()
    try:
        with ended_by_ctrl_c():
            from mpi4py import MPI
        from mpi4py.futures import MPICommExecutor
    except ImportError:
        raise ExecutorUnavailableError(
            "pool mpi needs mpi4py, which is not installed; pip install 'umm-sim[mpi-wheels]'"
        ) from None
    if MPI.COMM_WORLD.rank > 0:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # mpiexec gives it to all; rank 0 then ends the others
    MPI.COMM_WORLD.Barrier()
    segments.forget()
    with MPICommExecutor() as ranks:
        yield cast(Executor | None, ranks)


@contextmanager
def dask_pool(jobs: int | None) -> Iterator[Executor]:
    """Yield the pool: of the cluster that Dask's settings name, else of processes here, one per core.

    The setting is ``scheduler-address``, as the variable ``DASK_SCHEDULER_ADDRESS`` or in Dask's files.
    BrokenExecutor if workers are killed again and again with the same task. ExecutorUnavailableError without
    dask.distributed, or if the cluster cannot be reached.
    """
    try:
        import dask
        from distributed import Client, KilledWorker
    except ImportError:
        raise ExecutorUnavailableError(
            "pool dask needs dask.distributed, which is not installed; pip install 'umm-sim[dask]'"
        ) from None
    address = dask.config.get("scheduler-address", None)
    try:
        # One thread a worker, for Python simulates on one at a time; no dashboard, which would open a port.
        here = {"n_workers": jobs, "threads_per_worker": 1, "dashboard_address": None}
        client = Client(address) if address else Client(**here)
    except OSError as error:
        raise ExecutorUnavailableError(f"pool dask: there is no cluster at {address}: {error}") from None
    with client:
        try:
            # Pure calls would be hashed by their arguments to merge equal ones; here no two tasks are equal.
            yield client.get_executor(pure=False)
        except KilledWorker as error:
            raise BrokenExecutor(str(error)) from None


POOLS: dict[str, Pool] = {
    "dask": dask_pool,
    "mpi": mpi_pool,
    "none": lambda jobs: Here(),  # one job, however many are asked for
    "process": process_pool,
}
"""umm's own."""

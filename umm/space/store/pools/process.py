"""Processes of this host."""

import os
import signal
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import parent_process
from multiprocessing.process import BaseProcess

PER_CORE = 4
"""Most processes for each core."""


@contextmanager
def pool(jobs: int | None) -> Iterator[Executor]:
    """Yield the pool, of one process per core unless asked otherwise.

    Raises:
        BrokenExecutor: if one was killed, saying which and how.
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
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()

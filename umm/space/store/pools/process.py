"""Processes of this host."""

import os
import signal
import threading
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import parent_process

PER_CORE = 4
"""Most processes for each core."""


def pool(jobs: int | None) -> Executor:
    """Return the pool, of one process per core unless asked otherwise."""
    cores = os.cpu_count() or 1
    return ProcessPoolExecutor(min(jobs or cores, PER_CORE * cores), initializer=_end_with_parent)


def _end_with_parent() -> None:
    """Leave Ctrl-C to the parent, and end when it is killed: a worker would wait for work for ever."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()

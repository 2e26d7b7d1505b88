"""MPI jobs that many tests share: starting a rank takes two thirds of a second of a core."""

import os
from typing import Any

from umm_hw.mpi.job.job import MpiJob

SIZES = {"shared": (2, 6, 12, 16), "remote": (8, 12)}
"""Ranks that start together, by the way in which they reach each other."""
TIMEOUT = 120  # seconds for one piece of work

_jobs: dict[tuple[int, str], MpiJob] = {}


class Lent:
    """Some ranks of a shared job; to close it leaves them for the next test.

    Args:
        ranks: Number of processes that it shows; a schedule for more is refused.
    """

    def __init__(self, ranks: int) -> None:
        self.size = ranks
        self._job = _started(ranks)

    @property
    def running(self) -> bool:
        """Whether the ranks are ready for work."""
        return self._job.running

    def call(self, size: int, program: Any, operands: Any = None) -> list[Any]:
        """Run a program on the first ranks; return the results, by rank."""
        return self._job.call(size, program, operands)

    def close(self, code: int = 0) -> None:
        """Leave the ranks running."""


def lent(ranks: int, timeout: float | None = None) -> Lent:
    """Return ranks of a shared job, in the place of ``MpiJob``; one is started where none runs.

    Ranks that reach each other as if on different hosts, by ``UMM_MPI_WINDOW``, are a job of their own.
    """
    return Lent(ranks)


def end() -> None:
    """End all shared jobs."""
    while _jobs:
        _jobs.popitem()[1].close()


def _started(ranks: int) -> MpiJob:
    """Return the smallest job that runs and has the ranks; without one, the smallest is started."""
    window = os.environ.get("UMM_MPI_WINDOW", "shared")
    sizes = [size for size in SIZES[window] if size >= ranks]
    for size in sizes:
        if (job := _jobs.get((size, window))) and job.running:
            return job
    job = _jobs[sizes[0], window] = MpiJob(sizes[0], TIMEOUT)
    return job

"""Whether an mpiexec has started this process, known without MPI."""

import os

_RANK = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
_SIZE = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")


def launched_rank() -> int | None:
    """Return this process's rank, None if no mpiexec has started it."""
    return _first(_RANK)


def launched_size() -> int | None:
    """Return the number of processes that mpiexec has started, None if that is unknown."""
    return _first(_SIZE)


def _first(names: tuple[str, ...]) -> int | None:
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), None)

"""Who performs the tasks of a sweep: any pool of ``concurrent.futures``, found by name.

The pools of umm are the files of :mod:`umm.space.store.pools`; other packages add theirs in the entry-point
group ``umm.pools``. A pool is what takes the number of jobs, None if that is left to it, and returns an
``Executor`` or a context that yields one: ``concurrent.futures:ThreadPoolExecutor`` is one as it is.
"""

import pkgutil
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from importlib import import_module
from importlib.metadata import entry_points

from umm.errors import ExecutorUnavailableError, InputError
from umm.files import shown
from umm.space.store import pools

GROUP = "umm.pools"
Pool = Callable[[int | None], AbstractContextManager[Executor | None]]
"""What it yields is None on processes that only perform, when there is no more to do."""


def pool_names() -> list[str]:
    """Return the names of all pools, sorted.

    >>> pool_names()[:4]
    ['dask', 'mpi', 'none', 'process']
    """
    return sorted({*_own(), *(entry.name for entry in entry_points(group=GROUP))})


def find_pool(name: str) -> Pool:
    """Return the pool of a name.

    Raises:
        InputError: listing those there are.
        ExecutorUnavailableError: if a package of it is missing.
    """
    if name in _own():
        found: Pool = import_module(f"{pools.__name__}.{name}").pool
        return found
    entry = next(iter(entry_points(group=GROUP, name=name)), None)
    if entry is None:
        raise InputError(f"pool {shown(name)} is unknown; choose from {', '.join(pool_names())}")
    try:
        found = entry.load()
    except ModuleNotFoundError as error:
        raise ExecutorUnavailableError(
            f"pool {name} needs {error.name}, which is not installed; pip install {error.name}"
        ) from None
    return found


def _own() -> list[str]:
    return [module.name for module in pkgutil.iter_modules(pools.__path__)]

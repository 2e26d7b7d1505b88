"""Plug-ins of installed packages, by the entry-point group in which a package offers them."""

import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from umm.errors import ExecutorUnavailableError


def plugins(group: str) -> Mapping[str, EntryPoint]:
    """Return the plug-ins that installed packages offer in a group, by name; none is imported."""
    return _plugins(group, tuple(sys.path))


def plugin(group: str, name: str) -> EntryPoint | None:
    """Return the plug-in of a name; None if no installed package offers it, even one installed just now."""
    if name not in plugins(group):
        _all_plugins.cache_clear()
        _plugins.cache_clear()
    return plugins(group).get(name)


def loaded(entry: EntryPoint) -> Any:
    """Return the object of a plug-in.

    Raises:
        ExecutorUnavailableError: if its module has no such object or cannot be imported.
        ModuleNotFoundError: if a module is not installed.
    """
    try:
        return entry.load()
    except ModuleNotFoundError:
        raise
    except (ImportError, AttributeError) as error:
        package = entry.dist.name if entry.dist else entry.module
        raise ExecutorUnavailableError(
            f"{entry.name} of {entry.group} cannot be loaded ({error}); install {package} again"
        ) from None


@lru_cache(maxsize=16)
def _plugins(group: str, path: tuple[str, ...]) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in _all_plugins(path).select(group=group)}


@lru_cache(maxsize=4)
def _all_plugins(path: tuple[str, ...]) -> Any:  # of another type in Python 3.11
    # Reads a file of each installed package, which takes longer than to lower and simulate a hundred points.
    return entry_points()

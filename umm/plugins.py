"""Plug-ins of installed packages, by the entry-point group in which a package offers them."""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache, reduce
from importlib import import_module
from typing import Any, NamedTuple

from umm.errors import ExecutorUnavailableError
from umm.kept import kept


class EntryPoint(NamedTuple):
    """An object that a package offers under a name."""

    name: str  # under which it is offered
    group: str  # its kind
    value: str  # where it is, as ``module:object``
    package: str  # that offers it

    def load(self) -> Any:
        """Return the object, or the module that has no object."""
        module, _, names = self.value.partition(":")
        return reduce(getattr, filter(None, names.split(".")), import_module(module))


def plugins(group: str) -> Mapping[str, EntryPoint]:
    """Return the plug-ins that installed packages offer in a group, by name; none is imported."""
    return _plugins(group, tuple(sys.path))


def plugin(group: str, name: str) -> EntryPoint | None:
    """Return the plug-in of a name; None if no installed package offers it, even one installed just now."""
    if name not in plugins(group):
        _all_plugins.cache_clear()
        _plugins.cache_clear()
    return plugins(group).get(name)


def loaded(entry: EntryPoint, kind: str) -> Any:
    """Return the object of a plug-in.

    ExecutorUnavailableError if a module is not installed, or its module has no such object or cannot be
    imported.

    Args:
        kind: Words before its name in an error, such as ``"executor "``.
    """
    try:
        return entry.load()
    except ModuleNotFoundError as error:
        from importlib.metadata import metadata

        # The extra of the plug-in's name, if there is one, installs the missing module.
        extras = metadata(entry.package).get_all("Provides-Extra") or []
        line = f"'{entry.package}[{entry.name}]'" if entry.name in extras else error.name
        raise ExecutorUnavailableError(
            f"{kind}{entry.name} needs {error.name}, which is not installed; pip install {line}"
        ) from None
    except (ImportError, AttributeError) as error:
        raise ExecutorUnavailableError(
            f"{entry.name} of {entry.group} cannot be loaded ({error}); install {entry.package} again"
        ) from None


@lru_cache(maxsize=16)
def _plugins(group: str, path: tuple[str, ...]) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in _all_plugins(path) if entry.group == group}


@lru_cache(maxsize=4)
def _all_plugins(path: tuple[str, ...]) -> list[EntryPoint]:
    times: dict[str, int] = {}
    for folder in path:
        with suppress(OSError):  # a package that is installed changes its folder
            times[folder] = os.stat(folder or ".").st_mtime_ns
    return kept("plugins", times, _read_plugins)


def _read_plugins() -> list[EntryPoint]:
    # Reads a file of each installed package, which takes longer than to lower and simulate a hundred points.
    from importlib.metadata import entry_points

    every = entry_points()
    return [
        EntryPoint(x.name, group, x.value.partition("[")[0].strip(), x.dist.name if x.dist else x.module)
        for group in sorted(every.groups)
        if group.startswith("umm.")
        for x in every.select(group=group)
    ]

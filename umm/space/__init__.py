"""The design space: its points, bounds below them, the search that proves the best, and sweeps."""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from umm.space.choice import Choice as Choice
    from umm.space.search.found import Found as Found
    from umm.space.search.search import SearchInterruptedError as SearchInterruptedError
    from umm.space.search.search import search as search
    from umm.space.search.uncertainty import makespan_range as makespan_range
    from umm.space.space import Space as Space

# Where each name lives; a module is imported when one of them is first used.
_HOMES = {
    "Advice": "umm.space.what_if.beside",
    "Choice": "umm.space.choice",
    "DecisionMap": "umm.space.what_if.decision_map",
    "Found": "umm.space.search.found",
    "Flip": "umm.space.what_if.sensitivity",
    "Move": "umm.space.what_if.sensitivity",
    "Progress": "umm.space.store.sweeps",
    "SearchInterruptedError": "umm.space.search.search",
    "Sensitivity": "umm.space.what_if.sensitivity",
    "Space": "umm.space.space",
    "Store": "umm.space.store.database",
    "Stretch": "umm.space.what_if.decision_map",
    "Swept": "umm.space.store.sweeps",
    "advise": "umm.space.what_if.advice",
    "frontier": "umm.space.what_if.sensitivity",
    "makespan_range": "umm.space.search.uncertainty",
    "map_over_memory": "umm.space.what_if.decision_map",
    "map_over_number": "umm.space.what_if.decision_map",
    "sensitivity": "umm.space.what_if.sensitivity",
    "sweep": "umm.space.store.sweeps",
}

__all__ = ["search", *_HOMES]


class _Space(ModuleType):
    """The package, whose ``search`` is the function's name even once the folder of that name is imported."""

    @property
    def search(self) -> Any:
        """The function."""
        return import_module("umm.space.search.search").search

    @search.setter
    def search(self, _: ModuleType) -> None:
        """Leave the name to the function, where the import of the folder would take it."""


sys.modules[__name__].__class__ = _Space


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'umm.space' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)

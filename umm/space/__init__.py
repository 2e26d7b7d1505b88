"""The design space: its points, bounds below them, the search that proves the best, and sweeps."""

from importlib import import_module
from typing import Any

from umm.space.choice import Choice
from umm.space.search.found import Found
from umm.space.search.search import SearchInterruptedError, search
from umm.space.search.uncertainty import makespan_range
from umm.space.space import Space

# Where the names live that a search does without; a module is imported when one of them is first used.
_HOMES = {
    "Advice": "umm.space.what_if.advice",
    "DecisionMap": "umm.space.what_if.decision_map",
    "Flip": "umm.space.what_if.sensitivity",
    "Move": "umm.space.what_if.sensitivity",
    "Progress": "umm.space.store.sweeps",
    "Sensitivity": "umm.space.what_if.sensitivity",
    "Store": "umm.space.store.database",
    "Stretch": "umm.space.what_if.decision_map",
    "Swept": "umm.space.store.sweeps",
    "advise": "umm.space.what_if.advice",
    "frontier": "umm.space.what_if.sensitivity",
    "map_over_memory": "umm.space.what_if.decision_map",
    "map_over_number": "umm.space.what_if.decision_map",
    "sensitivity": "umm.space.what_if.sensitivity",
    "sweep": "umm.space.store.sweeps",
}

__all__ = [
    "Choice",
    "Found",
    "SearchInterruptedError",
    "Space",
    "makespan_range",
    "search",
    *_HOMES,
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'umm.space' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)

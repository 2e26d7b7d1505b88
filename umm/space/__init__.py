"""The design space: its points, bounds below them, the search that proves the best, and sweeps."""

from umm.space.choice import Choice
from umm.space.search.found import Found
from umm.space.search.search import SearchInterruptedError, search
from umm.space.search.uncertainty import makespan_range
from umm.space.space import Space
from umm.space.store.database import Store
from umm.space.store.sweeps import Progress, Swept, sweep
from umm.space.what_if.advice import Advice, advise
from umm.space.what_if.decision_map import DecisionMap, Stretch, map_over_memory, map_over_number
from umm.space.what_if.sensitivity import Flip, Move, Sensitivity, frontier, sensitivity

__all__ = [
    "Advice",
    "Choice",
    "DecisionMap",
    "Flip",
    "Found",
    "Move",
    "Progress",
    "SearchInterruptedError",
    "Sensitivity",
    "Space",
    "Store",
    "Stretch",
    "Swept",
    "advise",
    "frontier",
    "makespan_range",
    "map_over_memory",
    "map_over_number",
    "search",
    "sensitivity",
    "sweep",
]

"""The design space: its points, bounds below them, the search that proves the best, and sweeps."""

from umm.space.choice import Choice
from umm.space.points import Points, Space
from umm.space.search.best_first import Found, SearchInterruptedError, search
from umm.space.store.database import Store
from umm.space.store.sweeps import Progress, Swept, sweep
from umm.space.what_if.decision_map import DecisionMap, Stretch, map_over_bandwidth, map_over_memory
from umm.space.what_if.sensitivity import Flip, Sensitivity, frontier, sensitivity

__all__ = [
    "Choice",
    "DecisionMap",
    "Flip",
    "Found",
    "Points",
    "Progress",
    "SearchInterruptedError",
    "Sensitivity",
    "Space",
    "Store",
    "Stretch",
    "Swept",
    "frontier",
    "map_over_bandwidth",
    "map_over_memory",
    "search",
    "sensitivity",
    "sweep",
]

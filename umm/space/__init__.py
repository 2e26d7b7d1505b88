"""The design space: its points, bounds below them, the search that proves the best, and sweeps."""

from umm.space.best_first import Choice, Found, search
from umm.space.points import Points, Space
from umm.space.store import Store
from umm.space.sweeps import Progress, Swept, sweep

__all__ = ["Choice", "Found", "Points", "Progress", "Space", "Store", "Swept", "search", "sweep"]

"""The design space: its points, bounds below them, and the search that proves the best."""

from umm.space.best_first import Choice, Found, search
from umm.space.points import Points, Space

__all__ = ["Choice", "Found", "Points", "Space", "search"]

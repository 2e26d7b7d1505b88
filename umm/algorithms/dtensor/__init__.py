"""DTensor's own choice of placements, and the redistributions it takes."""

from umm.algorithms.dtensor.algorithm import ALGORITHM

__all__ = ["ALGORITHM"]

"""COSMA: splits of m, n and k over ranks and time."""

from umm.algorithms.cosma.algorithm import ALGORITHM

__all__ = ["ALGORITHM"]

"""A plain roofline: the larger of arithmetic at the peak and traffic at the memory's bandwidth."""

import numpy as np

from experiments.league.rows import Game
from umm.arrays import Floats
from umm.dtypes import element_bytes


def seconds(game: Game) -> Floats | None:
    """Return the roofline of the data sheet."""
    m, n, k = game.judged.T[:3]
    moved = (m + n) * k * element_bytes(game.dtype.partition(":")[0]) + 2 * m * n
    return np.maximum(2 * m * n * k / game.machine.peak(game.dtype), moved / game.machine.memory_bandwidth)

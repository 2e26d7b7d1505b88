"""umm by the law of the machine file, for the engine that was measured."""

from experiments.league.rows import Game
from umm.arrays import Floats
from umm.cost import gemm_seconds


def seconds(game: Game) -> Floats | None:
    """Return the seconds of the file's kernels."""
    return gemm_seconds(game.machine, game.dtype, *game.judged.T[:3], 2)

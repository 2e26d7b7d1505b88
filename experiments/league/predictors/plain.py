"""umm by the machine file's own numbers, which are of no engine."""

from experiments.league.rows import Game
from umm.arrays import Floats
from umm.cost import gemm_seconds


def seconds(game: Game) -> Floats | None:
    """Return the seconds by the file's own numbers."""
    return gemm_seconds(game.plain, game.dtype, *game.judged.T[:3], 2)

"""AIConfigurator's speed of light: a roofline of its own numbers (extra aic)."""

from experiments.league.predictors.aiconfigurator import seconds as answers
from experiments.league.rows import Game
from umm.arrays import Floats


def seconds(game: Game) -> Floats | None:
    """Return its engine's answer without tables."""
    return answers(game, sol=True)

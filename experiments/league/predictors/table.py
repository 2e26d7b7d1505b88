"""umm with a measured table beside the file: the rows of other n and k than those that judge."""

import numpy as np

from experiments.league.rows import Game
from umm.arrays import Floats
from umm.cost import gemm_seconds
from umm.machines.tables import Rows


def seconds(game: Game) -> Floats | None:
    """Return the law times the difference that known rows nearby have from it."""
    law = game.machine.kernels(game.dtype)
    if law is None:
        return None
    rows = Rows(np.log2(game.known[:, :3]), game.known[:, 3], law.from_memory if ":" in game.dtype else law)
    shapes = game.judged.T[:3]
    return gemm_seconds(game.machine, game.dtype, *shapes, 2) * rows.factors(*shapes)[0]

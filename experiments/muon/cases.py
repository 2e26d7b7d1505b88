"""Sets of weights whose placements are timed on this host."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from umm.muon.weights import Matrix

SETS = 40
"""Sets of weights for each number of ranks."""
GRIDS = {2: ("fsdp2", "fsdp2"), 4: ("fsdp4", "tp2-fsdp2")}
"""Grids that sets take in turn."""


def cases(ranks: int) -> list[dict[str, Any]]:
    """Return sets of weights: one to three shapes, one to eight matrices of each."""
    rng, result = np.random.default_rng(ranks), list[dict[str, Any]]()
    for number in range(SETS):
        shapes = [
            [*(int(x) for x in rng.choice([64, 128, 256, 384, 512], 2)), int(rng.integers(1, 9))]
            for _ in range(int(rng.integers(1, 4)))
        ]
        grid = GRIDS[ranks][number % 2]
        names = ["duplicated", "owners", "gram"] + ["two-axis"] * grid.startswith("tp")
        result.append({"shapes": shapes, "grid": grid, "placements": names})
    return result


def weights_of(case: Mapping[str, Any]) -> list[Matrix]:
    """Return the weights of a set."""
    return [Matrix(f"w{i}", rows, cols, count) for i, (rows, cols, count) in enumerate(case["shapes"])]

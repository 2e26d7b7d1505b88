"""Coefficients a, b and c of Newton-Schulz steps X ← aX + (bA + cA²)X, of papers or of a file."""

from math import isfinite
from pathlib import Path

from umm.errors import ProblemError
from umm.files import read_toml
from umm.program.presets import JORDAN as JORDAN_STEP

Coefficients = tuple[tuple[float, float, float], ...]
JORDAN: Coefficients = (JORDAN_STEP,) * 5  # Five equal steps. Source: Jordan (2024), Muon.
MAX_STEPS = 100  # steps that a file may have: twenty times as many as Muon takes


def read_coefficients(path: str | Path) -> Coefficients:
    """Return the steps of a TOML file: ``steps = [[3.4445, -4.775, 2.0315], …]``.

    ProblemError for a file without such a list.
    """
    steps = read_toml(path).get("steps")
    if not isinstance(steps, list) or not 1 <= len(steps) <= MAX_STEPS or not all(map(_is_step, steps)):
        raise ProblemError(
            f"{path} has no list steps of 1 to {MAX_STEPS} triples a, b, c; write steps = [[3.4, -4.8, 2.0]]"
        )
    return tuple((float(a), float(b), float(c)) for a, b, c in steps)


def _is_step(step: object) -> bool:
    if not isinstance(step, list) or len(step) != 3:
        return False
    return all(type(x) in (int, float) and isfinite(x) for x in step)

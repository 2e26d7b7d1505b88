"""Newton-Schulz steps X ← aX + (bA + cA²)X: their coefficients, and those of one matrix as a chain."""

from math import isfinite
from pathlib import Path

from umm.errors import ProblemError
from umm.files import read_toml
from umm.layouts.layout import Layout
from umm.program import Map, Multiply, Statement
from umm.program.chain import Chain
from umm.program.presets import JORDAN as JORDAN_STEP
from umm.program.statements.symmetric import Symmetric
from umm.program.tensors import Tensor

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


def newton_schulz(
    rows: int,
    cols: int,
    layout: str | Layout,
    ranks: int,
    *,
    gram: str | None = None,
    kernel: str = "gemm",
    coefficients: Coefficients = JORDAN,
    dtype: str = "float32",
) -> Chain:
    """Return the steps X ← aX + (bA + cA²)X with A = X·Xᵀ as a program on X.

    ``X`` is given, normed to at most 1, with no more rows than columns; ``Y`` is the result, laid out as X.

    Args:
        layout: Layout of X, also as text: ``row``, ``col``, ``2d``, ``row@4`` …
        gram: Layout of A; rows on all ranks alike if None.
        kernel: ``syrk`` where the library computes one triangle of A and A².
        coefficients: a, b and c of each step.

    >>> chain = newton_schulz(4, 6, "col", 2, coefficients=JORDAN[:1])
    >>> [str(x) for x in chain.statements][0]
    'A.0 = X·Xᵀ'
    """
    long, square = (rows, cols), (rows, rows)
    across = Layout.parse(layout, long, ranks) if isinstance(layout, str) else layout
    gram_layout = Layout.parse(gram or f"row@{ranks}", square, ranks)
    tensors = [Tensor("X", across, dtype, "input")]
    statements: list[Statement] = []
    x = "X"
    for step, (a, b, c) in enumerate(coefficients):
        gram_of, sums = f"A.{step}", f"S.{step}"
        product, y = f"B.{step}", "Y" if step == len(coefficients) - 1 else f"X.{step}"
        tensors += [Tensor(name, gram_layout, dtype) for name in (gram_of, product, sums)]
        tensors.append(Tensor(y, across, dtype, "output" if y == "Y" else "work"))
        statements += [
            Symmetric(gram_of, x, kernel=kernel),
            # A is symmetric, so A·Aᵀ is A².
            Symmetric(product, gram_of, c, kernel=kernel),
            Map(sums, "add", (product, gram_of), {"factor": b}),
            Map(y, "scale", (x,), {"factor": a}),
            Multiply(y, sums, x, beta=1.0),
        ]
        x = y
    return Chain("newton-schulz", tuple(tensors), tuple(statements), ranks)

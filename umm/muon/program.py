"""Newton-Schulz steps of one matrix as a chain, in any layout, by the universal algorithm."""

from umm.layouts.layout import Layout
from umm.muon.coefficients import JORDAN, Coefficients
from umm.program import Map, Multiply, Statement
from umm.program.chain import Chain
from umm.program.statements.symmetric import Symmetric
from umm.program.tensors import Tensor


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

"""Newton-Schulz steps in NumPy: of a whole matrix, and of the part of one whose longer side is split.

Half precision is multiplied and summed in float32, and rounded after every product, as accelerators do.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umm_hw.bfloat16 import dtype_name, numpy_bfloat16

Array = NDArray[Any]
EPSILON = 1e-7  # Added to a matrix's norm before it divides: Jordan (2024).
SYRK = "NumPy's matmul, which calls SYRK for a matrix by its own transpose"
"""Library that halves the arithmetic of symmetric products."""


class Steps:
    """The steps X ← aX + (bA + cA²)X with A = X·Xᵀ on matrices of one type.

    Args:
        coefficients: a, b and c of each step.
        dtype: Type of the matrices.
    """

    def __init__(self, coefficients: Sequence[Sequence[float]], dtype: np.dtype[Any]) -> None:
        self.coefficients = coefficients
        half = dtype_name(dtype) in ("float16", "bfloat16")
        self.compute_dtype: np.dtype[Any] = np.dtype(np.float32) if half else dtype
        self._stored: np.dtype[Any] | None = None
        if half:
            self._stored = np.dtype(np.float16) if dtype_name(dtype) == "float16" else numpy_bfloat16()

    def orthogonalized(self, matrix: Array) -> Array:
        """Return a whole matrix after all steps; a tall one is transposed for them.

        >>> steps = Steps([(1.5, -0.5, 0.0)] * 20, np.dtype("float64"))
        >>> steps.orthogonalized(np.array([[3.0, 0.0], [0.0, 0.5], [0.0, 0.0]])).round(6).tolist()
        [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
        """
        wide = self.flat(matrix)
        x = self.normed(wide, float(np.vdot(wide, wide)))
        for number in range(len(self.coefficients)):
            x = self.step(number, x, self.gram(x))
        return (x.T if matrix.shape[0] > matrix.shape[1] else x).astype(matrix.dtype)

    def flat(self, matrix: Array) -> Array:
        """Return a matrix with its shorter side first, in the type of products."""
        wide = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
        return np.ascontiguousarray(wide, dtype=self.compute_dtype)

    def normed(self, x: Array, squares: float) -> Array:
        """Return x over its norm, whose square is given."""
        return self.rounded(x / self.compute_dtype.type(sqrt(squares) + EPSILON))

    def gram(self, x: Array) -> Array:
        """Return X·Xᵀ, one triangle mirrored: see ``SYRK``."""
        return self.rounded(x @ x.T)

    def step(self, number: int, x: Array, gram: Array) -> Array:
        """Return x, or any columns of it, after a step.

        Args:
            number: Of the step, from 0.
            x: All rows of some columns.
            gram: X·Xᵀ of all columns.
        """
        a, b, c = (self.compute_dtype.type(value) for value in self.coefficients[number])
        # A is symmetric, so A·Aᵀ is A², and the library computes one triangle of it.
        polynomial = self.rounded(b * gram + c * (gram @ gram.T))
        return self.rounded(a * x + polynomial @ x)

    def normed_gram(self, gram: Array, squares: float) -> Array:
        """Return the X·Xᵀ of a normed matrix from that of the matrix and the square of its norm."""
        return self.rounded(gram / self.compute_dtype.type((sqrt(squares) + EPSILON) ** 2))

    def rounded(self, x: Array) -> Array:
        """Return a product as its type stores it."""
        if self._stored is None:
            return x
        return x.astype(self._stored).astype(np.float32)


def orthogonalized(matrix: Array, coefficients: Sequence[Sequence[float]]) -> Array:
    """Return a matrix, or each of a batch, after Newton-Schulz steps: the plain update of one process.

    Args:
        matrix: Rows by columns, or a batch of these.
        coefficients: a, b and c of each step.
    """
    steps = Steps(coefficients, matrix.dtype)
    if matrix.ndim == 2:
        return steps.orthogonalized(matrix)
    return np.stack([steps.orthogonalized(x) for x in matrix]) if len(matrix) else matrix.copy()

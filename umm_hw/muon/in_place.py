"""Newton-Schulz steps of a matrix in its own layout, by multiplies of distributed matrices."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from umm_hw.arrays.matrix import WrappedMatrix
from umm_hw.arrays.plan import multiply
from umm_hw.muon.newton_schulz import Steps
from umm_hw.muon.parcels import Mail
from umm_hw.muon.sums import Sums


def orthogonalized(steps: Steps, x: WrappedMatrix) -> WrappedMatrix:
    """Return a matrix, or a batch, after all steps, in its own layout and type; collective.

    Args:
        steps: The steps, on the matrix's type.
        x: The complete matrix. It stays as it is.
    """
    rows, cols = x.shape
    tall, side = rows > cols, min(rows, cols)
    now, after = (WrappedMatrix.empty(x, x.layout, x.shape, steps.compute_dtype) for _ in range(2))
    gram, square = (WrappedMatrix.empty(x, "row", (side, side), steps.compute_dtype) for _ in range(2))
    now.local[...] = x.local
    for number, (a, b, c) in enumerate(steps.coefficients):
        multiply(now, now, out=gram, trans_a=tall, trans_b=not tall)
        if not number:
            for x_part, gram_part, squares in zip(_members(now), _members(gram), _traces(gram), strict=True):
                x_part[...] = steps.normed(x_part, squares)
                gram_part[...] = steps.normed_gram(gram_part, squares)
        gram.local[...] = steps.rounded(gram.local)
        multiply(gram, gram, out=square, alpha=c)
        square.local[...] = steps.rounded(square.local + steps.compute_dtype.type(b) * gram.local)
        after.local[...] = now.local
        multiply(*((now, square) if tall else (square, now)), out=after, beta=a)
        now, after = after, now
        now.local[...] = steps.rounded(now.local)
    result = WrappedMatrix.empty(x, x.layout, x.shape)
    result.local[...] = now.local.astype(x.dtype)
    return result


def _members(matrix: WrappedMatrix) -> Sequence[Any]:
    """Return this rank's part of each matrix of a batch."""
    return [matrix.local] if matrix.batch is None else [*matrix.local]


def _traces(gram: WrappedMatrix) -> list[float]:
    """Return each matrix's trace, by rows on all ranks: the square of X's norm, so that norms move little."""
    first = gram.layout.row_edges[gram.rank]
    traces = np.array([np.trace(part, offset=first) for part in _members(gram)], dtype=np.float64)
    sums = Sums([range(gram.group.size)], len(traces), traces.dtype)
    mail = Mail(gram.exchange, [sums.parts, sums.totals], b"traces", "sums norms of momenta")
    total = sums.perform(mail, traces)
    mail.close()
    return [float(x) for x in total]

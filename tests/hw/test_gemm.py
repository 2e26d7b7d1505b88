"""Local multiplies: every form of a gemm against plain loops, by BLAS and by NumPy, without a copy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from umm.schedules.table.details import GEMM, Multiplied
from umm_hw import gemm
from umm_hw.blocks import Work
from umm_hw.gemm import multiply
from umm_hw.numpy.transport import NumpyTransport
from umm_hw.steps import array_step
from umm_hw.transport import Block

sides = st.integers(1, 7)
factors = st.sampled_from([-1.0, 0.5, 1.0, 2.0])
betas = st.sampled_from([0.0, 1.0, -0.5])
dtypes = st.sampled_from(["float64", "float32", "float16"])


@pytest.fixture(params=["blas", "numpy"])
def way(request, monkeypatch):
    """By BLAS where it has the type, and without any."""
    if request.param == "numpy":
        monkeypatch.setattr(gemm, "_routine", lambda kind: None)
        monkeypatch.setattr(gemm, "_PANEL", 64)  # bytes, so that there are several panels


def within(shape, dtype, seed, wider=3):
    """Small whole numbers as the lower right of a larger matrix, which is NaN elsewhere."""
    complete = np.full((shape[0] + 1, shape[1] + wider), np.nan, dtype)
    part = complete[1:, wider:]
    part[...] = np.random.default_rng(seed).integers(-4, 5, shape)
    return part


def summed(a, b, alpha, beta, c):
    """α·AB + β·C by the definition, in float64; C is not looked at where β is 0."""
    product = np.einsum("mk,kn->mn", a.astype(np.float64), b.astype(np.float64))
    return alpha * product + (beta * c.astype(np.float64) if beta else 0.0)


@settings(deadline=None)
@pytest.mark.usefixtures("way")
@given(m=sides, n=sides, k=sides, trans=st.integers(0, 3), alpha=factors, beta=betas, dtype=dtypes)
def test_a_product_of_parts_of_matrices_is_exact(m, n, k, trans, alpha, beta, dtype):
    """Either factor transposed or not; the numbers are small and whole, or halves, in every type."""
    a = within((k, m), dtype, 1).T if trans & 1 else within((m, k), dtype, 1)
    b = within((n, k), dtype, 2).T if trans & 2 else within((k, n), dtype, 2)
    c = within((m, n), dtype, 3)
    expected = summed(a, b, alpha, beta, c)
    if beta == 0:
        c[...] = np.nan
    multiply(a, b, c, alpha, beta)
    assert np.array_equal(c, expected)
    assert np.isnan(c.base[0]).all()
    assert np.isnan(c.base[:, 0]).all()


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (1, 1, 5), (1, 5, 1), (5, 1, 1), (5, 1, 3), (1, 3, 5)])
@pytest.mark.parametrize("trans", range(4))
@pytest.mark.usefixtures("way")
def test_factors_of_one_row_or_column_are_read_the_right_way(m, n, k, trans):
    """Of packed and of wider matrices: their strides alone do not tell a row from a column."""
    for wider in (0, 3):
        a = within((k, m), "float64", 1, wider).T if trans & 1 else within((m, k), "float64", 1, wider)
        b = within((n, k), "float64", 2, wider).T if trans & 2 else within((k, n), "float64", 2, wider)
        c = np.full((m, n), np.nan)
        multiply(a, b, c)
        assert np.array_equal(c, a @ b)


def test_half_precision_is_summed_in_float32_and_rounded_once():
    """2048 and 8 halves: float16 alone would drop each of them."""
    c = np.full((1, 1), 2048, np.float16)
    multiply(np.full((1, 8), 0.5, np.float16), np.ones((8, 1), np.float16), c, beta=1.0)
    assert c[0, 0] == 2052


def test_a_factor_is_multiplied_where_it_lies(monkeypatch):
    """BLAS is given the addresses of the views, transposed or not: 1 is op(A) = A, 2 its transpose."""
    calls = []
    monkeypatch.setattr(gemm, "_routine", lambda kind: lambda *given: calls.append(given))
    a, b, c = (within((4, 4), "float32", seed) for seed in range(3))
    multiply(a.T, b, c, 2.0, 1.0)
    order, left, right, *_, alpha, at_a, of_a, at_b, of_b, beta, at_c, of_c = calls[0]
    assert (order, left, right, alpha, beta) == (101, 112, 111, 2.0, 1.0)
    assert (at_a, at_b, at_c) == (a.ctypes.data, b.ctypes.data, c.ctypes.data)
    assert (of_a, of_b, of_c) == (7, 7, 7)


# Batches ------------------------------------------------------------------------------------------


@st.composite
def batches(draw):
    """A batch with its factors' transposition, cut axes and shared members."""
    batch = draw(st.integers(1, 6))
    shared = st.sampled_from([d for d in range(1, batch + 1) if batch % d == 0])
    return Multiplied(
        trans=draw(st.sampled_from([0, 2, 4, 6])),
        alpha=draw(factors),
        beta=draw(betas),
        batch=batch,
        batch_axes=draw(st.tuples(*[st.integers(0, 1)] * 3)),
        groups=draw(st.tuples(shared, shared, shared)),
    )


def cut(array, axis, number, parts):
    """One of some equal parts of an array."""
    return np.split(array, parts, axis)[number]


def placed(transport, shape, dtype, seed):
    """Small whole numbers as a block of a wider matrix in rank 0's memory, and the array of it."""
    stride = shape[1] + 2
    dtype = np.dtype(dtype)
    heap = transport.allocate([shape[0] * stride * dtype.itemsize])
    block = Block(0, heap, dtype.itemsize, *shape, stride, dtype)
    transport.view(block)[...] = np.random.default_rng(seed).integers(-3, 4, shape)
    return block


@settings(deadline=None)
@pytest.mark.usefixtures("way")
@given(product=batches(), m=sides, n=sides, k=sides, dtype=dtypes)
def test_the_members_of_a_batch_are_multiplied_one_by_one(product, m, n, k, dtype):
    """Member i takes member i // groups of each operand; those that share one of C add up, β once."""
    shapes = [(m, n), (k, m) if product.trans & 2 else (m, k), (n, k) if product.trans & 4 else (k, n)]
    parts = [product.batch // group for group in product.groups]
    transport = NumpyTransport(1)
    blocks = []
    for seed, (shape, axis, count) in enumerate(zip(shapes, product.batch_axes, parts, strict=True)):
        full = [side * count if axis == number else side for number, side in enumerate(shape)]
        blocks.append(placed(transport, full, dtype, seed))
    c, a, b = (transport.view(block) for block in blocks)
    expected = product.beta * c.astype(np.float64) if product.beta else np.zeros(c.shape)
    for member in range(product.batch):
        into, left, right = (
            cut(array.astype(np.float64) if array is not c else expected, axis, member // group, count)
            for array, axis, group, count in zip(
                (c, a, b), product.batch_axes, product.groups, parts, strict=True
            )
        )
        left, right = (left.T if product.trans & 2 else left), (right.T if product.trans & 4 else right)
        into += product.alpha * (left @ right)
    if product.beta == 0:
        c[...] = np.nan
    work = Work((blocks[1], blocks[2]), blocks[0], product=product)
    array_step(GEMM, work, {0: transport}, multiply)()
    assert np.array_equal(c, expected)


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (1.0, 1.0), (0.5, -2.0)])
def test_a_matrix_by_its_own_transpose_is_multiplied_by_numpys_syrk(alpha, beta, monkeypatch):
    """3 x 5 times 5 x 3 in the same memory; a copy of it is multiplied whole."""
    a, c = np.arange(15.0).reshape(3, 5), np.eye(3)
    expected = alpha * a @ a.T.copy() + beta * c
    calls = []
    monkeypatch.setattr(gemm, "_routine", lambda kind: lambda *arguments: calls.append(kind))
    multiply(a, a.T, c, alpha, beta)
    np.testing.assert_allclose(c, expected)
    assert not calls
    multiply(a, a.T.copy(), c, alpha, beta)
    assert calls

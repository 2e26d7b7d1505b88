"""8-bit factors: scales that travel with the bytes, and products that do not depend on the layout."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import umm
from umm import dtypes
from umm.checks import random_operands, reference_product
from umm.errors import InputError, MachineError, ProblemError
from umm_hw.float8 import float8_dtype, quantised, rounded_once, widened

pytest.importorskip("ml_dtypes")
LAYOUTS = st.sampled_from(["row", "col", "2d", "row@2", "cyclic:7x9:2x2"])


@settings(max_examples=12, deadline=None)
@given(
    LAYOUTS, LAYOUTS, LAYOUTS, st.sampled_from("ABC"), st.sampled_from(["fp8", "e5m2:128", "fp8xe5m2:128"])
)
def test_a_product_is_the_same_to_the_bit_whatever_the_layout(a, b, c, stationary, dtype):
    """Numbers of no 8-bit type, so that they are rounded under their scales; every order of the sums."""
    rng = np.random.default_rng(3)
    operands = rng.normal(size=(24, 150)), rng.normal(size=(150, 20))

    def product(a, b, c, **options):
        problem = umm.Problem(m=24, n=20, k=150, dtype=dtype, a=a, b=b, c=c, ranks=4)
        schedule = umm.schedule(problem, umm.machine("b200-8"), stationary=stationary, **options)
        return umm.run(schedule, executor="numpy", operands=operands).result

    assert np.array_equal(product(a, b, c), product("row", "row", "row"))


@pytest.mark.parametrize("c_dtype", ["bfloat16", "float16", "float32"])
def test_c_is_the_exact_product_rounded_once(c_dtype):
    problem = umm.Problem(m=16, n=8, k=600, dtype="fp8", c_dtype=c_dtype, a="col", b="row", c="2d", ranks=4)
    operands = random_operands(problem)
    results = umm.run(
        umm.schedule(problem, umm.machine("h100-8")), executor="numpy", operands=operands
    ).result
    exact = reference_product(*operands)
    assert np.array_equal(results, rounded_once(exact, c_dtype))


def test_random_order_finds_no_element_that_is_not_there_yet():
    problem = umm.Problem(m=12, n=8, k=40, dtype="fp8:128", a="2d", b="2d", c="row", ranks=4)
    schedule = umm.schedule(problem, umm.machine("h100-8"), stationary="A")
    results = [umm.run(schedule, executor="numpy", order=order).result for order in ("rows", "random")]
    assert np.array_equal(*results)


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=40), st.sampled_from(["fp8", "e5m2"]))
def test_numbers_under_a_scale_are_off_by_half_a_unit_of_the_largest_at_most(values, dtype):
    name = dtypes.canonical(dtype)
    array = np.array([values])
    back = widened(quantised(array, name, axis=1))
    fraction, least, most = dtypes.FLOAT8[name]
    scale = quantised(array, name, axis=1)["scale"].max()
    unit = np.maximum(np.abs(array) * 2.0 ** -(fraction + 1), scale * 2.0 ** (least - fraction - 1))
    assert (np.abs(back - array) <= unit * (1 + 1e-6)).all()
    assert np.abs(back).max() <= most * scale


def test_a_block_of_128_along_k_has_a_scale_of_its_own():
    """1 beside 2^20 in one block is lost, in the next it is kept."""
    row = np.ones((1, 256))
    row[0, 0] = 2.0**20
    scaled = quantised(row, "float8_e4m3:128", axis=1)
    assert widened(scaled)[0, [0, 1, 128, 255]].tolist() == [2.0**20, 0.0, 1.0, 1.0]
    assert float8_dtype("float8_e4m3").itemsize == 5


def test_rounding_without_ml_dtypes_is_that_of_ml_dtypes():
    values = np.random.default_rng(0).normal(size=2000).astype(np.float32) * 30
    for name in dtypes.FLOAT8:
        theirs = values.astype(float8_dtype(name)["value"]).astype(np.float32)
        assert np.array_equal(dtypes.rounded_to_float8(values, name), theirs)


def test_scales_of_blocks_add_4_bytes_to_128():
    """Two ranks exchange 64 x 128 elements of B each: 8 KiB, and 256 bytes of scales."""
    machine = umm.machine("h100-8")
    nbytes = {}
    for dtype in ("fp8", "fp8:128"):
        problem = umm.Problem(m=64, n=128, k=128, dtype=dtype, a="row", b="row", c="row", ranks=2)
        nbytes[dtype] = umm.schedule(problem, machine, stationary="C").nbytes.max()
    assert nbytes["fp8:128"] / nbytes["fp8"] == pytest.approx(132 / 128, rel=1e-3)


@pytest.mark.parametrize(
    ("asked", "error", "result"),
    [
        ({"dtype": "fp9"}, ProblemError, "dtype 'fp9' is unknown"),
        ({"dtype": "fp8:64"}, ProblemError, "with :128 scales of blocks"),
        ({"dtype": "fp8xbf16"}, ProblemError, "one for each of A and B as fp8xe5m2"),
        ({"dtype": "fp8", "c_dtype": "float64"}, ProblemError, "choose from bfloat16, float16, float32"),
        ({"dtype": "bf16", "c_dtype": "fp8"}, ProblemError, "a product is not kept in float8_e4m3"),
    ],
)
def test_types_that_do_not_go_are_refused_in_one_line(asked, error, result):
    with pytest.raises(error, match=result):
        umm.Problem(m=4, n=4, k=4, **asked)


def test_a_machine_without_a_peak_for_8_bits_says_so():
    problem = umm.Problem(m=4, n=4, k=4, dtype="fp8", ranks=2)
    with pytest.raises(MachineError, match="pvc-12 states no peak for float8_e4m3"):
        umm.schedule(problem, umm.machine("pvc-12"))


def test_numbers_that_are_not_finite_have_no_scale():
    with pytest.raises(InputError, match="not finite"):
        quantised(np.array([[np.inf]]), "float8_e4m3", axis=1)

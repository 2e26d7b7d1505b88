"""Gemms and maps of the CuPy device over host memory, on pieces of larger matrices, against NumPy.

``UMM_TEST_GPU=1`` (make test-gpu) runs them on a real GPU too.
"""

import os
import sys
from dataclasses import replace

import numpy as np
import pytest
from conformance import fake_cupy
from function_reads import COLS, PARAMETERS, PLAIN, ROWS, operands, shape_of

from umm.program.functions import Function, function
from umm.schedules.table.details import Multiplied
from umm_hw.bfloat16 import BFLOAT16, to_bfloat16, to_float32
from umm_hw.blocks import Mapped
from umm_hw.devices.device import Region
from umm_hw.devices.expressions import ELEMENTWISE, ROWWISE
from umm_hw.gpu.cupy_device import CupyDevice

TYPES = {name: np.dtype(name) for name in ("float64", "float32", "float16")} | {"bfloat16": BFLOAT16}
TOLERANCE = {"float64": 1e-14, "float32": 1e-6, "float16": 1e-3, "bfloat16": 1e-2}


@pytest.fixture(params=["fake", "real"] if os.environ.get("UMM_TEST_GPU") else ["fake"])
def device(monkeypatch, request):
    for name, module in fake_cupy.modules(1).items() if request.param == "fake" else ():
        monkeypatch.setitem(sys.modules, name, module)
    return CupyDevice(0)


def placed(device, array, dtype, room=3):
    """An array in memory of the device, as a piece of a matrix with some more columns."""
    rows, cols = array.shape
    stride = cols + room
    region = Region(device.allocate(rows * stride * dtype.itemsize), rows, cols, stride, dtype)
    device.upload(to_bfloat16(array) if dtype == BFLOAT16 else array.astype(dtype), region)
    return region


def values(device, region):
    """The values of a region, and whether the columns beside it are still zero."""
    full = region._replace(cols=region.stride)
    array = np.empty(full[1:3], region.dtype)
    device.download(full, array)
    array = to_float32(array) if region.dtype == BFLOAT16 else array
    assert not array[:, region.cols :].any()
    return array[:, : region.cols]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (1.0, 1.0), (-0.5, 0.0), (2.0, 0.25)])
@pytest.mark.parametrize("trans", [0, 2, 4, 6])
def test_every_form_of_a_gemm_is_what_numpy_gives(device, trans, alpha, beta, dtype):
    """4x5 times 5x3, each operand stored as it is or transposed; with β = 0 a C of NaN is not read."""
    rng = np.random.default_rng(trans)
    a, b, c = (rng.integers(-4, 5, shape).astype(float) for shape in ((4, 5), (5, 3), (4, 3)))
    left = placed(device, a.T if trans & 2 else a, TYPES[dtype])
    right = placed(device, b.T if trans & 4 else b, TYPES[dtype])
    into = placed(device, c if beta else np.full_like(c, np.nan), TYPES[dtype])
    how = Multiplied(trans, alpha, beta)
    stream = device.stream()
    device.multiply(left, right, into, stream, how.beta, how.alpha, how.trans)
    device.finish(stream)
    expected = alpha * (a @ b) + (beta * c if beta else 0)
    np.testing.assert_allclose(values(device, into), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def mapped(name):
    letters = "".join(function(name).operands)
    shape = shape_of(("r" if "r" in letters else "1") + ("c" if "c" in letters else "1"), ROWS, COLS)
    given = function(name).checked(PARAMETERS.get(name, {}))
    return Mapped(function(name), given, (0, shape[0]), (0, shape[1]), shape)


def check_map(device, done, dtype, room):
    """Against NumPy; half precision is computed in float32. Columns beside the target stay as they are."""
    reads = [placed(device, x, TYPES[dtype], room) for x in operands(done.function.name.removeprefix("own_"))]
    expected = done(*(values(device, x) for x in reads))
    target = placed(device, np.full_like(expected, np.nan), TYPES[dtype], room)
    stream = device.stream()
    device.map(done, reads, target, stream)
    device.finish(stream)
    scale = max(1.0, np.abs(expected).max(initial=0.0))
    np.testing.assert_allclose(values(device, target), expected, rtol=0, atol=TOLERANCE[dtype] * scale)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", PLAIN)
def test_every_function_gives_the_same_for_arrays_of_cupy(device, name, dtype):
    """None asks for a function that CuPy lacks, or mixes in an array of NumPy."""
    done = mapped(name)
    check_map(device, done._replace(function=replace(done.function, name=f"own_{name}")), dtype, 3)


@pytest.mark.parametrize("room", [3, 8])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", [*ELEMENTWISE, *ROWWISE])
def test_a_kernel_of_one_pass_gives_the_same(device, name, dtype, room):
    """By packs of 16 bytes where 8 columns lie beside the 8, by single elements where 3 do."""
    check_map(device, mapped(name), dtype, room)


@pytest.mark.parametrize("cols", [1, 7, 2048, 5000])
@pytest.mark.parametrize("name", ["silu_mul", "rms_norm_grad_add", "row_dot", "mul_rows"])
def test_a_kernel_walks_long_rows(device, name, cols):
    """Of bfloat16 in and float32 out: 3 rows, more packs than a block has threads, or one column."""
    rng = np.random.default_rng(1)
    shapes = {"rc": (3, cols), "r1": (3, 1), "1c": (1, cols)}
    letters = function(name).operands
    reads = [placed(device, rng.standard_normal(shapes[x]), BFLOAT16, 8) for x in letters[1:]]
    done = Mapped(function(name), function(name).checked({}), (0, 3), (0, cols), (3, cols))
    expected = done(*(values(device, x) for x in reads))
    target, stream = placed(device, np.zeros(expected.shape), TYPES["float32"], 8), device.stream()
    device.map(done, reads, target, stream)
    device.finish(stream)
    np.testing.assert_allclose(
        values(device, target), expected, rtol=2e-5, atol=2e-5 * np.abs(expected).max()
    )


def test_a_map_may_write_what_it_reads(device):
    x, y = operands("add")
    both, other = (placed(device, array, TYPES["float64"]) for array in (x, y))
    device.map(mapped("add"), [both, other], both, device.stream())
    np.testing.assert_allclose(values(device, both), x + 2.0 * y)


def test_a_function_that_makes_arrays_of_numpy_is_noticed(device):
    """CuPy refuses to mix them with its own."""
    ramp = Function("ramp", "rc->rc", lambda x: x + np.arange(x.shape[1]))
    region = placed(device, np.zeros((2, 3)), TYPES["float64"])
    with pytest.raises((AssertionError, TypeError), match=r"does not mix its arrays|Unsupported type"):
        device.map(Mapped(ramp, {}, (0, 2), (0, 3), (2, 3)), [region], region, device.stream())

"""bfloat16 on CPUs, by ml_dtypes: right products, checkpoints bit for bit, and a line where it is missing."""

import sys

import numpy as np
import pytest
from command import record, umm

from umm import Interval, Problem, load, run, save, schedule
from umm.errors import InputError
from umm.layouts.layout import Layout
from umm.program.tensors import Tensor
from umm_hw.bfloat16 import bfloat16_bits
from umm_hw.matrix import DistributedMatrix
from umm_hw.numpy.transport import NumpyTransport

SIZES = [
    "-m",
    "24",
    "-n",
    "20",
    "-k",
    "16",
    "--ranks",
    "4",
    "--iters",
    "1",
    "--dtype",
    "bf16",
    "--machine",
    "h100-8",
]


def test_without_ml_dtypes_the_line_that_installs_it_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    result = umm("run", *SIZES)
    assert result.exit_code == 5
    assert result.stderr.strip().endswith("pip install 'umm-sim[bfloat16]'")


def test_an_unknown_type_is_told_those_of_a_matrix():
    known = "choose from float64, float32, float16, bfloat16, float8_e4m3, float8_e5m2, int64, int32"
    with pytest.raises(InputError, match=f"cannot hold 'int8'; {known}"):
        DistributedMatrix(NumpyTransport(1), Layout.parse("row", (2, 2), 1), "int8")


@pytest.mark.parametrize("stationary", ["A", "B", "C"])
@pytest.mark.parametrize("c_dtype", ["bf16", "float32"])
@pytest.mark.usefixtures("shared_ranks")
@pytest.mark.parametrize("executor", ["numpy", pytest.param("mpi", marks=pytest.mark.mpi)])
def test_products_are_right(executor, c_dtype, stationary):
    pytest.importorskip("ml_dtypes")
    if executor == "mpi" and (c_dtype, stationary) not in (("bf16", "A"), ("float32", "C")):
        pytest.skip("processes take a second each; two cases have accumulates and gets")
    how = [
        "--executor",
        executor,
        "--c-dtype",
        c_dtype,
        "--stationary",
        stationary,
        "--a",
        "col",
        "--c",
        "2d@2",
    ]
    assert record("run", *SIZES, *how, "--check")["measured"]["ok"] is True


def test_arrays_of_ml_dtypes_come_in_and_what_goes_out_has_their_values():
    """Powers of two and their sums: every product and sum is a bfloat16."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    a, b = (np.array(x, ml_dtypes.bfloat16) for x in ([[1, 2], [0.5, -4]], [[8, 0], [1, 0.25]]))
    problem = Problem(m=2, n=2, k=2, dtype="bf16", c_dtype="bf16", ranks=2)
    results = run(schedule(problem, "h100-8"), "numpy", (a, b)).result
    assert results.dtype == np.float32
    assert results.tolist() == [[10, 0.5], [0, -1]]


def test_a_checkpoint_has_the_bits(tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    tensor = Tensor("W", Layout.parse("col", (3, 4), 2), "bfloat16")
    values = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    save(tmp_path, {"W": values.astype(ml_dtypes.bfloat16)}, [tensor])
    read = load(tmp_path)["W"]
    assert np.array_equal(read.view(np.uint32) >> 16, bfloat16_bits(values))
    with pytest.raises(InputError, match="W is bfloat16, but its array float32"):
        save(tmp_path, {"W": values}, [tensor])
    matrix = DistributedMatrix(NumpyTransport(1), Layout.parse("row", (3, 4), 1), "bfloat16")
    matrix.scatter(values)
    assert np.array_equal(matrix.gather().astype(np.float32), read)
    assert matrix.tile_bounds((0, 0))[0] == Interval(0, 3)

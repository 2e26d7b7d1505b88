"""The types: bytes of an element, the type of C, and the answer to an unknown one."""

import json
from typing import get_args

import numpy as np
import pytest

import umm
from umm.cost import gemm_seconds
from umm.dtypes import DTYPES, Dtype, accumulated_in, itemsize
from umm.errors import InputError, ProblemError
from umm.program.problem import Problem
from umm.schedules.schedule import Schedule


def test_element_sizes_and_the_type_of_c():
    assert DTYPES == get_args(Dtype) == (
        "float64", "float32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2",
    )  # fmt: skip
    assert [itemsize(d) for d in DTYPES] == [8, 4, 2, 2, 1, 1]
    assert [accumulated_in(d) for d in DTYPES] == [
        "float64", "float32", "float32", "float32", "bfloat16", "bfloat16",
    ]  # fmt: skip


def test_a_problem_has_them():
    problem = Problem(m=2, n=3, k=4, dtype="bfloat16")
    assert (problem.c_dtype, [problem.itemsize(x) for x in "ABC"]) == ("bfloat16", [2, 2, 2])
    assert Problem(m=2, n=3, k=4, dtype="fp8").c_dtype == "bfloat16"


def test_a_file_without_the_type_of_c_has_sums_in_float32():
    """So were files written when that was the type of C for 16 bits."""
    sizes = {"m": 8, "n": 8, "k": 8, "dtype": "bf16", "a": "row", "b": "row", "c": "row", "ranks": 2}
    written = {x: umm.schedule(Problem(**sizes, c_dtype=x), "h100-8") for x in ("float32", "bfloat16")}
    texts = {x: made.to_json() for x, made in written.items()}
    assert ["c_dtype" in json.loads(text)["problem"] for text in texts.values()] == [False, True]
    for c_dtype, text in texts.items():
        assert Schedule.from_json(text).problem.c_dtype == c_dtype


@pytest.mark.parametrize("dtype", [np.float16, np.dtype("float16"), np.dtype(">f2")])
def test_a_type_of_numpy_is_its_name(dtype):
    assert Problem(m=2, n=3, k=4, dtype=dtype) == Problem(m=2, n=3, k=4, dtype="float16")
    sizes = {"tokens": 8, "hidden": 8, "ffn": 8}
    assert umm.chain("mlp", **sizes, dtype=dtype) == umm.chain("mlp", **sizes, dtype="float16")
    assert umm.Space(m=2, n=3, k=4, dtype=dtype) == umm.Space(m=2, n=3, k=4, dtype="float16")
    with pytest.raises(ProblemError, match="dtype 'int8' is unknown"):
        Problem(m=2, n=3, k=4, dtype=np.int8)


def test_an_unknown_type_is_refused_with_the_known_ones():
    with pytest.raises(ProblemError, match="dtype 'int8' is unknown; choose from float64, float32, float16"):
        itemsize("int8")
    with pytest.raises(ProblemError, match="or short as bf16, "):  # fp4 is not taken here
        itemsize("int8")
    with pytest.raises(ProblemError, match="dtype 'int8' of C is unknown; choose from float64"):
        Problem(m=1, n=1, k=1, c_dtype="int8")


def test_4_bits_are_priced_alone():
    """Twice the peak of 8 bits and 9/16 of a byte an element; no schedule is made of them."""
    machine = umm.machine("b200-8")
    four, eight = (
        float(gemm_seconds(machine, x, 16384, 16384, 16384, 2)) for x in ("float4_e2m1", "float8_e4m3")
    )
    assert eight / four == pytest.approx(2.0, rel=0.1)
    with pytest.raises(ProblemError, match="priced alone: use umm fuse"):
        umm.Problem(m=64, n=64, k=64, dtype="fp4")


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.usefixtures("shared_ranks")
@pytest.mark.parametrize("executor", ["numpy", pytest.param("mpi", marks=pytest.mark.mpi)])
def test_complex_products_are_right_with_sums_over_replicas(dtype, executor):
    """A 9x8 by rows, B 8x7 by columns, C in two replicas whose parts are added."""
    problem = umm.Problem(m=9, n=7, k=8, dtype=dtype, a="row", b="col", c="2d@2", ranks=4)
    rng = np.random.default_rng(1)
    a, b = (rng.uniform(-1, 1, (*x, 2)) @ (1, 1j) for x in ((9, 8), (8, 7)))
    schedule = umm.schedule(problem, "h100-8", stationary="A")
    trace = umm.run(schedule, executor=executor, operands=(a.astype(dtype), b.astype(dtype)))
    assert trace.result.dtype == dtype
    assert trace.result == pytest.approx(a @ b, abs=1e-5 if dtype == "complex64" else 1e-13)


def test_a_complex_multiply_add_is_four_real_ones():
    machine = umm.machine("h100-8")
    assert machine.peak("complex64") == machine.peak("float32") / 4
    assert machine.peak("complex128") == machine.peak("float64") / 4


def test_types_of_one_multiply_or_of_a_machine_are_refused_elsewhere():
    with pytest.raises(InputError, match="X is complex64, a type of one multiply, not of chains"):
        umm.chain("mlp", hidden=4, ffn=4, tokens=4, dtype="complex64")
    with pytest.raises(InputError, match="C of complex64 factors is not kept in float32"):
        umm.Problem(m=4, n=4, k=4, dtype="complex64", c_dtype="float32", ranks=1)
    with pytest.raises(InputError, match=r"tf32 is a way to multiply float32.*h100-8:tf32"):
        umm.Problem(m=4, n=4, k=4, dtype="tf32", ranks=1)

"""The types: bytes of an element, the type of C, and what an unknown one is told."""

from typing import get_args

import pytest

import umm
from umm.cost import gemm_seconds
from umm.dtypes import DTYPES, Dtype, accumulated_in, itemsize
from umm.errors import ProblemError
from umm.program.problem import Problem


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
    assert (problem.c_dtype, [problem.itemsize(x) for x in "ABC"]) == ("float32", [2, 2, 4])


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

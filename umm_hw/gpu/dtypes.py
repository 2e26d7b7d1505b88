"""The types that GPUs hold, and those that cuBLAS multiplies."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from umm.dtypes import accumulated_in
from umm.errors import InputError
from umm.problem import Problem
from umm_hw.bfloat16 import BFLOAT16
from umm_hw.matrix import array_dtype


def gpu_dtype(name: str) -> np.dtype[Any]:
    """Return NumPy's type of this name, or the one that stands for bfloat16."""
    return BFLOAT16 if name == "bfloat16" else array_dtype(name)


def check_types(problem: Problem, tf32: bool) -> None:
    """Refuse a pair of types that cuBLAS does not multiply.

    Raises:
        InputError: if C is neither of the operands' type nor float32 for half-precision operands, or if TF32
            is asked for other operands than float32.
    """
    allowed = {problem.dtype, accumulated_in(problem.dtype)}
    if problem.c_dtype not in allowed:
        raise InputError(
            f"C of {problem.c_dtype} from operands of {problem.dtype} is not multiplied on GPUs; "
            f"choose c_dtype from {', '.join(sorted(allowed))}"
        )
    check_tf32(tf32, [problem.dtype])


def check_tf32(tf32: bool, dtypes: Sequence[str]) -> None:
    """Refuse TF32 where nothing is float32.

    Raises:
        InputError: if so.
    """
    if tf32 and "float32" not in dtypes:
        raise InputError(f"tf32 rounds float32 operands; leave it out for {', '.join(dtypes)}")

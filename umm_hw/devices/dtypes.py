"""The types that GPUs hold, and those that cuBLAS multiplies."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from umm.dtypes import accumulated_in, is_float8
from umm.errors import InputError
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import GEMM
from umm_hw.bfloat16 import BFLOAT16
from umm_hw.matrix import array_dtype


def device_dtype(name: str) -> np.dtype[Any]:
    """Return NumPy's type of this name, or the one that stands for bfloat16."""
    return BFLOAT16 if name == "bfloat16" else array_dtype(name)


def check_types(schedule: Schedule, tf32: bool) -> None:
    """Refuse types of gemms that cuBLAS does not multiply.

    InputError if factors differ in type, if a product is neither of their type nor float32 for half-precision
    ones, or if TF32 is asked for other factors than float32.
    """
    small = [tensor for tensor in schedule.tensors if is_float8(tensor.dtype)]
    if small:
        raise InputError(
            f"{small[0].name} of {small[0].dtype} is not multiplied on GPUs here; "
            "choose --executor numpy or mpi, or bfloat16"
        )
    tensors = [schedule.operand_tensors(operand)[schedule.kind == GEMM] for operand in range(3)]
    combinations = np.unique(np.stack(tensors, axis=1), axis=0).tolist()
    for c, a, b in ([schedule.tensors[number] for number in row] for row in combinations):
        if a.dtype != b.dtype:
            raise InputError(
                f"{a.name} of {a.dtype} and {b.name} of {b.dtype} are not multiplied on GPUs; "
                "cast one to the other's type"
            )
        allowed = {a.dtype, accumulated_in(a.dtype)}
        if c.dtype not in allowed:
            raise InputError(
                f"{c.name} of {c.dtype} from operands of {a.dtype} is not multiplied on GPUs; "
                f"choose its type from {', '.join(sorted(allowed))}"
            )
    check_tf32(tf32, sorted({schedule.tensors[row[1]].dtype for row in combinations}))


def check_tf32(tf32: bool, dtypes: Sequence[str]) -> None:
    """Refuse TF32 where nothing is float32; InputError if so."""
    if tf32 and "float32" not in dtypes:
        raise InputError(f"tf32 rounds float32 operands; leave it out for {', '.join(dtypes)}")

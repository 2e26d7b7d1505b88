"""The types umm multiplies: their names, the bytes of an element, and the types of their sums.

Types of 8 bits have a scale: one for a tensor, or, where the name ends in ``:128``, one for each 128 elements
along k. A and B may be of unlike such types: ``float8_e4m3xfloat8_e5m2:128``.
"""

from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from umm.errors import InputError, ProblemError
from umm.files import shown

Dtype = Literal["float64", "float32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2"]
_ITEMSIZE: dict[str, int] = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3": 1, "float8_e5m2": 1,
}  # fmt: skip
DTYPES = tuple(_ITEMSIZE)
COMPLEX = {"complex64": "float32", "complex128": "float64"}
"""Types of one multiply alone, and those of their two parts: a product of two takes four real ones."""
_ITEMSIZE |= {name: 2 * _ITEMSIZE[part] for name, part in COMPLEX.items()}
FLOAT8 = {"float8_e4m3": (3, -6, 448.0), "float8_e5m2": (2, -14, 57344.0)}
"""Bits of the fraction, the smallest exponent of a normal number, and the largest number."""
BLOCK = 128  # elements along k that share a scale
_BLOCKED = f":{BLOCK}"
_SCALE = 4  # bytes
PRICED = {"float4_e2m1": 0.5 + 1 / 16}
"""Types that are priced alone, and the bytes of an element with its share of the scale of 16."""
EXPANDED = {"int8": 1.0, "int4": 0.5 + 2 / 128, **PRICED}
"""Types of weights that kernels expand to the type of what they multiply, and the bytes of an element with
its share of scales: one for a row of int8, for 128 elements of int4, for 16 of float4. ``bfloat16xint4`` is a
multiply of bfloat16 by such weights."""
_ALIASES = {
    "fp4": "float4_e2m1",
    "bf16": "bfloat16",
    "fp16": "float16",
    "f16": "float16",
    "fp32": "float32",
    "f32": "float32",
    "fp64": "float64",
    "f64": "float64",
    "fp8": "float8_e4m3",
    "e4m3": "float8_e4m3",
    "e5m2": "float8_e5m2",
}


def canonical(dtype: str | np.dtype[Any] | type[np.generic]) -> str:
    """Return a type by its full name, NumPy's too; a name that is no alias comes back as it is.

    >>> canonical("bf16"), canonical("float32"), canonical("fp8xe5m2:128"), canonical("fp8xe4m3")
    ('bfloat16', 'float32', 'float8_e4m3xfloat8_e5m2:128', 'float8_e4m3')
    """
    if isinstance(dtype, np.dtype):
        return str(dtype.name)
    if isinstance(dtype, type):
        return str(dtype.__name__)
    try:
        name, colon, block = dtype.partition(":")
    except AttributeError:  # no text: a caller that asks for its size is answered
        return dtype
    parts = [_ALIASES.get(part, part) for part in name.split("x")]
    if not all(parts):
        return dtype
    same = len(parts) == 2 and parts[0] == parts[1]
    return "x".join(parts[:1] if same else parts) + colon + block


@lru_cache
def expanded(dtype: str) -> str:
    """Return the type that B is stored in where kernels expand it to that of A; empty where they do not.

    >>> expanded("bfloat16xint4"), expanded("bfloat16")
    ('int4', '')
    """
    first, _, second = dtype.partition("x")
    return second if second in EXPANDED and first in DTYPES and first not in FLOAT8 else ""


@lru_cache
def factors(dtype: str) -> tuple[str, str]:
    """Return the types that A and B multiply in.

    >>> factors("float8_e4m3xfloat8_e5m2:128"), factors("float32"), factors("float16xint4")
    (('float8_e4m3:128', 'float8_e5m2:128'), ('float32', 'float32'), ('float16', 'float16'))
    """
    if dtype in COMPLEX:  # whose names have an x
        return dtype, dtype
    if expanded(dtype):
        return (dtype.partition("x")[0],) * 2
    name, colon, block = dtype.partition(":")
    first, _, second = name.partition("x")
    return first + colon + block, (second or first) + colon + block


def product_dtype(a: str, b: str, stored: str = "") -> str:
    """Return the type of a multiply whose factors have these.

    Args:
        stored: Type that B is stored in, if kernels expand it.

    >>> product_dtype("float8_e4m3:128", "float8_e5m2:128"), product_dtype("bfloat16", "bfloat16", "int4")
    ('float8_e4m3xfloat8_e5m2:128', 'bfloat16xint4')
    """
    if stored:
        return f"{a}x{stored}"
    if a != b and is_float8(a) and is_float8(b):
        return canonical(a.partition(":")[0] + "x" + b)
    return a  # also of two types that no kernel multiplies: executors refuse them by name


def rated(dtype: str) -> str:
    """Return the type whose peak a machine states: A's, without its scales."""
    return factors(dtype)[0].partition(":")[0]


def is_float8(dtype: str) -> bool:
    """Return whether elements have 8 bits and a scale."""
    return rated(dtype) in FLOAT8


def has_blocks(dtype: str) -> bool:
    """Return whether elements have a scale for each block along k, in place of one for the tensor."""
    return dtype.endswith(_BLOCKED)


def itemsize(dtype: str, owner: str = "") -> int:
    """Return the bytes of one element, its scale aside, of weights that kernels expand once expanded.

    ProblemError for a type that umm does not multiply.

    Args:
        owner: Name of the matrix, for the error.

    >>> itemsize("float32"), itemsize("bfloat16"), itemsize("float8_e4m3:128")
    (4, 2, 1)
    """
    nbytes = _ITEMSIZE.get(dtype) if isinstance(dtype, str) else None
    if nbytes is None and isinstance(dtype, str):
        name, _, block = dtype.partition(":")
        parts = name.split("x")
        if block in ("", str(BLOCK)) and len(parts) <= 2 and all(part in FLOAT8 for part in parts):
            nbytes = 1
        elif expanded(dtype):
            nbytes = _ITEMSIZE[parts[0]]
    if nbytes is not None:
        return nbytes
    whose = f" of {owner}" if owner else ""
    if dtype == "tf32":
        raise ProblemError(
            "tf32 is a way to multiply float32: choose float32, and a machine with it, such as h100-8:tf32"
        )
    if dtype in PRICED:
        raise ProblemError(f"{dtype} is priced alone: use umm fuse or umm.cost.gemm_seconds, or choose fp8")
    short = [x for x, name in _ALIASES.items() if name not in PRICED]
    known = f"{', '.join((*DTYPES, *COMPLEX))}, or short as {', '.join(short)}"
    if isinstance(dtype, str) and any(part in FLOAT8 for part in dtype.partition(":")[0].split("x")):
        known = (
            "float8_e4m3, float8_e5m2, one for each of A and B as fp8xe5m2, and with :128 scales of blocks"
        )
    raise ProblemError(f"dtype {shown(dtype)}{whose} is unknown; choose from {known}")


def element_bytes(dtype: str) -> float:
    """Return the bytes that one element moves as, also of a type that is priced alone.

    ProblemError for a type that umm does not know.

    >>> element_bytes("bfloat16"), element_bytes("float4_e2m1")
    (2.0, 0.5625)
    """
    return PRICED[dtype] if dtype in PRICED else float(itemsize(dtype))


def weight_bytes(dtype: str) -> float:
    """Return the bytes of an element of B, with its share of a scale where kernels expand it.

    >>> weight_bytes("bfloat16"), weight_bytes("bfloat16xint4")
    (2.0, 0.515625)
    """
    stored = expanded(dtype)
    return EXPANDED[stored] if stored else element_bytes(dtype)


def payload_bytes(elements: ArrayLike, dtype: str) -> NDArray[np.int64]:
    """Return the bytes that elements travel as: themselves, and the scales of their blocks.

    >>> payload_bytes([128, 256], "float8_e4m3:128").tolist(), payload_bytes(128, "float8_e4m3").tolist()
    ([132, 264], 128)
    """
    count = np.asarray(elements, dtype=np.int64)
    scales = -(-count // BLOCK) * _SCALE if has_blocks(dtype) else 0
    return np.asarray(count * itemsize(dtype) + scales)


def product_type(dtype: str) -> str:
    """Return the type of C unless asked otherwise: that of A and B, or bfloat16 if they have 8 bits or less.

    >>> product_type("bfloat16"), product_type("float64"), product_type("float8_e5m2")
    ('bfloat16', 'float64', 'bfloat16')
    """
    return "bfloat16" if is_float8(dtype) or dtype in PRICED else factors(dtype)[0]


def accumulated_in(dtype: str) -> str:
    """Return the type of C in a file that does not say: float32 for 16-bit inputs, bfloat16 for 8 bits.

    Calibrated kernels write this type too. ProblemError for a type that umm does not multiply.

    >>> accumulated_in("float16"), accumulated_in("float64"), accumulated_in("float8_e5m2")
    ('float32', 'float64', 'bfloat16')
    """
    return "float32" if itemsize(dtype) == 2 else product_type(dtype)


def check_product(dtype: str, c_dtype: str) -> None:
    """Refuse a type of C that products of 8-bit factors are not kept in, and one of 8 bits.

    ProblemError if it is so.
    """
    if (dtype in COMPLEX) != (c_dtype in COMPLEX):
        raise ProblemError(
            f"C of {dtype} factors is not kept in {c_dtype}; choose complex types for both or none"
        )
    kept = ("bfloat16", "float16", "float32")
    if is_float8(c_dtype) or (is_float8(dtype) and c_dtype not in kept):
        raise ProblemError(
            f"a product is not kept in {c_dtype}; choose C's type from {', '.join(kept)}; of a chain only "
            "weights may have 8 bits: --dtype bf16 --weights fp8"
            if is_float8(c_dtype)
            else f"C of {dtype} factors is not kept in {c_dtype}; choose from {', '.join(kept)}"
        )


def check_numbers(array: NDArray[Any], dtype: str, what: str) -> None:
    """Raise InputError for complex numbers where a type is real, and for texts and dates.

    >>> check_numbers(np.zeros(2) + 1j, "float32", "operand A")
    Traceback (most recent call last):
    umm.errors.InputError: operand A is complex128, not float32; give its real part, or make dtype complex64
    """
    # NumPy would drop the imaginary part with a warning at most.
    if array.dtype.kind == "c" and dtype not in COMPLEX:
        raise InputError(f"{what} is {array.dtype}, not {dtype}; give its real part, or make dtype complex64")
    if array.dtype.kind in "USMm":
        raise InputError(f"{what} is an array of {array.dtype}; it must hold numbers")


def rounded_to_float8(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Return values rounded to an 8-bit type, ties to even; larger ones become its largest.

    >>> rounded_to_float8(np.array([0.3, 17.0, -500.0, 2.0**-10, 1e-9]), "float8_e4m3").tolist()
    [0.3125, 16.0, -448.0, 0.0, 0.0]
    """
    fraction, least, most = FLOAT8[rated(dtype)]
    exponent = np.maximum(np.frexp(values)[1] - 1, least)
    unit = np.ldexp(values.dtype.type(1.0), exponent - fraction)
    return np.asarray(np.clip(np.rint(values / unit) * unit, -most, most))


def rounded_under_scales(values: NDArray[np.float64], dtype: str) -> NDArray[np.float64]:
    """Return numbers rounded to a type of 8 bits under a scale for each 128 of a row, a power of two.

    >>> rounded_under_scales(np.array([[1.0, 3.1, 1000.0]]), "float8_e4m3:128").tolist()
    [[1.0, 3.0, 1024.0]]
    """
    starts = np.arange(0, values.shape[1], BLOCK)
    largest = np.maximum.reduceat(np.abs(values), starts, axis=1)
    largest = np.repeat(largest, BLOCK, axis=1)[:, : values.shape[1]]
    most = FLOAT8[rated(dtype)][2]
    scale = np.exp2(np.maximum(np.ceil(np.log2(np.where(largest > 0, largest, most) / most)), -149))
    return np.asarray(rounded_to_float8(values / scale, dtype) * scale)

"""The types umm multiplies: their names, the bytes of an element, and what their products are summed in."""

from typing import Literal

from umm.errors import ProblemError
from umm.files import shown

Dtype = Literal["float64", "float32", "float16", "bfloat16"]
_ITEMSIZE: dict[str, int] = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
DTYPES = tuple(_ITEMSIZE)
_ALIASES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "f16": "float16",
    "fp32": "float32",
    "f32": "float32",
    "fp64": "float64",
    "f64": "float64",
}


def canonical(dtype: str) -> str:
    """Return a type by its full name; a name that is no alias comes back as it is.

    >>> canonical("bf16"), canonical("float32")
    ('bfloat16', 'float32')
    """
    return _ALIASES.get(dtype, dtype) if isinstance(dtype, str) else dtype


def itemsize(dtype: str, of: str = "") -> int:
    """Return the bytes of one element.

    Args:
        dtype: The name of a type.
        of: The matrix it is asked for, where an error should say so.

    Raises:
        ProblemError: for a type that umm does not multiply.

    >>> itemsize("float32"), itemsize("bfloat16")
    (4, 2)
    """
    try:
        return _ITEMSIZE[dtype]
    except (KeyError, TypeError):
        whose = f" of {of}" if of else ""
        known = f"{', '.join(DTYPES)}, or short as {', '.join(_ALIASES)}"
        raise ProblemError(f"dtype {shown(dtype)}{whose} is unknown; choose from {known}") from None


def accumulated_in(dtype: str) -> str:
    """Return the type of C unless asked otherwise: float32 for half-precision inputs, else the inputs' own.

    Raises:
        ProblemError: for a type that umm does not multiply.

    >>> accumulated_in("float16"), accumulated_in("float64")
    ('float32', 'float64')
    """
    return "float32" if itemsize(dtype) == 2 else dtype

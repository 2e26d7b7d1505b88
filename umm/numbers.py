"""Numbers written by others: typed, in a file, in a variable of the environment.

``int`` and ``float`` accept text that no user means as a number (``٣``, ``1_000``, ``nan``, ``infinity``),
refuse ``²`` though ``isdigit`` does not, and fail at 5,000 digits. Text from outside is read by these
functions instead; a test finds the places that bypass them.
"""

import re
from math import isfinite
from numbers import Integral
from typing import Any

from umm.errors import InputError
from umm.files import shown

MAX_DIGITS = 400
"""Characters of a real number: more than the longest exact decimal of an everyday binary fraction has."""
_WHOLE = re.compile(r"-?[0-9]{1,100}")
_REAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def as_int(value: object) -> Any:
    """Return a whole number of another type, such as NumPy's, as an int; anything else as it is.

    >>> import numpy as np
    >>> as_int(np.int64(2)), as_int(2.0), as_int("2"), as_int(True)
    (2, 2.0, '2', True)
    """
    # Most are plain already, and to ask an abstract class takes ten times as long.
    if type(value) in (int, str, bool) or not isinstance(value, Integral):
        return value
    return int(value)


def real_from_0(value: object, what: str) -> float:
    """Return a number ≥ 0 that a caller gives, infinite or of NumPy too; InputError if it is none.

    >>> real_from_0("a", "seconds")
    Traceback (most recent call last):
    umm.errors.InputError: seconds = 'a' is not possible; it must be a number ≥ 0
    """
    number = as_int(value)
    if isinstance(number, bool) or not isinstance(number, int | float) or not number >= 0:
        raise InputError(f"{what} = {shown(value)} is not possible; it must be a number ≥ 0")
    return float(number)


def yes_or_no(value: object, what: str) -> bool:
    """Return True or False as a caller gives them, as 1 and 0 or of NumPy too; InputError for anything else.

    >>> yes_or_no("no", "backward")
    Traceback (most recent call last):
    umm.errors.InputError: backward = 'no' is not possible; it must be True or False
    """
    if value not in (0, 1):
        raise InputError(f"{what} = {shown(value)} is not possible; it must be True or False")
    return bool(value)


def whole_in(text: str | None, least: int = 0, below: int = 2**63) -> int | None:
    """Return the whole number that a text is in ASCII digits, None if it is none or out of range.

    >>> whole_in("12"), whole_in("-1"), whole_in("-1", least=-8), whole_in("²"), whole_in("9" * 5000)
    (12, None, -1, None, None)
    """
    if text is None or not _WHOLE.fullmatch(text):
        return None
    number = int(text)
    return number if least <= number < below else None


def real_in(text: str | None) -> float | None:
    """Return the finite decimal number that a text is, None if it is none.

    >>> real_in("2.5"), real_in(".5e-3"), real_in("nan"), real_in("1e999"), real_in("1_0")
    (2.5, 0.0005, None, None, None)
    """
    if text is None or len(text) > MAX_DIGITS or not _REAL.fullmatch(text):
        return None
    number = float(text)
    return number if isfinite(number) else None


def share_in(text: str | None) -> float | None:
    """Return the share that a text is, None if it is none or below 0.

    >>> share_in("25%"), share_in("0.25"), share_in("-1"), share_in("inf")
    (0.25, 0.25, None, None)
    """
    number = real_in(text.removesuffix("%")) if text else None
    if text is None or number is None or number < 0:
        return None
    return number / (100 if text.endswith("%") else 1)


def parse_whole(text: str, what: str = "a number", least: int = 0, below: int = 2**63) -> int:
    """Return the whole number that a text is; InputError in one line, if it is none or out of range.

    Args:
        text: ASCII digits, a minus before them where ``least`` allows one.
        what: The quantity, for the message: ``ranks``.
        least: Smallest possible number.
        below: First number that is too large.

    >>> parse_whole("²", "ranks", 1)
    Traceback (most recent call last):
    umm.errors.InputError: ranks = '²' is not possible; it must be a whole number ≥ 1
    """
    number = whole_in(text, least, below)
    if number is None:
        most = "" if below == 2**63 else f" and < {below}"
        raise InputError(f"{what} = {shown(text)} is not possible; it must be a whole number ≥ {least}{most}")
    return number


def parse_real(text: str, what: str = "a number") -> float:
    """Return the finite number that a text is in decimal digits.

    InputError in one line, naming ``what``, if it is none.
    """
    number = real_in(text)
    if number is None:
        raise InputError(f"{what} = {shown(text)} is not possible; it must be a finite decimal number")
    return number

"""The address of the page: its allowed texts, and reading and writing a state by them."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode

from umm.errors import InputError, did_you_mean
from umm.numbers import real_in, whole_in
from umm.units import parse_dimension

LONGEST = 8192  # characters of an address that are read
Reader = Callable[[str, str], Any]  # returns the value of a part, from its name and its text
S = TypeVar("S")


def read(query: str, start: S, changed: Callable[[S, str, str], S]) -> tuple[S, list[str]]:
    """Return the state that a query describes, and a line for each part of it that means nothing.

    Args:
        query: What follows the path, with its question mark or without.
        start: The state of an empty query.
        changed: Returns a state with one part as its text says.
    """
    if len(query) > LONGEST:
        return start, [f"the address has {len(query)} characters; at most {LONGEST} are read"]
    try:
        pairs = parse_qsl(
            query.removeprefix("?"), keep_blank_values=True, errors="strict", max_num_fields=100
        )
    except ValueError:
        return start, ["this address cannot be read; the page shows its defaults"]
    state, mistakes = start, []
    for name, text in pairs:
        try:
            state = changed(state, name, text.strip())
        except InputError as error:
            kept = getattr(state, name, "")  # mostly the default: an address has each part once
            mistakes.append(f"{error}; the page takes {kept}" if kept else str(error))
    return state, mistakes


def query_of(values: Mapping[str, str], usual: Mapping[str, str]) -> str:
    """Return the query with the values that are not the defaults: ``?m=1024&b=col%402``."""
    mine = {name: value for name, value in values.items() if value != usual[name]}
    return "?" + urlencode(mine) if mine else ""


def unknown(name: str, parts: Iterable[str]) -> InputError:
    """Return the error of a part that is unknown."""
    parts = list(parts)
    hint = did_you_mean(name, parts)
    short = f"choose from {', '.join(parts[:9])}, ..." if hint.startswith("choose") else hint
    return InputError(f"unknown parameter {name[:40]!r}; {short}")


def one_of(values: Iterable[str]) -> Reader:
    """Return a reader of one of some texts."""
    known = tuple(values)

    def check(name: str, text: str) -> str:
        if text not in known:
            raise InputError(f"{name} {text[:40]!r} is unknown; choose from {', '.join(known)}")
        return text

    return check


def switch(name: str, text: str) -> bool:
    """Read 0 or 1 as no or yes."""
    return bool(one_of(("0", "1"))(name, text) == "1")


def whole(least: int = 0, most: int = 2**31, empty: int | None = None) -> Reader:
    """Return a reader of a whole number; an empty text is ``empty``, if that is given."""

    def check(name: str, text: str) -> int:
        if not text and empty is not None:
            return empty
        number = whole_in(text, least, most + 1)
        if number is None:
            raise InputError(f"{name} {text[:40]!r} is not a whole number from {least} to {most}")
        return number

    return check


def number(name: str, text: str) -> float:
    """Read a number of at least 0: 12, 0.1; few decimals, so it is written back unchanged."""
    real = real_in(text) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,4})?", text) else None
    if real is None:
        raise InputError(f"{name} {text[:40]!r} is not a number of at least 0, with up to four decimals")
    return real


def size(name: str, text: str) -> int:
    """Read a dimension: 8192, 8K."""
    try:
        dimension = parse_dimension(text)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    if dimension < 1:
        raise InputError(f"{name}: {dimension} is not a dimension; it must be a whole number ≥ 1")
    return dimension


def plain(most: int = 120) -> Reader:
    """Return a reader of any text that can be printed and is not too long."""

    def check(name: str, text: str) -> str:
        if len(text) > most or not text.isprintable():
            raise InputError(
                f"{name} of {len(text)} characters is not read; it has at most {most}, printable"
            )
        return text

    return check

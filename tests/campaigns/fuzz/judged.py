"""The form that every refusal must have."""

from collections.abc import Callable
from typing import Any
from unicodedata import category

from umm.errors import UmmError

LONGEST = 1500
TAKEN, REFUSED = "taken", "refused"
TURNS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def tried(call: Callable[[], Any]) -> tuple[Any, str | None]:
    """Return a call's result and None, or None and the line of its refusal; nothing else may come."""
    try:
        return call(), None
    except UmmError as error:
        line = str(error)
        assert line, "a refusal says nothing"
        assert len(line) <= LONGEST, f"a refusal of {len(line)} characters: {line[:200]}"
        return None, line


def shown(text: str) -> None:
    """Assert that a text has nothing that a terminal obeys: controls but line ends, halves of characters, and
    what turns the direction of writing."""
    bad = [x for x in text if x != "\n" and (category(x) in ("Cc", "Cs", "Zl", "Zp") or x in TURNS)]
    assert not bad, f"{bad[:5]!r} in {text[:300]!r}"

"""Layouts in the words of other frameworks: recognising a text's framework, and reading it."""

import re
from collections.abc import Callable

from umm.layouts.frameworks import dtensor, hpf, jax, scalapack
from umm.layouts.frameworks.mesh import Parts

READERS: dict[str, Callable[[str, tuple[int, int], int], Parts]] = {
    "dtensor": dtensor.read,
    "jax": jax.read,
    "scalapack": scalapack.read,
    "hpf": hpf.read,
}
_OWN = re.compile(r"\s*(dtensor|jax|scalapack|hpf):(.*)", re.IGNORECASE | re.DOTALL)
_PLACEMENT = re.compile(r"\s*[\[(]?\s*(_?Strided)?(Shard\s*\(|Replicate|Partial)", re.IGNORECASE)
_AXIS = re.compile(r"\s*(_?Strided|_S\(|Shard|S\(|R(eplicate)?\b|P\b|Partial)", re.IGNORECASE)


def is_foreign(text: str) -> bool:
    """Whether a text is in the words of a framework: with its name before it, or a placement by itself.

    >>> [text for text in ("row", "dtensor:mesh=2x4;Shard(0),Replicate", "shard(0)") if is_foreign(text)]
    ['dtensor:mesh=2x4;Shard(0),Replicate', 'shard(0)']
    """
    return bool(_OWN.match(text) or _PLACEMENT.match(text))


def read(text: str, shape: tuple[int, int], ranks: int) -> Parts:
    """Parse a text of :func:`is_foreign` for a matrix of a shape on so many ranks.

    LayoutError if it means nothing, or does not fit; says what would work.
    """
    match = _OWN.match(text)
    name, rest = (match[1].lower(), match[2].strip()) if match else ("dtensor", text.strip())
    return READERS[name](rest, shape, ranks)


def split(text: str) -> list[str]:
    """Return the layouts of a comma list; the commas of a framework's text stay in it.

    >>> split("row, dtensor:mesh=2x4;Shard(0),Replicate, col@2,jax:mesh=x:2,y:4;P(x,y)")
    ['row', 'dtensor:mesh=2x4;Shard(0),Replicate', 'col@2', 'jax:mesh=x:2,y:4;P(x,y)']
    """
    layouts: list[str] = []
    for piece in text.split(","):
        if layouts and _goes_on(layouts[-1], piece):
            layouts[-1] += "," + piece.rstrip()
        else:
            layouts.append(piece.strip())
    return layouts


def _goes_on(text: str, piece: str) -> bool:
    """Whether a text continues with the piece after a comma."""
    if text.count("(") > text.count(")"):
        return True
    match = _OWN.match(text)
    if match is None:
        return False
    missing = {"jax": "P", "scalapack": "grid"}.get(match[1].lower())
    return missing not in match[2] if missing else match[1].lower() == "dtensor" and bool(_AXIS.match(piece))

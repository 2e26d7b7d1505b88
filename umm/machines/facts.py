"""The numbers of a topology file as they are written, with where they come from and how sure they are."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Fact(NamedTuple):
    """One number of a topology file, as written.

    Attributes:
        key: Where in the file it is.
        value: With its unit.
        source: Where it comes from.
        per: What it is for one of.
        assumed: Whether it is a guess.
        uncertainty: How sure it is, as a share of it.
        range: The least and the most it may be, as written.
        basis: ``measured`` on such a machine, ``published`` by a data sheet or paper, or ``assumed``.
    """

    key: str
    value: str
    source: str
    per: str
    assumed: bool
    uncertainty: float | None = None
    range: tuple[str, str] | None = None
    basis: str = "published"


def facts_of(node: Any, key: str = "") -> list[Fact]:
    """Return every number of a file, or of a part of it at a key, with its source."""
    if isinstance(node, list):
        names = [item.get("dtype", i) if isinstance(item, Mapping) else i for i, item in enumerate(node)]
        return [
            fact for name, item in zip(names, node, strict=True) for fact in facts_of(item, f"{key}[{name}]")
        ]
    if not isinstance(node, Mapping):
        return []
    if "source" in node:
        value = "a table" if "m" in node else str(node.get("value", "a table"))
        if "most_splits" in node or ("ramp" in node and "rows" in node):
            value = "{rows} x {cols}, {units} at once, ramp {ramp}".format(**node)
        assumed = bool(node.get("assumed", False))
        measured = node.get("measured", node.get("uncertainty") is not None)  # a spread comes from measuring
        ends = node.get("range")
        fact = Fact(
            key,
            value,
            node["source"],
            node.get("per", ""),
            assumed,
            node.get("uncertainty"),
            None if ends is None else (str(ends[0]), str(ends[1])),
            "assumed" if assumed else "measured" if measured else "published",
        )
        inner = {name: item for name, item in node.items() if name in ("link", "tiles", "kernels")}
        return [fact, *facts_of(inner, key)]
    return [fact for name, item in node.items() for fact in facts_of(item, f"{key}.{name}" if key else name)]

"""The numbers of a machine file: as written with sources, and the optional ones, declared once."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple


class Fact(NamedTuple):
    """One number of a machine file, as written.

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


class Declared(NamedTuple):
    """One optional number.

    Attributes:
        name: Of the Machine's attribute.
        key: In the file, below ``[devices]``.
        quantity: The table that holds it there, a class of ``umm.machines.quantities``.
        default: What a file means that does not state it.
        note: What it is, as files and messages say.
    """

    name: str
    key: str
    quantity: str
    default: float
    note: str


def stated(quantity: str, note: str, default: float = 0.0) -> Any:
    """Return the field of a number that a file may state."""
    return field(default=default, metadata={"quantity": quantity, "note": note})


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DeviceNumbers:
    """Optional numbers of a device in a file.

    A field that ends in ``_s`` is a time in seconds, and its key has no such end. With a ``copy_share`` of 0
    transfers and GEMMs both have all of the memory bandwidth; a ``refill`` of 0 takes no time. What a GEMM
    finds in a cache when it adds to a part of C again, it saves at the rate ``refill``.
    """

    signal_s: float = stated("Seconds", "time a rank takes to see another's signal")
    collective_start_s: float = stated(
        "Seconds", "time before the first bytes of a collective move: a small all-gather"
    )
    direct_start_s: float = stated(
        "Seconds", "time before rows of experts move that a kernel for low latency puts straight into place"
    )
    step_fence_s: float = stated(
        "Seconds", "time between two steps of a ring that multiplies while it passes on"
    )
    local_overhead_s: float = stated(
        "Seconds", "time of an accumulate or copy within a device beside its bytes"
    )
    copy_share: float = stated(
        "Share", "share of the memory bandwidth that ranks of one device have to exchange data"
    )
    pass_share: float = stated(
        "Share", "share of the memory bandwidth that maps reach, and attention of few queries", 1.0
    )
    strided_accumulates: float = stated(
        "Share", "rate of an accumulate into some of a tile's columns over one into all", 1.0
    )
    cache: int = stated(
        "Size", "of a rank: how much it may get and still find what it got before in a cache", 0
    )
    spread: float = stated("Share", "share by which runs of one schedule differ from each other")
    refill: float = stated(
        "Bandwidth", "rate at which GEMMs load what they use first, and what has left the caches"
    )


def declared() -> tuple[Declared, ...]:
    """Return every optional number.

    >>> declared()[0][:4]
    ('signal_s', 'signal', 'Seconds', 0.0)
    """
    return tuple(
        Declared(x.name, x.name.removesuffix("_s"), default=getattr(DeviceNumbers, x.name), **x.metadata)
        for x in fields(DeviceNumbers)
    )

"""The optional numbers of a device, each declared once: key, quantity, default and meaning.

The file's schema, the Machine and the comments of new files follow from here, so a new number takes a line in
this file and the code that uses it.
"""

from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple


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
    """What a file may state of a device beyond what every file states.

    A field that ends in ``_s`` is a time in seconds, and its key has no such end. With a ``copy_share`` of 0
    transfers and GEMMs both have all of the memory bandwidth; a ``refill`` of 0 takes no time. What a GEMM
    finds in a cache when it adds to a part of C again, it saves at the rate ``refill``.
    """

    signal_s: float = stated("Seconds", "time a rank takes to see another's signal")
    collective_start_s: float = stated(
        "Seconds", "time before the first bytes of a collective move: a small all-gather"
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
    strided_accumulates: float = stated(
        "Share", "rate of an accumulate into some of a tile's columns over one into all", 1.0
    )
    cache: int = stated(
        "Size", "of a rank: how much it may get and still find what it got before in a cache", 0
    )
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

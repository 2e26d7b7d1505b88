"""The numbers of a machine file as written with sources, and those of its devices, declared once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from umm.machines.quantities import Bandwidth, Count, Seconds, Share, Size, stated


class Fact(NamedTuple):
    """One number of a machine file, as written."""

    key: str  # where in the file it is
    value: str  # with its unit
    source: str  # where it comes from
    per: str  # what it is for one of
    assumed: bool  # whether it is a guess
    uncertainty: float | None = None  # how sure it is, as a share of it
    range: tuple[str, str] | None = None  # the least and the most it may be, as written
    # `measured` on such a machine, `published` by a data sheet or paper, or `assumed`.
    basis: str = "published"


def facts_of(node: Any, key: str = "") -> list[Fact]:
    """Return every number of a file, or of a part of it at a key, with its source."""
    if isinstance(node, list):
        types = [item.get("dtype") if isinstance(item, Mapping) else None for item in node]
        names = [i if x is None or types.count(x) > 1 else x for i, x in enumerate(types)]
        return [
            fact for name, item in zip(names, node, strict=True) for fact in facts_of(item, f"{key}[{name}]")
        ]
    if not isinstance(node, Mapping):
        return []
    if "source" in node:
        value = "a table" if "m" in node else str(node.get("value", "a table"))
        if "most_splits" in node or {"ramp", "rows", "cols"} <= node.keys():
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


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DeviceNumbers:
    """The numbers of a device, in bytes, seconds and bytes/s.

    A field that ends in ``_s`` is a time, and its key has no such end. Blocks of an accumulate limit its
    ``accumulate_efficiency``; the latency of links includes ``transfer_overhead``. With a ``copy_share`` of 0
    transfers and GEMMs both have all of the memory bandwidth; a ``refill`` of 0 takes no time. A GEMM that
    adds to a part of C again saves what it finds in a cache at the rate ``refill``.
    """

    ranks_per_device: int = stated(Count, "how many ranks may share a device", 1)
    memory: int = stated(Size, "of one device. Data sheet: GPU memory")
    memory_bandwidth: float = stated(Bandwidth, "of one device. Data sheet: GPU memory bandwidth")
    copy_engines: int = stated(
        Count, "gets of one rank that run at once. CUDA's deviceQuery: asyncEngineCount"
    )
    launch_s: float = stated(Seconds, "time before a GEMM computes: a kernel launch")
    transfer_overhead_s: float = stated(
        Seconds, "time of every transfer beside its links' latencies: submitting a peer copy"
    )
    accumulate_efficiency: float = stated(Share, "bandwidth of an accumulate over that of a copy")
    signal_s: float = stated(Seconds, "time a rank takes to see another's signal", 0.0)
    collective_start_s: float = stated(
        Seconds, "time before the first bytes of a collective move: a small all-gather", 0.0
    )
    direct_start_s: float = stated(
        Seconds,
        "time before rows of experts move that a kernel for low latency puts straight into place",
        0.0,
    )
    step_fence_s: float = stated(
        Seconds, "time between two steps of a ring that multiplies while it passes on", 0.0
    )
    local_overhead_s: float = stated(
        Seconds, "time of an accumulate or copy within a device beside its bytes", 0.0
    )
    copy_share: float = stated(
        Share, "share of the memory bandwidth that ranks of one device have to exchange data", 0.0
    )
    pass_share: float = stated(
        Share, "share of the memory bandwidth that maps reach, and attention of few queries", 1.0
    )
    strided_accumulates: float = stated(
        Share, "rate of an accumulate into some of a tile's columns over one into all", 1.0
    )
    cache: int = stated(
        Size, "of a rank: how much it may get and still find what it got before in a cache", 0
    )
    spread: float = stated(Share, "share by which runs of one schedule differ from each other", 0.0)
    refill: float = stated(
        Bandwidth, "rate at which GEMMs load what they use first, and what has left the caches", 0.0
    )

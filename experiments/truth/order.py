"""Which way of a small all-reduce is fastest at which size: umm's pick beside the measured one."""

from collections.abc import Iterator
from typing import NamedTuple

from experiments.common.ledger import Entry, reproduced
from experiments.common.machines import shipped
from experiments.truth.collectives import RACK, SAID, SMALL, MiB
from experiments.truth.parts import library

RIGHT = 0.1
"""How much longer than the fastest a pick may take to count as right, as a share."""


class Pick(NamedTuple):
    """One size of one table.

    Attributes:
        table: Of published.toml.
        size: MiB.
        picked: The way that umm predicts to be fastest.
        best: The one that was.
        regret: How much longer the picked one took, as a share.
    """

    table: str
    size: float
    picked: str
    best: str
    regret: float


def picks() -> Iterator[Pick]:
    """Yield the pick at each size of each table that has several ways; two-shot kernels are one way."""
    for key, table in SMALL.items():
        measured: dict[str, list[float]] = {}
        for name, times in SAID["small_all_reduces_ms"][key].items():
            way = name.partition(" by ")[0]
            measured[way] = [min(x) for x in zip(times, measured.get(way, times), strict=True)]
        if len(measured) == 1:
            continue
        for i, size in enumerate(table.sizes):
            took = {way: times[i] for way, times in measured.items()}
            predicted = {way: _seconds(key, way, size) for way in took}
            picked, best = min(predicted, key=predicted.__getitem__), min(took, key=took.__getitem__)
            yield Pick(key, size, picked, best, took[picked] / took[best] - 1.0)


def _seconds(key: str, way: str, size: float) -> float:
    table = SMALL[key]
    machine = RACK if way == "library" and "b300" in key else table.machine
    return library(shipped(machine), "all-reduce", int(size * MiB), table.ranks, way)


def entries() -> Iterator[Entry]:
    """Yield the ledger's lines: one a group of devices."""
    result = list(picks())
    for title, keys in (
        ("4 and 6 H100", ("four_h100", "four_more", "six_h100")),
        ("8 H100", ("eight_h100",)),
        ("8 B300", ("eight_b300", "eight_b300_between")),
        ("2 B300", ("two_b300", "two_b300_between")),
    ):
        rows = [x for x in result if x.table in keys]
        right = sum(x.regret <= RIGHT for x in rows)
        worst = max(rows, key=lambda x: x.regret)
        fitted = sum(bool(SMALL[x.table].fitted) for x in rows)
        yield reproduced(
            f"fastest all-reduce on {title}, by size",
            ", ".join(dict.fromkeys(SMALL[key].source for key in keys)),
            f"within {100 * RIGHT:g} % at {right} of {len(rows)} sizes; at worst "
            f"{100 * worst.regret:.0f} % longer ({worst.picked} for {worst.best} at {worst.size:g} MiB); "
            f"kernels were fitted at {fitted}",
            right >= 0.9 * len(rows),
            f"`{SMALL[keys[0]].machine}`",
        )

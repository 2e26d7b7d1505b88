"""Numbers of nodes or ranks side by side: the best of each, its cost and its speed-up."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from umm.machines import Machine
from umm.units import format_bytes, format_seconds, percent

WORTH = 0.5  # efficiency below which more devices mostly wait
NO_ROOM = "; does not fit"  # what follows the best of a number of nodes or ranks that has no memory for it


@dataclass(frozen=True)
class Scale:
    """One number of nodes or ranks, and the best of it."""

    ranks: int  # ranks that share the work
    devices: int  # devices they use
    chosen: str  # the best, in words
    makespan_s: float  # its time, in seconds
    memory_bytes: int  # memory of its fullest rank
    # How far it may be above the best there is, as a share of itself; None where nothing was sought.
    gap: float | None = None
    nodes: int | None = None  # Nodes of the machine; None where ranks were asked for.
    size: int = 1  # the dimension that grows with them in weak scaling; 1 in strong scaling
    sequences: int = 1  # equal parts of the tokens that attend to themselves alone; 1 without attention
    without: Sequence[str] = ()  # parts left out, in words, since the comparison was ended early

    @classmethod
    def of(
        cls, machine: Machine, ranks: int, chosen: str, makespan_s: float, memory_bytes: int, **more: Any
    ) -> "Scale":
        """Return the best of so many ranks of a machine."""
        devices = len({machine.device_of(rank, ranks) for rank in range(ranks)})
        return cls(ranks, devices, chosen, makespan_s, memory_bytes, **more)

    @property
    def count(self) -> int:
        """The number of nodes, or of ranks where those were asked for."""
        return self.ranks if self.nodes is None else self.nodes


def in_words(count: int | str, by_nodes: bool) -> str:
    """Return a number of nodes or ranks in words.

    >>> in_words(1, True), in_words(8, False)
    ('1 node', '8 ranks')
    """
    return f"{count} {'node' if by_nodes else 'rank'}{'' if str(count) == '1' else 's'}"


@dataclass(frozen=True)
class Scaling:
    """Several numbers of nodes or ranks of one machine.

    Speed-up and efficiency are over the first row. In strong scaling the work stays: half the time on twice
    the devices is a speed-up of 2 and an efficiency of 1. In weak scaling the work grows with the ranks: the
    same time is an efficiency of 1. Work is what grows; longer sequences have more of it for each token.

    >>> rows = [Scale(8, 8, "row", 4e-3, 10, nodes=1), Scale(16, 16, "row", 2.5e-3, 10, nodes=2)]
    >>> found = Scaling("dgx-h100x4", "mlp", rows, price=3.6)
    >>> found.speed_up(rows[1]), found.efficiency(rows[1])
    (1.6, 0.8)
    >>> found.device_seconds(rows[1]), round(found.dollars(rows[1]) * 1e6, 3)
    (0.04, 40.0)
    """

    machine: str  # its name, without the number of nodes
    words: str  # the computation
    rows: Sequence[Scale] = field(default_factory=list)  # one for each number, in the order asked for
    # The dimension that grows with the ranks: `tokens` in more sequences, `length` in longer ones; "" where
    # the work stays.
    weak: str = ""
    price: float | None = None  # Dollars for a device for an hour; None if not given.
    # Numbers of nodes or ranks, in words, that have no row since the comparison was ended early.
    missing: Sequence[str] = ()

    @property
    def complete(self) -> bool:
        """Whether all that was asked for was looked at."""
        return not self.missing and not any(row.without for row in self.rows)

    def speed_up(self, row: Scale) -> float:
        """Return how much more work is done in a second than in the first row."""
        first = self.rows[0]
        work = row.size / first.size if self.weak else 1.0
        return work * first.makespan_s / row.makespan_s

    def efficiency(self, row: Scale) -> float:
        """Return the speed-up over the growth of the devices."""
        return self.speed_up(row) * self.rows[0].devices / row.devices

    def device_seconds(self, row: Scale) -> float:
        """Return the seconds of all devices together, the quantity one pays for."""
        return row.makespan_s * row.devices

    def dollars(self, row: Scale) -> float:
        """Return the price of one run; 0 without a price."""
        return self.device_seconds(row) / 3600 * (self.price or 0.0)

    @property
    def grows(self) -> str:
        """The size that grows with the ranks, in words; empty where the work stays."""
        if self.weak == "length":
            return "sequences grow longer with the ranks"
        lengths = {row.size // row.sequences for row in self.rows}
        if self.weak == "tokens" and len(lengths) == 1 and any(row.sequences > 1 for row in self.rows):
            return f"sequences of {lengths.pop()} tokens grow in number with the ranks"
        return f"{self.weak} grows with the ranks" if self.weak else ""

    @property
    def verdict(self) -> str:
        """The fastest and the cheapest number, in a sentence or two; empty of one number."""
        if len(self.rows) < 2:
            return ""
        fastest = min(self.rows, key=lambda row: row.makespan_s)
        cheapest = min(self.rows, key=self.device_seconds)
        sentences, so_far = [], "" if self.complete else " so far"
        if self.weak:
            last = self.rows[-1]
            keep = "keep" if last.count > 1 else "keeps"
            share = percent(self.efficiency(last))
            kept = "tokens per GPU and second; attention takes longer for each token of longer sequences"
            kept = kept if self.weak == "length" else "the efficiency"
            sentences.append(f"{self._number(last)} {keep} {share} of {kept}.")
        else:
            times = "" if fastest is self.rows[0] else f", {self.speed_up(fastest):.2f}x the first"
            sentences.append(f"Fastest{so_far}: {self._number(fastest)}{times}.")
            more = f"{self.device_seconds(fastest) / self.device_seconds(cheapest):.2f}x"
            if more != "1.00x":
                sentences.append(
                    f"Cheapest{so_far}: {self._number(cheapest)}; the fastest takes {more} its device time."
                )
        # Never empty: the first row has efficiency 1 by definition.
        enough = [row for row in self.rows if self.efficiency(row) >= WORTH]
        if len(enough) < len(self.rows):
            sentences.append(f"Efficiency is {percent(WORTH)} or more up to {self._number(enough[-1])}.")
        return " ".join(sentences)

    @property
    def left_out(self) -> str:
        """The numbers and parts left out, in a sentence; empty if none."""
        parts = [f"{self._number(x)} without {', '.join(x.without)}" for x in self.rows if x.without]
        parts += [f"{', '.join(self.missing)} not simulated"] if self.missing else []
        return f"Ended early: {'; '.join(parts)}." if parts else ""

    def _number(self, row: Scale) -> str:
        return in_words(row.count, row.nodes is not None)

    def in_words(self) -> list[list[str]]:
        """Return the table as texts: its headings, then a row for each number.

        >>> rows = [Scale(8, 8, "row", 4e-3, 2**30, nodes=1), Scale(16, 16, "row", 2.5e-3, 2**29, nodes=2)]
        >>> for line in Scaling("dgx-h100x4", "mlp", rows).in_words(): print(*line, sep="  ")
        nodes  ranks  makespan  speed-up  efficiency  GPU-s  memory  best
        1  8  4.00 ms  1.00  100 %  0.032  1.0 GiB  row
        2  16  2.50 ms  1.60  80 %  0.04  512.0 MiB  row
        """
        nodes, gaps = (any(getattr(row, x) for row in self.rows) for x in ("nodes", "gap"))
        several = bool(self.weak) and any(row.sequences > 1 for row in self.rows)
        columns: list[tuple[str, bool, Callable[[Scale], str]]] = [
            ("nodes", nodes, lambda row: str(row.nodes)),
            ("ranks", True, lambda row: str(row.ranks)),
            ("tokens" if self.weak == "length" else self.weak, bool(self.weak), lambda row: str(row.size)),
            ("sequences", several, lambda row: str(row.sequences)),
            ("makespan", True, lambda row: format_seconds(row.makespan_s)),
            ("speed-up", True, lambda row: f"{self.speed_up(row):.2f}"),
            ("efficiency", True, lambda row: percent(self.efficiency(row))),
            ("GPU-s", True, lambda row: f"{self.device_seconds(row):.3g}"),
            ("$/million", bool(self.price), lambda row: f"{1e6 * self.dollars(row):,.2f}"),
            ("memory", True, lambda row: format_bytes(row.memory_bytes)),
            ("gap", gaps, lambda row: f"{100 * row.gap:.2g} %" if row.gap else ""),
            ("best", True, lambda row: row.chosen),
        ]
        shown = [(head, text) for head, is_shown, text in columns if is_shown]
        return [[head for head, _ in shown], *([text(row) for _, text in shown] for row in self.rows)]

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as plain values, with speed-up, efficiency and cost."""
        more = {"speed_up": self.speed_up, "efficiency": self.efficiency, "gpu_seconds": self.device_seconds}
        if self.price is not None:
            more["dollars"] = self.dollars
        return [
            {x: y for x, y in vars(row).items() if x != "without" or y}
            | {name: figure(row) for name, figure in more.items()}
            for row in self.rows
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return all as plain values."""
        named = ("words", "machine", "weak", "price", "verdict")
        early = {} if self.complete else {"complete": False, "missing": list(self.missing)}
        return {name: getattr(self, name) for name in named} | early | {"rows": self.records()}

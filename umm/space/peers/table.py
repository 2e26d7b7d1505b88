"""What a comparison with peers found: rows, refusals, and what to do about it."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from umm.machines import Machine
from umm.notebook.shown import Shown
from umm.problem import Problem
from umm.space.choice import Choice
from umm.space.peers.choose import chosen, in_words
from umm.space.peers.contender import Row, performed
from umm.space.peers.crossover import Stretch
from umm.traces.trace import Trace
from umm.units import format_seconds

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Crossover:
    """Where what to do changes.

    Attributes:
        m: The first m at which it is another thing.
        below: What to do below, in words.
        above: What to do from there on.
    """

    m: int
    below: str
    above: str


@dataclass(frozen=True)
class Peers(Shown):
    """Ways to multiply beside each other, from one start, on one machine, within one budget.

    Attributes:
        start: The problem; its layouts are where A and B lie before and C shall lie after.
        machine: The machine.
        limit: Bytes a rank may hold.
        rows: The universal algorithm in place first; then the others, those that fit first, fastest first.
        refused: By name, why an algorithm cannot serve, and what would work.
        anywhere: The best point of the whole space if operands may lie as they like; None if none fits.
        stretches: What to do at other m.
    """

    start: Problem
    machine: Machine
    limit: int
    rows: list[Row]
    refused: Mapping[str, str]
    anywhere: Choice | None
    stretches: list[Stretch]

    def to_frame(self) -> "pd.DataFrame":
        """Return the rows as a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame([row.to_dict() for row in self.rows])

    @property
    def best(self) -> Row:
        """The row to take: in place unless another that fits is worth it."""
        taken = chosen([row.timed for row in self.rows], self.start)
        return next(row for row in self.rows if row.contender is taken)

    @property
    def crossover(self) -> Crossover | None:
        """Where what to do changes, the nearest to this m; None if it does not."""
        m = self.start.m
        changes = [
            Crossover(after.start, before.way, after.way) for before, after in pairwise(self.stretches)
        ]
        return min(changes, key=lambda x: max(x.m / m, m / x.m), default=None)

    @property
    def verdict(self) -> str:
        """What to do here, what it is worth, and where that changes."""
        stay, best = self.rows[0], self.best
        said = f"{_sentence(in_words(best.contender, self.start))}: {format_seconds(best.makespan_s)}"
        others = [row for row in self.rows[1:] if row.fits]
        if best is not stay:
            share = 100 * (1 - best.makespan_s / stay.makespan_s)
            said += (
                f", {share:.0f} % less than in place" if stay.fits else "; in place does not fit the budget"
            )
        elif others:
            nearest = min(others, key=lambda row: row.makespan_s)
            seconds = format_seconds(nearest.makespan_s)
            small = nearest.makespan_s < stay.makespan_s
            said += f"; {nearest.algorithm} takes {seconds}" + (", too little to gain" if small else "")
        return f"{said}. {self._elsewhere()}".strip()

    def __repr__(self) -> str:
        return f"Peers({self.verdict})"

    def traces(self) -> list[tuple[Row, Trace]]:
        """Return the simulated trace of every row."""
        return [(row, performed(row.contender, self.start, self.machine)) for row in self.rows]

    def _elsewhere(self) -> str:
        """Return where what to do changes, in a sentence; empty if other m were not looked at."""
        if not self.stretches:
            return ""
        first, *others = self.stretches
        last = self.stretches[-1]
        if not others:
            return f"The same holds from m = {first.start} to m = {last.stop}."
        said = [f"{_sentence(first.way)} wins below m = {first.stop}"]
        said += [f"from there {x.way}" if x is others[0] else f"from m = {x.start} {x.way}" for x in others]
        return f"{'; '.join(said)} (m = {first.start} to {last.stop})."


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]

"""What a comparison with peers found: rows, refusals, and what to do about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from umm.executor import run
from umm.machines import Machine
from umm.notebook import Shown
from umm.space.choice import Choice
from umm.space.peers.contender import Row, chosen
from umm.space.peers.crossover import Stretch
from umm.space.peers.multiplies import STAY
from umm.space.search.uncertainty import TOLERANCE
from umm.traces.trace import Trace
from umm.units import format_seconds

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Crossover:
    """Where what to do changes.

    Attributes:
        at: The first size at which it is another thing.
        below: What to do below, in words.
        above: What to do from there on.
    """

    at: int
    below: str
    above: str


@dataclass(frozen=True)
class Peers(Shown):
    """Ways to compute a program beside each other, from one start, on one machine, within one budget.

    Attributes:
        start: The program; of a problem the layouts are where A and B start and C ends.
        ranks: Ranks that share the work.
        machine: The machine.
        limit: Bytes a rank may hold.
        rows: First of a multiply the universal algorithm in place, of several statements the best layouts;
            then the others, those that fit first, fastest first.
        refused: By name, why an algorithm cannot compute it, and what would work.
        proven: Whether the first row is proven to be the best of its space.
        anywhere: Of a multiply the best point with free choice of layouts; None if none fits.
        stretches: What to do at other sizes.
        size: What of the program varies there: ``m`` or ``tokens``.
        complete: Whether nothing is missing; False if the comparison was ended early.
    """

    start: Any
    ranks: int
    machine: Machine
    limit: int
    rows: list[Row]
    refused: Mapping[str, str]
    proven: bool
    anywhere: Choice | None
    stretches: list[Stretch]
    size: str
    complete: bool = True

    def record(self, row: Row) -> dict[str, Any]:
        """Return a row as plain values; of a multiply its layouts are a, b and c."""
        found = row.figures()
        if self.size != "m":
            del found["own_s"], found["how"]
            return found | {"layouts": dict(row.layouts)}
        name = {"algorithm": found.pop("algorithm")}
        return name | {x.lower(): text for x, text in row.layouts.items()} | found

    def to_frame(self) -> "pd.DataFrame":
        """Return the rows as a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame([self.record(row) for row in self.rows])

    @property
    def best(self) -> Row:
        """The row to take: in place unless another that fits is worth it; of a tie the least memory."""
        taken = self._fastest
        return taken if self._stays(taken) else min(self.tied, key=lambda x: (x.memory_bytes, x.bytes))

    @property
    def tied(self) -> list[Row]:
        """The rows that fit and are as fast as the one to take, itself included, but for the tolerance."""
        taken = self._fastest
        most = taken.makespan_s * (1 + TOLERANCE)
        return [row for row in self.rows if row is taken or (row.fits and row.makespan_s <= most)]

    @property
    def _fastest(self) -> Row:
        taken = chosen([row.timed for row in self.rows], self.start)
        return next(row for row in self.rows if row.contender is taken)

    def _stays(self, row: Row) -> bool:
        """Whether a row leaves operands in place, which a tie is no reason to give up."""
        return row is self.rows[0] and row.contender.in_words(self.start) == STAY

    @property
    def crossover(self) -> Crossover | None:
        """Where what to do changes first, or of a multiply the nearest to its m; None if it does not."""
        changes = [
            Crossover(after.start, before.way, after.way) for before, after in pairwise(self.stretches)
        ]
        if self.size != "m":
            return changes[0] if changes else None
        m = self.start.m
        return min(changes, key=lambda x: max(x.at / m, m / x.at), default=None)

    @property
    def verdict(self) -> str:
        """What to do here, what it is worth, and where that changes."""
        first, best = self.rows[0], self.best
        words = best.contender.in_words(self.start)
        said = f"{_sentence(words) if self.size == 'm' else words}: {format_seconds(best.makespan_s)}"
        stays = first.contender.in_words(self.start) == STAY
        nearest = min(
            (row for row in self.rows if row.fits and row is not best),
            key=lambda row: row.makespan_s,
            default=None,
        )
        if stays and best is not first:
            saved = f", {_saved(best, first)} less than in place"
            said += saved if first.fits else "; in place does not fit the budget"
        elif stays and nearest is not None:
            small = nearest.makespan_s < first.makespan_s
            seconds = format_seconds(nearest.makespan_s)
            said += f"; {nearest.algorithm} takes {seconds}" + (", too little to gain" if small else "")
        elif len(self.tied) > 1:
            said += f"; {_tie(self.tied, best)}"
        elif nearest is not None and nearest.makespan_s < best.makespan_s:
            said += f"; {nearest.algorithm} takes {format_seconds(nearest.makespan_s)}, too little to gain"
        elif nearest is not None:
            said += f", {_saved(best, nearest)} less than {nearest.algorithm}, the next"
        return f"{said}. {self._elsewhere()}".strip()

    def __repr__(self) -> str:
        return f"Peers({self.verdict})"

    def traces(self) -> list[tuple[Row, Trace]]:
        """Return the simulated trace of every row."""
        return [(row, run(row.contender.schedule(self.start, self.machine))) for row in self.rows]

    def _elsewhere(self) -> str:
        """Return where what to do changes, in a sentence; empty if other sizes were not looked at."""
        if not self.stretches:
            return ""
        first, *others = self.stretches
        last = self.stretches[-1]
        if self.size != "m":
            if not others:
                return f"The same holds from {first.start} to {first.stop} tokens."
            ways = [f"{first.way} wins below {first.stop} tokens"]
            return f"{'; '.join(ways + [f'from {x.start} {x.way}' for x in others])}."
        if not others:
            return f"The same holds from m = {first.start} to m = {last.stop}."
        said = [f"{_sentence(first.way)} wins below m = {first.stop}"]
        said += [f"from there {x.way}" if x is others[0] else f"from m = {x.start} {x.way}" for x in others]
        return f"{'; '.join(said)} (m = {first.start} to {last.stop})."


def _tie(tied: Sequence[Row], best: Row) -> str:
    """Return who ties, and why one of them is the one to take."""
    *others, last = (row.algorithm for row in tied)
    said = f"{', '.join(others)} and {last} tie"
    rest = [row for row in tied if row is not best]
    if all(row.memory_bytes > best.memory_bytes for row in rest):
        return f"{said}; {best.algorithm} needs the least memory"
    rest = [row for row in rest if row.memory_bytes == best.memory_bytes]
    if all(row.bytes > best.bytes for row in rest):
        return f"{said}; {best.algorithm} moves the fewest bytes"
    return said


def _saved(best: Row, other: Row) -> str:
    return f"{100 * (1 - best.makespan_s / other.makespan_s):.0f} %"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]

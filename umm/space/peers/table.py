"""The result of a comparison with peers, and the sizes at which another contender becomes the fastest."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from umm.errors import LayoutError, ProblemError
from umm.executor import executor, run
from umm.machines import Machine
from umm.notebook import Shown
from umm.program.problem import Problem
from umm.space.bounds.closed_form import least_seconds
from umm.space.budget import limit_of
from umm.space.choice import Choice
from umm.space.peers import multiplies
from umm.space.peers.contender import MARGIN, Contender, Row, Scheme, Stack, Timed, chosen
from umm.space.peers.multiplies import PDGEMM
from umm.space.search.search import Report
from umm.space.search.uncertainty import TOLERANCE, Starts, assumed_starts
from umm.space.vary import borders
from umm.traces.trace import Trace
from umm.units import format_bytes, format_seconds, percent

if TYPE_CHECKING:
    import pandas as pd

MAX_STRETCH = 8  # the largest size asked about, as a multiple of the current one, and one over the smallest
EXACT = 16  # how exactly the size is found where it changes: to one part in so many, or in half as many


@dataclass(frozen=True)
class Stretch:
    """A range of sizes with one way to take."""

    start: int  # where it begins; of the first, the smallest size asked about
    stop: int  # where the next begins; of the last, the largest size asked about
    way: str  # which way, in words


def stretches(size: int, way_at: Callable[[int], str]) -> list[Stretch]:
    """Return the way to take for every size around one, neighbours with different ways.

    Asked are powers of two times the size; between two with different ways, halves of what is between, until
    where it changes is known to a round number. What comes and goes between two that are alike is not seen.

    Args:
        way_at: Returns the way to take at a size.

    >>> stretches(8192, lambda m: "in place" if m < 3000 else "gather A")
    [Stretch(start=1024, stop=3072, way='in place'), Stretch(start=3072, stop=65536, way='gather A')]
    """
    # Neighbouring intervals share their ends, and each size costs simulations.
    way_at = cache(way_at)
    steps = MAX_STRETCH.bit_length() - 1
    sizes = sorted({max(1, size * 2**i // MAX_STRETCH) for i in range(2 * steps + 1)})

    def between(low: int, high: int) -> int | None:
        # Multiples of a power of two: a round number says as much, in fewer simulations.
        unit = 2 ** max(0, (low // EXACT).bit_length() - 1)
        middle = (low + high) // 2 // unit * unit
        return middle if low < middle < high and high - low > unit else None

    starts = [sizes[0], *(x for pair in pairwise(sizes) for x in borders(*pair, way_at, between))]
    stops = [*starts[1:], sizes[-1]]
    return [Stretch(start, stop, way_at(start)) for start, stop in zip(starts, stops, strict=True)]


RIVAL = 1.25  # asked about at all m is who takes at most so many times the best at this one or at an end


class Around:
    """The best action at other m than the current one.

    Args:
        start: The problem, and where its operands are.
        memory: Budget a rank.
    """

    def __init__(self, start: Problem, machine: Machine, memory: str | int | None, report: Report) -> None:
        self.start, self.machine, self.memory, self.report = start, machine, memory, report
        self.others: list[Contender] = []
        self._stays: dict[int, Timed | Row] = {}
        self._between: Collection[tuple[str, str]] = multiplies.BETWEEN_NODES
        self._rivals: set[tuple[str, str]] = set()
        self._known: dict[tuple[int, int], Timed | Row] = {}

    def stretches(self, rows: list[Row]) -> list[Stretch]:
        """Return the best action at all m around; empty if the layouts are for this one alone."""
        # Layouts to move operands to are searched for at the ends; in between those are tried, and those of
        # the current m. So are ways to multiply in place between nodes that are nearly as fast as the best
        # one at an end.
        m, here = self.start.m, list[Timed | Row](rows)
        self.preferred = chosen(here, self.start).in_words(self.start)
        self.others = [x.contender for x in here[1:]]
        self._known = {(id(x.contender), m): x for x in here}
        if isinstance(stay := here[0].contender, multiplies.Way) and stay.name == multiplies.IN_PLACE:
            self._stays[m] = here[0]
            self._rivals.add(_pair(stay))
        try:
            # Layouts are searched at both ends alone: in between, what won there or here is only timed.
            for end in (max(1, m // MAX_STRETCH), m * MAX_STRETCH):
                if self._is_open(end):
                    start = replace(self.start, m=end)
                    report = partial(self.report, f"where the verdict changes, m = {end}: redistribute")
                    moved = multiplies.redistributed(start, self.machine, self.memory, report)
                    self.others += [moved] if moved else []
            self._between = [x for x in multiplies.BETWEEN_NODES if x in self._rivals]
            looked_at = [here, *(self._timed(x) for x in (max(1, m // MAX_STRETCH), m * MAX_STRETCH))]
            best = [RIVAL * min(x.makespan_s for x in timed) for timed in looked_at]
            pairs = zip(looked_at, best, strict=True)
            rivals = {id(x.contender) for timed, most in pairs for x in timed if x.makespan_s <= most}
            self.others = [x for x in self.others if id(x) in rivals]
            return stretches(m, self.way_at)
        except LayoutError:
            return []

    def way_at(self, m: int) -> str:
        """Return the best action at an m, in words."""
        timed, start = self._timed(m), replace(self.start, m=m)
        return chosen(timed, start, self.preferred).in_words(start)

    def _timed(self, m: int) -> list[Timed | Row]:
        """Return how long contenders take at an m; in place alone if nothing could be worth more."""
        times = [self._in_place(m)]
        if not self._is_open(m):
            return times
        start = replace(self.start, m=m)
        for number, x in enumerate(self.others):
            self.report(f"where the verdict changes, m = {m}: {x.name}", number, len(self.others))
            with suppress(ProblemError):  # what it needs may depend on m
                if (id(x), m) not in self._known:
                    self._known[id(x), m] = self._simulated(x, start)
                times.append(self._known[id(x), m])
        return times

    def _simulated(self, contender: Contender, start: Problem) -> Timed:
        made = contender.schedule(start, self.machine)
        limit = limit_of(self.memory, start.unreplicated_share, self.machine, start.p)
        return Timed(contender, executor("sim").makespan(made), int(made.memory_bytes.max()) <= limit)

    def _in_place(self, m: int) -> Timed | Row:
        if m not in self._stays:
            start = replace(self.start, m=m)
            report = partial(self.report, f"where the verdict changes, m = {m}: in place")
            costs = multiplies.ways_in_place(start, self.machine, self.memory, report, self._between)
            most = RIVAL * costs[0][0][1]
            self._rivals |= {_pair(way) for (_, seconds), way in costs if seconds <= most}
            self._stays[m] = self._simulated(costs[0][1], start)
        return self._stays[m]

    def _is_open(self, m: int) -> bool:
        """Whether something could be worth more than staying in place."""
        stay, least = self._in_place(m), least_seconds(replace(self.start, m=m), self.machine)
        # Nothing beats all devices at their peak: if that gains less than the margin, no rival is simulated.
        return not stay.fits or stay.makespan_s * (1 - MARGIN) > least


def _pair(way: multiplies.Way) -> tuple[str, str]:
    """Return the stationary matrix and the movement of a way to multiply in place."""
    return str(way.options["stationary"]), str(way.options.get("movement"))


@dataclass(frozen=True)
class Crossover:
    """A size at which the best action changes."""

    at: int  # the first size of the other action
    below: str  # best action below, in words
    above: str  # best action from there on


@dataclass(frozen=True)
class Peers(Shown):
    """Ways to compute a program beside each other, from one start, on one machine, within one budget."""

    start: Any  #: the program; of a problem the layouts are where A and B start and C ends
    ranks: int  #: ranks that share the work
    machine: Machine
    limit: int  #: bytes a rank may hold
    #: First of a multiply the universal algorithm in place, of several statements the best layouts, unless it
    #: is missing; then the others, those that fit first, fastest first.
    rows: list[Row]
    #: By name, why an algorithm cannot compute it, and what would work; or what a rank would hold.
    refused: Mapping[str, str]
    proven: bool  #: whether the first row is proven to be the best of its space
    anywhere: Choice | None  #: of a multiply the best point with free choice of layouts; None if none fits
    stretches: list[Stretch]  #: what to do at other sizes
    size: str  #: what of the program varies there: ``m`` or ``tokens``
    complete: bool = True  #: whether nothing is missing; False if the comparison was ended early
    #: Names of the rows that are then missing, in the order in which they would have been priced.
    missing: tuple[str, ...] = ()
    #: Of a multiply the problem as it was asked; in ``start`` all blocks of a rank are one tile.
    asked: Problem | None = None
    #: The layers of a model that all times, bytes and memory are of; None for the program alone.
    stack: Stack | None = None

    def record(self, row: Row) -> dict[str, Any]:
        """Return a row as plain values; of a multiply its layouts are a, b and c."""
        values = row.figures()
        if self.size != "m":
            del values["own_s"], values["how"]
            return values | {"layouts": dict(row.layouts)}
        name = {"algorithm": values.pop("algorithm")}
        return name | {x.lower(): text for x, text in row.layouts.items()} | values

    def to_frame(self) -> "pd.DataFrame":
        """Return the rows as a pandas DataFrame, the ends of ranges as ``least_s`` and ``most_s``."""
        import pandas as pd

        records = [self.record(row) for row in self.rows]
        for record in records:
            record["least_s"], record["most_s"] = record.pop("makespan_range_s") or (None, None)
        return pd.DataFrame(records)

    @property
    def best(self) -> Row:
        """The row to take: in place unless another that fits is worth it; of a tie the least memory.

        Of several statements, if none fits, the one that needs the least memory; of equal ones a named one.
        """
        if self._none_fits:
            return min(self._rivals, key=lambda x: x.memory_bytes)
        taken = self._fastest
        if self._stays(taken):
            return taken
        is_nameless = self.size != "m"
        return min(self.tied, key=lambda x: (x.memory_bytes, x.bytes, is_nameless and x is self.rows[0]))

    @property
    def tied(self) -> list[Row]:
        """The rows that fit and are as fast as the one to take, itself included, except the tolerance."""
        taken = self._fastest
        most = taken.makespan_s * (1 + TOLERANCE)
        return [row for row in self._rivals if row is taken or (row.fits and row.makespan_s <= most)]

    @property
    def _rivals(self) -> list[Row]:
        """The rows, less that of the best layouts where they are a scheme's that has a row by its name."""
        scheme, others = self.rows[0].contender, self.rows[1:]
        if not isinstance(scheme, Scheme) or scheme.is_named:
            return self.rows
        return others if scheme.with_name(x.contender for x in others) is not scheme else self.rows

    @property
    def _none_fits(self) -> bool:
        """Whether no row fits, of several statements."""
        return self.size != "m" and not any(row.fits for row in self.rows)

    @property
    def _fastest(self) -> Row:
        taken = chosen(self.rows, self.start)
        return next(row for row in self.rows if row.contender is taken)

    def _stays(self, row: Row) -> bool:
        """Whether a row leaves operands in place, which a tie is no reason to give up."""
        return row is self.rows[0] and row.contender.in_words(self.start) == multiplies.STAY

    @property
    def crossover(self) -> Crossover | None:
        """The first change of the best action, or of a multiply the nearest to its m; None if none."""
        changes = [
            Crossover(after.start, before.way, after.way) for before, after in pairwise(self.stretches)
        ]
        if self.size != "m":
            return changes[0] if changes else None
        m = self.start.m
        return min(changes, key=lambda x: max(x.at / m, m / x.at), default=None)

    @property
    def verdict(self) -> str:
        """The best action here, its gain, and the sizes at which that changes."""
        first, best = self.rows[0], self.best
        if self._none_fits:
            none = "None" if self.complete else "None that was simulated"
            trained = any(x.name == "dY" for x in self.start.tensors)
            again = self.stack is not None and trained and "all" not in self.stack.recompute
            return (
                f"{none} fits {format_bytes(self.limit)} a rank: {best.title} needs the least, "
                f"{format_bytes(best.memory_bytes)}; {'--recompute all and ' * again}more --nodes need less."
            )
        words = best.contender.in_words(self.start)
        sentence = f"{_sentence(words) if self.size == 'm' else words}: {format_seconds(best.makespan_s)}"
        stays = first.contender.in_words(self.start) == multiplies.STAY
        nearest = min(
            (row for row in self._rivals if row.fits and row is not best),
            key=lambda row: row.makespan_s,
            default=None,
        )
        if stays and best is not first:
            other = first.algorithm if best.algorithm == multiplies.PGEMM else "in place"
            saved = f", {_saved(best, first)} less than {other}"
            sentence += saved if first.fits else f"; {other} does not fit the budget"
        elif stays and nearest is not None:
            small = nearest.makespan_s < first.makespan_s
            seconds = format_seconds(nearest.makespan_s)
            sentence += f"; {nearest.title} takes {seconds}" + (", too little to gain" if small else "")
        elif len(self.tied) > 1:
            sentence += f"; {_tie(self.tied, best)}"
        elif nearest is not None and nearest.makespan_s < best.makespan_s:
            sentence += f"; {nearest.title} takes {format_seconds(nearest.makespan_s)}, too little to gain"
        elif nearest is not None:
            sentence += f", {_saved(best, nearest)} less than {nearest.title}, the next"
        parts = f"{sentence}.", self._beside_pdgemm(), self._unsure(), self._elsewhere()
        return " ".join(x for x in parts if x)

    def _beside_pdgemm(self) -> str:
        """Return how long PDGEMM takes beside the row to take, in a sentence; empty if it is no row."""
        best = self.best
        now = next((row for row in self.rows if row.algorithm == PDGEMM), best)
        if now is best:
            return ""
        times = now.makespan_s / best.makespan_s
        return f"PDGEMM ({PDGEMM}) takes {format_seconds(now.makespan_s)}, {times:.2f} times as long."

    @cached_property
    def starts(self) -> Starts | None:
        """The row's need where assumed latencies are half or twice as long; None if none are assumed.

        Of many layers it is what one needs, as many times as long.
        """
        best, simulate = self.best, executor("sim").makespan
        times = best.model.times if best.model else 1.0
        lower = partial(best.contender.schedule, self.start)
        return assumed_starts(self.machine, lower, lambda made: times * simulate(made))

    def _unsure(self) -> str:
        """Return which row may be faster within the machine's uncertainties, in a sentence; empty if none."""
        best = self.best
        leads = [(best.lead(row), row) for row in self._rivals if row.fits and row is not best]
        known = [(lead, row) for lead, row in leads if lead is not None]
        # A negative lead means a corner at which the rival is faster than the row to take.
        lead, rival = min(known, key=lambda x: x[0], default=(0.0, best))
        if lead >= -TOLERANCE:
            return ""
        return (
            f"Within the machine file's uncertainties {rival.title} may be {-100 * lead:.0f} % faster "
            f"than {best.title}; measure these two to decide."
        )

    def __repr__(self) -> str:
        return f"Peers({self.verdict})"

    def traces(self) -> list[tuple[Row, Trace]]:
        """Return the simulated trace of every row."""
        return [(row, run(row.contender.schedule(self.start, self.machine))) for row in self.rows]

    def _elsewhere(self) -> str:
        """Return the sizes at which the best action changes, in a sentence; empty if none were tried."""
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
        parts = [f"{_sentence(first.way)} wins below m = {first.stop}"]
        parts += [f"from there {x.way}" if x is others[0] else f"from m = {x.start} {x.way}" for x in others]
        return f"{'; '.join(parts)} (m = {first.start} to {last.stop})."


def _tie(tied: Sequence[Row], best: Row) -> str:
    """Return who ties, and why one of them is the one to take."""
    *others, last = (row.title for row in tied)
    sentence = f"{', '.join(others)} and {last} tie"
    rest = [row for row in tied if row is not best]
    if all(row.memory_bytes > best.memory_bytes for row in rest):
        return f"{sentence}; of these {best.title} needs the least memory"
    rest = [row for row in rest if row.memory_bytes == best.memory_bytes]
    if all(row.bytes > best.bytes for row in rest):
        return f"{sentence}; of these {best.title} moves the fewest bytes"
    return sentence


def _saved(best: Row, other: Row) -> str:
    return percent(1 - best.makespan_s / other.makespan_s)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]

"""How sure predictions are: makespans at the corners of a machine's numbers, and ties within them."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from umm.machines import Machine
from umm.plans.multiply.options import Options, known
from umm.schedules.schedule import Schedule
from umm.space.choice import Choice
from umm.space.vary import Lower, Makespan, ends, ends_alone, seconds_of, starts, vary
from umm.units import format_seconds, percent, range_in_words

if TYPE_CHECKING:
    from umm.plans.steady import Steady

TOLERANCE = 0.008
"""Share by which large schedules bound by communication move when numbers change in their twelfth digit.

An order of makespans within it is no proof of anything.
"""


def makespan_range(machine: Machine, lower: Lower, makespan: Makespan, now: float) -> tuple[float, float]:
    """Return the least and the most makespan at the corners of a machine's numbers.

    Args:
        lower: Makes the schedule for a machine.
        now: The makespan on the machine as it is, in seconds.
    """
    seconds = [now, *(x for _, x in vary(seconds_of(lower, makespan), ends(machine)))]
    return min(seconds), max(seconds)


MOST_OF_RANGE = 400_000  # actions simulated for the range of one time; where they would be more it has none
MOST_OF_ALL_CORNERS = 100_000
"""Above this many the range of layers has no corners at which some numbers are fast and others slow."""


def layers_range(
    steady: "Steady", machine: Machine, alone: Lower, makespan: Makespan
) -> tuple[float, float] | None:
    """Return the range of many layers, that of one as many times as long; None where it would take long.

    Args:
        alone: Makes the schedule of one layer on a machine.
    """
    # The trace has a few layers, so its actions are divided by their number to get those of one.
    actions = len(steady.trace.schedule) // steady.depths[-1]
    corners = ends(machine)
    if actions * len(corners) > MOST_OF_RANGE:
        return None
    # All numbers fast, and all slow, come first: times are at their ends there, except anomalies of lists
    # (Graham 1969). Lowering a mixture on 128 ranks four times took more than half of its answer.
    few = corners[:2] if actions * len(corners) > MOST_OF_ALL_CORNERS else corners
    takes = [steady.makespan_s, *(steady.times * x for _, x in vary(seconds_of(alone, makespan), few))]
    return min(takes), max(takes)


class Starts(NamedTuple):
    """Assumed starts of messages and kernels, and how far they move a makespan."""

    keys: tuple[str, ...]  # the assumed numbers
    range_s: tuple[float, float]  # the makespan with all of them at half and at twice what they are

    def in_words(self, now: float) -> str:
        """Return a sentence, given the makespan as it is; empty where it moves by less than a twentieth."""
        # Latencies that a large problem hides are not worth a warning.
        if self.range_s[1] <= 1.05 * now:
            return ""
        are, them = ("are", "them") if len(self.keys) > 1 else ("is", "it")
        return (
            f"{', '.join(self.keys)} {are} assumed: at half to twice {them} this takes "
            f"{range_in_words(now, self.range_s)} in place of {format_seconds(now)}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"numbers": list(self.keys), "makespan_range_s": list(self.range_s)}


def assumed_starts(machine: Machine, lower: Lower, makespan: Makespan) -> Starts | None:
    """Return the range of a schedule with half and twice the assumed starts; None if none is assumed."""
    keys, changes = starts(machine)
    seconds = [x for _, x in vary(seconds_of(lower, makespan), changes)]
    return Starts(keys, (min(seconds), max(seconds))) if seconds else None


WIDE = 0.3  # width of a range, as a share of the makespan, above which it decides little
MOST_ACTIONS = 3_000
"""Of a schedule whose widest number is sought: it is made and simulated at both ends of some 16 numbers."""


class Widest(NamedTuple):
    """The number of a machine whose range makes a makespan's range wide."""

    key: str  # its name in the file, or that of a table
    range_s: tuple[float, float]  # the makespan with that number alone at its ends

    def in_words(self, now: float) -> str:
        """Return advice on the number to measure next, given the makespan."""
        return (
            f"The range is wide, most of it by {self.key} ({range_in_words(now, self.range_s)} by that "
            "alone): measure that next, on a quiet host."
        )


def unused(schedule: Schedule) -> tuple[str, ...]:
    """Return the keys of a machine file that a schedule does not depend on; not all of them.

    One multiply whose operands start in place, that is one-sided and does not sum replicas of C needs no
    collective, and no kernel but those of its own multiplies.
    """
    if schedule.program.kind != "problem" or "policy" not in schedule.options or schedule.problem.given:
        return ()
    one_sided = Options(**{x.name: schedule.options[x.name] for x in known()}).one_sided
    return OF_OTHERS if one_sided and schedule.problem.layout("C").replicas == 1 else ()


OF_OTHERS = ("attention", "grouped", "means", "direct_start", "library")
"""Keys of what collectives, fused attention and grouped multiplies take."""


def widest(
    machine: Machine, lower: Lower, makespan: Makespan, without: Collection[str] = ()
) -> Widest | None:
    """Return the number to measure next, whose range moves the makespan most; None if none has a range.

    Args:
        lower: Makes the schedule for a machine.
        without: Keys that do not matter to the schedule.
    """
    # Changes of one number follow each other under one name: both ends are paired here.
    seconds: dict[str, list[float]] = {}
    for change, takes in vary(seconds_of(lower, makespan), ends_alone(machine, without)):
        seconds.setdefault(change.name, []).append(takes)
    ranges = (Widest(name, (min(both), max(both))) for name, both in seconds.items())
    return max(ranges, key=lambda x: x.range_s[1] - x.range_s[0], default=None)


class Sure:
    """Makespans of points at the corners of a machine's numbers, each simulated once."""

    def __init__(self, machine: Machine, makespan: Makespan) -> None:
        self._ends, self._makespan = ends(machine), makespan
        self.spread = machine.spread
        self._seconds: dict[Choice, list[float]] = {}

    @property
    def corners(self) -> int:
        """How many schedules a point costs."""
        return len(self._ends)

    def seconds(self, choice: Choice) -> list[float]:
        """Return the makespan of a point as the machine is and at each of its corners."""
        if choice not in self._seconds:
            varied = vary(seconds_of(choice.schedule, self._makespan), self._ends)
            self._seconds[choice] = [choice.makespan_s, *(choice.times * x for _, x in varied)]
        return self._seconds[choice]

    def range(self, choice: Choice) -> tuple[float, float]:
        """Return the least and the most makespan of a point, in seconds."""
        return min(self.seconds(choice)), max(self.seconds(choice))

    def lead(self, first: Choice, other: Choice) -> float:
        """Return how much longer the other takes than the first, as a share, where that is least."""
        # Both are compared at the same corner: a number they share moves both.
        # Ranges of two points overlap far more often than the points
        # change places, as most numbers move both.
        pairs = zip(self.seconds(first), self.seconds(other), strict=True)
        return min(theirs / ours for ours, theirs in pairs) - 1

    def tie(self, first: Choice, other: Choice) -> bool:
        """Return whether at some corner the other is as fast as the first, within the tolerance."""
        return self.lead(first, other) <= TOLERANCE


def ties(sure: Sure, rows: Sequence[Choice]) -> str:
    """Return the rows that tie with the fastest, and the measurement that would decide, in words.

    On a machine whose file states how much runs of one schedule differ, also which rows differ by less.
    """
    fastest = min(rows, key=lambda x: x.makespan_s)
    alike = _alike(sure.spread, rows, fastest)
    numbers = {number: x for number, x in enumerate(rows, 1) if sure.tie(fastest, x)}
    if len(numbers) == 1:
        (number,) = numbers
        return f"Row {number} is fastest anywhere within the machine file's uncertainties.{alike}"
    tied = _in_a_row(list(numbers))
    rival = min(numbers, key=lambda number: sure.lead(fastest, numbers[number]))
    first = next(number for number, x in numbers.items() if x == fastest)
    # A negative lead: there is a corner of the ranges at which the rival wins by more than the tolerance.
    lead = sure.lead(fastest, numbers[rival])
    if lead < -TOLERANCE:
        return (
            f"{tied} tie: within the machine file's uncertainties {rival} may be {-100 * lead:.0f} % faster "
            f"than {first}; measure these two to decide.{alike}"
        )
    least = min(numbers, key=lambda number: numbers[number].memory_bytes)
    return (
        f"{tied} tie, within {100 * TOLERANCE:.1g} % anywhere in the machine file's uncertainties; "
        f"{least} needs the least memory.{alike}"
    )


def _alike(spread: float, rows: Sequence[Choice], fastest: Choice) -> str:
    """Return a sentence on rows that differ from the fastest by less than a host's runs differ."""
    near = {
        number: x for number, x in enumerate(rows, 1) if x.makespan_s <= fastest.makespan_s * (1 + spread)
    }
    if not spread or len(near) < 2:
        return ""
    least = min(near, key=lambda number: near[number].memory_bytes)
    which = "the rows" if len(near) == len(rows) else f"rows {_in_a_row(list(near))}"
    return (
        f" Runs of one schedule spread by {percent(spread, 1)} on this host, more than {which} differ: "
        f"one run each does not order them; {least} needs the least memory."
    )


def _in_a_row(numbers: Sequence[int]) -> str:
    """Return ascending numbers in words.

    >>> _in_a_row([1, 2, 3]), _in_a_row([1, 3, 4])
    ('1 to 3', '1, 3 and 4')
    """
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]} to {numbers[-1]}"
    *others, last = map(str, numbers)
    return f"{', '.join(others)} and {last}"

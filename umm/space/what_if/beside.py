"""Companions of a prediction: its range, a better point, the assumption that decides."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from umm.space.budget import usual_limit
from umm.space.choice import Choice
from umm.traces.trace import Trace
from umm.units import format_bytes, format_seconds, range_in_words

if TYPE_CHECKING:
    from umm.space.search.noise import Noise
    from umm.space.search.robustness import Spread
    from umm.space.search.uncertainty import Widest

MOST_ACTIONS = 20_000
"""No advice is given where finding it would take longer than an answer should: above this many actions."""

LEAST = 0.01  # a smaller share of the makespan or of the memory is not worth a change


@dataclass(frozen=True)
class Advice:
    """Layouts and choices that make a problem faster, or take less memory for the same time."""

    choice: Choice  # the better point
    saving: float  # share of the makespan that goes away
    extra_bytes: int  # further bytes of the fullest rank; negative if it holds less

    def __str__(self) -> str:
        figures = f"{100 * self.saving:.0f}" if self.saving < 0.99 else f"{100 * self.saving:.4g}"
        gain = "the same time" if self.saving < LEAST else f"{figures} % less time"
        more = f"{format_bytes(abs(self.extra_bytes))} {'more' if self.extra_bytes > 0 else 'less'}"
        more = more if self.extra_bytes else "the same memory"
        return f"search finds {gain} with {more}: {self.choice.words}, {self.choice.way}"

    def to_dict(self) -> dict[str, Any]:
        """Return the point and its saving as plain values."""
        return self.choice.to_dict() | {"saving": self.saving, "extra_bytes": self.extra_bytes}


class Decides(NamedTuple):
    """An assumed number by which another schedule becomes the fastest."""

    key: str  # the number's name in the machine file
    value: str  # its assumed value
    then: str  # the value that turns the order round: `half of it`, `twice that`, or an end of its range
    wins: str  # the fastest schedule then
    over: str  # the fastest now
    saving: float  # share of the makespan by which it is ahead

    def __str__(self) -> str:
        return (
            f"{self.key} = {self.value} is assumed; at {self.then} {self.wins} wins over "
            f"{self.over}, by {100 * self.saving:.2g} %."
        )


@dataclass(frozen=True)
class Beside:
    """The certainty of a prediction, and better points."""

    # The least and the most makespan within the ranges of the machine's numbers, if that is known.
    ends: tuple[float, float] | None = None
    advice: Advice | None = None  # a better point, if there is one
    assumed: Decides | None = None  # the assumed number that decides, if one does
    room: int | None = None  # bytes a rank has of its device's memory, if that is known
    noise: "Noise | None" = None  # how runs differ from the prediction, if that was asked for
    spread: "Spread | None" = None  # then the median and p95 of the makespan
    widest: "Widest | None" = None  # the number to measure next, if the range is wide
    left_out: bool = False  # whether advice is left out, since its search would take long

    def verdict(self, trace: Trace) -> str:
        """Return the sentence of a trace, with the advice if there is any."""
        verdict = trace.verdict
        return f"{verdict.removesuffix('.')}; {self.advice}." if self.advice else verdict

    def within(self, trace: Trace) -> str:
        """Return the range of the makespan in words; empty if there is none, or none that is seen."""
        within = range_in_words(trace.makespan_s, self.ends) if self.ends else ""
        low, _, high = within.partition(" to ")
        return within if low != high else ""

    def page(self, trace: Trace) -> str:
        """Return a page's verdict: with the range of the makespan and the assumed number that decides."""
        within = self.within(trace)
        unit = format_seconds(trace.makespan_s).partition(" ")[2]
        parts = [
            self.verdict(trace),
            f"{within} {unit} within the ranges of the machine's numbers." if within else "",
            str(self.assumed or ""),
        ]
        return " ".join(part for part in parts if part)

    def to_dict(self, trace: Trace) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "makespan_range_s": None if self.ends is None else list(self.ends),
            "verdict": self.verdict(trace),
            "advice": None if self.advice is None else self.advice.to_dict(),
            "assumed": None if self.assumed is None else str(self.assumed),
            "fits_memory": None if self.room is None else trace.memory_bytes <= usual_limit(self.room),
            "measure_next": None if self.widest is None else self.widest._asdict(),
            **({"advice_left_out": True} if self.left_out else {}),
            **({"noise": self.noise.to_dict()} if self.noise else {}),
            **(self.spread._asdict() if self.spread else {}),
        }

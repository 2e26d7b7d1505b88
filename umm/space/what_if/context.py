"""What is known of a prediction beside its trace: how sure it is, what would be better, what fits."""

from dataclasses import dataclass
from typing import Any

from umm.space.what_if.advice import Advice
from umm.space.what_if.assumptions import Decides
from umm.traces.trace import Trace
from umm.units import format_seconds, range_in_words


@dataclass(frozen=True)
class Beside:
    """What is known of a prediction beside its trace.

    Attributes:
        ends: The least and the most makespan within the ranges of the machine's numbers, if that is known.
        advice: What would be better, if anything is.
        assumed: The assumed number that decides, if one does.
        room: Bytes a rank has of its device's memory, if that is known.
    """

    ends: tuple[float, float] | None = None
    advice: Advice | None = None
    assumed: Decides | None = None
    room: int | None = None

    def verdict(self, trace: Trace) -> str:
        """Return the sentence of a trace, with what would be better if anything is."""
        own = trace.verdict
        return f"{own.removesuffix('.')}; {self.advice}." if self.advice else own

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
            "fits_memory": None if self.room is None else trace.memory_bytes <= self.room,
        }

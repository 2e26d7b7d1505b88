"""An executor's report: when each action of a schedule ran, and the resulting arrays."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from umm.notebook import Shown
from umm.traces.bottleneck import bottleneck, verdict
from umm.traces.breakdown import Breakdown, breakdown
from umm.traces.traffic import Spans, bytes_by_kind
from umm.units import format_seconds

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Trace(Spans, Shown):
    """The spans of a schedule, their analyses, and the results.

    Attributes:
        results: The outputs as whole arrays by name, such as C; empty where nothing was multiplied.
    """

    results: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Trace({self.source}, {format_seconds(self.makespan_s)}: {self.schedule!r})"

    @property
    def result(self) -> NDArray[Any] | None:
        """The first output, C of a multiply; None where nothing was multiplied."""
        return next(iter(self.results.values()), None)

    @property
    def fraction_of_peak(self) -> float:
        """Useful flop per second over the peak of the devices used; nan if the peak is unknown."""
        could = self.makespan_s * self.schedule.peak
        return self.schedule.program.flop / could if could > 0 else float("nan")

    def breakdown(self) -> Breakdown:
        """Return for each rank its seconds of compute, reduce, exposed communication and idleness."""
        return breakdown(self)

    @property
    def get_bytes(self) -> int:
        """Payload bytes that all ranks together get from each other."""
        return bytes_by_kind(self.schedule)["get"]

    @property
    def put_bytes(self) -> int:
        """Payload bytes that all ranks together put into each other's tiles."""
        return bytes_by_kind(self.schedule)["put"]

    @property
    def accumulate_bytes(self) -> int:
        """Payload bytes that all ranks together accumulate into each other's tiles."""
        return bytes_by_kind(self.schedule)["accumulate"]

    @property
    def reduce_bytes(self) -> int:
        """Payload bytes that the replicas of C add to their origin."""
        return bytes_by_kind(self.schedule)["reduce"]

    @property
    def memory_bytes(self) -> int:
        """Bytes the fullest rank allocates: its tiles of all tensors, and its pool."""
        return int(self.schedule.memory_bytes.max())

    @property
    def pool_bytes(self) -> int:
        """Bytes of the largest pool of a rank."""
        return int(self.schedule.pool_bytes.max())

    @property
    def bound_by(self) -> str:
        """The resource most of the critical path waits for: ``arithmetic`` or ``accumulate on g3→g5``."""
        return str(bottleneck(self))

    @property
    def verdict(self) -> str:
        """One sentence: the bottleneck, and how much of the communication is overlapped."""
        return verdict(self)

    def to_frame(self) -> "pd.DataFrame":
        """Return a row per action; the columns are those of :func:`umm.traces.perfetto.action_frame`."""
        from umm.traces.perfetto import action_frame

        return action_frame(self)

    def to_perfetto(self, path: str | Path) -> None:
        """Write the trace for ui.perfetto.dev; see :func:`umm.traces.perfetto.write_perfetto`."""
        from umm.traces.perfetto import write_perfetto

        write_perfetto(self, path)

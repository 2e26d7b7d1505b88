"""Where the time of each rank goes."""

from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from umm.arrays import Floats
from umm.schedules.table.details import BROADCAST, GEMM, MAP, REDUCE, TRANSFERS
from umm.traces.traffic import Spans, time_by_classes

if TYPE_CHECKING:
    import pandas as pd

_GEMM_RUNS, _REDUCE_FLIES, _OTHER_FLIES = 1, 2, 4
_CODES = np.arange(8)
PARTS = ("compute", "reduce", "exposed_communication", "idle")


@dataclass(frozen=True, eq=False)
class Breakdown:
    """Seconds of each rank by activity; the four parts add up to the makespan for every rank.

    Where several are true at once the first counts: compute, reduce, exposed communication.
    """

    compute: Floats  # a gemm or map of the rank runs
    reduce: Floats  # a reduce or broadcast of the rank is in flight, and neither runs
    # Another transfer of the rank to or from other ranks is in flight, and none of the above.
    exposed_communication: Floats
    idle: Floats  # none of these; so is a copy within the rank itself, which hardly ever stands alone
    in_flight: Floats  # a transfer of the rank is in flight, whatever else it does
    hidden: Floats  # of `in_flight` the part during which a gemm or map runs

    @property
    def mean(self) -> dict[str, float]:
        """The four parts in seconds, each the mean over all ranks."""
        return {part: float(getattr(self, part).mean()) for part in PARTS}

    @property
    def overlapped(self) -> float:
        """Share of transfer time hidden by computing, the mean over ranks that transfer; nan if none does."""
        moving = self.in_flight > 0
        return float((self.hidden[moving] / self.in_flight[moving]).mean()) if moving.any() else float("nan")

    def to_frame(self) -> "pd.DataFrame":
        """Return the four parts as columns, in seconds, one row per rank."""
        import pandas as pd

        return pd.DataFrame({part: getattr(self, part) for part in PARTS}).rename_axis("rank")


_kept: WeakKeyDictionary[Spans, Breakdown] = WeakKeyDictionary()
"""That of each run in use: reports ask for it several times, and of millions of spans it takes seconds."""


def breakdown(spans: Spans) -> Breakdown:
    """Return where the time of each rank goes.

    A transfer belongs to the rank that issues it: a get to the reader, an accumulate to the writer.
    """
    if spans in _kept:
        return _kept[spans]
    schedule = spans.schedule
    kind = schedule.kind
    of_class = np.full(len(schedule), -1, dtype=np.int64)
    of_class[np.isin(kind, TRANSFERS) & (schedule.src != schedule.dst)] = 2
    of_class[(kind == REDUCE) | (kind == BROADCAST)] = 1
    of_class[(kind == GEMM) | (kind == MAP)] = 0
    counted = of_class >= 0
    seconds = time_by_classes(
        spans.start[counted],
        spans.end[counted],
        schedule.rank[counted],
        of_class[counted],
        groups=schedule.ranks,
        classes=3,
        horizon=spans.makespan_s,
    )
    gemm = (_CODES & _GEMM_RUNS) > 0
    reducing = ~gemm & ((_CODES & _REDUCE_FLIES) > 0)
    flying = (_CODES & (_REDUCE_FLIES | _OTHER_FLIES)) > 0
    parts = _kept[spans] = Breakdown(
        compute=seconds[:, gemm].sum(axis=1),
        reduce=seconds[:, reducing].sum(axis=1),
        exposed_communication=seconds[:, ~gemm & ~reducing & flying].sum(axis=1),
        idle=seconds[:, 0],
        in_flight=seconds[:, flying].sum(axis=1),
        hidden=seconds[:, flying & gemm].sum(axis=1),
    )
    return parts

"""What an executor reports: when each action of a schedule ran; span i belongs to action i."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from umm.arrays import Floats, Ints
from umm.schedules.kinds import KINDS, TRANSFERS
from umm.schedules.table import Schedule
from umm.traces.breakdown import Breakdown, breakdown
from umm.traces.traffic import bytes_by_kind
from umm.traces.verdict import bound, verdict

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Trace:
    """When each action started and finished.

    Attributes:
        schedule: What was performed.
        source: Who performed it: sim, numpy, mpi, cuda or nvshmem.
        start: Start of each action in seconds after the run's start; of a transfer, latency included.
        end: Finish of each action.
        result: C as one array, where real matrices were multiplied.
    """

    schedule: Schedule
    source: str
    start: Floats
    end: Floats
    result: NDArray[np.generic] | None = None

    @property
    def makespan_s(self) -> float:
        """The last finish, in seconds."""
        return float(self.end.max(initial=0.0))

    @property
    def fraction_of_peak(self) -> float:
        """Useful flop per second over the peak of the devices used; nan if the peak is unknown."""
        could = self.makespan_s * self.schedule.peak
        return self.schedule.problem.flop / could if could > 0 else float("nan")

    def breakdown(self) -> Breakdown:
        """Return for each rank its seconds of compute, reduce, exposed communication and idleness."""
        return breakdown(self)

    @property
    def get_bytes(self) -> int:
        """Payload bytes that all ranks together get from each other."""
        return bytes_by_kind(self.schedule)["get"]

    @property
    def accumulate_bytes(self) -> int:
        """Payload bytes that all ranks together accumulate into each other's tiles."""
        return bytes_by_kind(self.schedule)["accumulate"]

    @property
    def reduce_bytes(self) -> int:
        """Payload bytes that the replicas of C send to their origin."""
        return bytes_by_kind(self.schedule)["reduce"]

    @property
    def memory_bytes(self) -> int:
        """Bytes the fullest rank allocates: its tiles of A, B and C, and its pool."""
        return int(self.schedule.memory_bytes.max())

    @property
    def pool_bytes(self) -> int:
        """Bytes of the largest pool of a rank."""
        return int(self.schedule.pool_bytes.max())

    @property
    def bound_by(self) -> str:
        """What most of the critical path is: ``compute``, such as ``accumulate on g3→g5``, or ``waiting``."""
        return str(bound(self))

    @property
    def verdict(self) -> str:
        """One sentence: what bounds it, and how much of the communication is overlapped."""
        return verdict(self)

    def to_frame(self) -> "pd.DataFrame":
        """Return a row per action, in the order of the schedule.

        Returns:
            Columns rank, lane (by name), kind, op, peer (the other rank of a transfer), start_s, end_s,
            nbytes (payload), flop, and a_tile, b_tile, c_tile as text such as ``0,3``. Where a column has no
            meaning it is −1 or empty; a barrier has rank −1.
        """
        import pandas as pd

        schedule, details = self.schedule, self.schedule.details
        lane_names = np.array([*schedule.lanes.names, ""], dtype=object)
        frame = pd.DataFrame(
            {
                "rank": schedule.rank,
                "lane": lane_names[schedule.lane],
                "kind": np.array(KINDS, dtype=object)[schedule.kind],
                "op": details.op,
                "peer": np.where(schedule.src == schedule.rank, schedule.dst, schedule.src),
                "start_s": self.start,
                "end_s": self.end,
                "nbytes": schedule.payload,
                "flop": schedule.flop,
            }
        )
        transfer = np.isin(schedule.kind, TRANSFERS)
        for number, column in enumerate(("a_tile", "b_tile", "c_tile")):
            moved = transfer & (details.matrix == number)
            tile = np.where(moved[:, np.newaxis], details.tile, getattr(details, column))
            frame[column] = _tile_texts(tile)
        return frame

    def to_perfetto(self, path: str | Path) -> None:
        """Write the trace for ui.perfetto.dev; see :func:`umm.traces.perfetto.write_perfetto`."""
        from umm.traces.perfetto import write_perfetto

        write_perfetto(self, path)


def _tile_texts(tiles: Ints) -> NDArray[np.object_]:
    """Return tile indices as ``row,column``, and nothing for −1."""
    width = int(tiles.max(initial=0)) + 1
    distinct, which = np.unique(tiles[:, 0] * width + tiles[:, 1], return_inverse=True)
    texts = ["" if tile < 0 else f"{tile // width},{tile % width}" for tile in distinct.tolist()]
    return np.array(texts, dtype=object)[which]

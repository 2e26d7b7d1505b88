"""What an executor reports: when each action of a schedule ran; span i belongs to action i."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umm.schedules.table import Schedule


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
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    result: NDArray[np.generic] | None = None

    @property
    def makespan_s(self) -> float:
        """The last finish, in seconds."""
        return float(self.end.max(initial=0.0))

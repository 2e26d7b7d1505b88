"""When each action of a schedule ran, as plain data: span i belongs to action i."""

from dataclasses import KW_ONLY, dataclass
from typing import Literal, get_args

from umm.arrays import Floats
from umm.schedules.schedule import Schedule

Times = Literal["predicted", "measured", "meaningless"]
"""What an executor's times are; meaningless: of one process in place of all ranks."""
TIMES: tuple[Times, ...] = get_args(Times)


@dataclass(frozen=True, eq=False)
class Spans:
    """When each action started and finished.

    Attributes:
        schedule: What was performed.
        source: Name of the executor: sim, numpy, mpi, cuda, nvshmem or another that is installed.
        start: Start of each action in seconds after the run's start; of a transfer, latency included.
        end: Finish of each action.
        times: Whether these are predicted, measured or meaningless, as the executor says.
    """

    schedule: Schedule
    source: str
    start: Floats
    end: Floats
    _: KW_ONLY
    times: Times = "measured"

    @property
    def makespan_s(self) -> float:
        """The last finish, in seconds."""
        return float(self.end.max(initial=0.0))

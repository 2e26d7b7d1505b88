"""The simulator as an executor: the same schedule, in predicted time."""

from umm.errors import UmmError
from umm.schedules.schedule import Schedule
from umm.traces.trace import Trace
from umm.traces.traffic import Times


class SimExecutor:
    """Performs a schedule on a discrete-event model of its links and GEMM engines.

    It decides nothing: order, overlap and data movement are all in the schedule, and so are the links'
    bandwidths and the gemms' seconds.
    """

    times: Times = "predicted"

    def available(self) -> str | None:
        """Return None where the inner loop is compiled, else a remedy."""
        try:
            import umm_sim.simulation  # noqa: F401
        except UmmError as error:
            return str(error)
        return None

    def run(self, schedule: Schedule, operands: object = None) -> Trace:
        """Return the predicted trace; operands are not needed and not looked at."""
        from umm_sim.simulation import simulate

        start, end = simulate(schedule)
        return Trace(schedule, "sim", start, end, times=self.times)

    def makespan(self, schedule: Schedule) -> float:
        """Return the predicted time of the whole schedule, in seconds."""
        from umm_sim.simulation import makespan

        return makespan(schedule)

    def close(self, code: int = 0) -> None:
        """Do nothing: between runs it keeps nothing that would have to end."""


class ReferenceExecutor(SimExecutor):
    """The same model played by SimPy, a tenth as fast: the reference that the simulator is tested against."""

    def run(self, schedule: Schedule, operands: object = None) -> Trace:
        """Return the predicted trace."""
        from umm_sim.player import played

        return Trace(schedule, "simpy", *played(schedule), times=self.times)

    def makespan(self, schedule: Schedule) -> float:
        """Return the predicted time of the whole schedule, in seconds."""
        return self.run(schedule).makespan_s

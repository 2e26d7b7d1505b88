"""The MPI executor: each rank a process with a thread for each lane, reaching the others one-sided."""

import atexit
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from umm.arrays import Floats
from umm.errors import ExecutorUnavailableError
from umm.executor import Operands, Rounds, expect_ranks
from umm.host.launcher import ended_by_ctrl_c, launched_rank, launched_size
from umm.schedules.file.arrays import to_arrays
from umm.schedules.schedule import Schedule
from umm.traces.trace import Trace
from umm.traces.traffic import Times
from umm_hw.cores.pace import Paced, together
from umm_hw.mpi.job.supervisor import supervise
from umm_hw.mpi.program import Run, Runs, perform
from umm_hw.performance import Arrays, check_replica, operands_of

if TYPE_CHECKING:
    from umm_hw.calibrate.host import Calibration
    from umm_hw.mpi.job.team import Team

INSTALL = "pip install 'umm-sim[mpi-wheels]'"


class Job(Protocol):
    """Ranks that run programs."""

    @property
    def size(self) -> int:
        """Number of ranks."""

    @property
    def running(self) -> bool:
        """Whether the ranks are there for work."""

    def call(self, size: int, program: Any, operands: Arrays | None = None) -> list[Any]:
        """Run a program on the first ranks, rank 0 with the operands; return the results, by rank."""

    def close(self, code: int = 0) -> None:
        """End the ranks."""


class MpiExecutor:
    """Performs schedules for real, each rank a process with one core's BLAS.

    From a plain process it starts the ranks itself and keeps them for the next run. In a process that mpiexec
    has started, rank 0 leads the others: they call :meth:`follow`, at the latest when they come to a run of
    their own, and end when rank 0 does.

    Args:
        ranks: Processes to start, at least the ranks of every schedule; those of the first one if None.
        replica: Replica that the results are gathered from; only the origin, 0, is complete unless the
            schedule completes the others. None stacks all replicas.
        timeout: Most seconds for one run; None waits as long as the ranks' watchdog does.
        job: Ranks that run already; they are not ended with the executor.
    """

    times: Times = "measured"
    saves = True
    dtypes: tuple[str, ...] = ("float32", "float64", "float16")  # types whose multiplies it can measure

    def __init__(
        self,
        ranks: int | None = None,
        replica: int | None = 0,
        timeout: float | None = None,
        job: Job | None = None,
    ) -> None:
        self.replica = replica
        self.timeout = timeout
        self._asked = ranks
        self._job: Job | None = job
        self._owns = job is None

    def available(self) -> str | None:
        """Return None, or the missing package and the line that installs it."""
        missing = [name for name in ("mpi4py", "threadpoolctl") if find_spec(name) is None]
        if missing:
            return f"executor mpi needs {' and '.join(missing)}; {INSTALL}"
        if launched_rank() is None:
            from umm_hw.mpi.job.job import find_mpiexec

            try:
                find_mpiexec()
            except ExecutorUnavailableError as error:
                return str(error)
        return None

    @property
    def on_host(self) -> bool:
        """Whether this process starts the ranks; those of an mpiexec may be on several hosts."""
        return launched_rank() is None

    @property
    def ranks(self) -> int | None:
        """Ranks that run already or were asked for; None if a schedule decides."""
        return self._job.size if self._job else launched_size() or self._asked

    def run(
        self, schedule: Schedule, operands: Operands | None = None, save: str | Path | None = None
    ) -> Trace:
        """Perform a schedule on real matrices.

        Args:
            schedule: What to perform.
            operands: A and B as whole arrays; uniform in [−1, 1) with a fixed seed if None.
            save: Folder of the checkpoint that operands and results become afterwards, if any; all ranks
                must see it, and each writes its own part.

        Returns:
            Wall-clock spans of all ranks on one clock, and C as one array of the problem's ``c_dtype``.

        Raises:
            InputError: if the operands do not fit, NumPy lacks the type, or there are too few ranks.
            InfeasibleError: if the memory is not there.
            ScheduleError: if an action uses memory that is not there.
            UmmError: if a rank fails, freezes or is killed.
        """
        return self.runs(schedule, operands, save=save)[0]

    def runs(
        self,
        schedule: Schedule,
        operands: Operands | None = None,
        repeat: int = 1,
        save: str | Path | None = None,
    ) -> list[Trace]:
        """Perform a schedule several times with the same operands; C is the last run's, which is saved."""
        folder = None if save is None else Path(save).absolute()
        runs, results = self._performed(schedule, operands, repeat=repeat, save=folder)
        return [Trace(schedule, "mpi", run.start, run.end, results) for run in runs]

    def delayed(self, schedule: Schedule, delays: Floats, operands: Operands | None = None) -> list[Trace]:
        """Perform a schedule once for each draw of factors, ranks late by them; C is the last run's."""
        runs, results = self._performed(schedule, operands, repeat=len(delays), delays=delays)
        return [Trace(schedule, "mpi", run.start, run.end, results) for run in runs]

    def paced(
        self,
        schedule: Schedule,
        operands: Operands | None = None,
        repeat: int = 1,
        delays: Floats | None = None,
    ) -> list[Paced]:
        """Perform a schedule several times; return the seconds of each run with the pace of the cores."""
        runs, _ = self._performed(schedule, operands, repeat=repeat, paced=True, delays=delays)
        return [_paced(run) for run in runs]

    def _performed(self, schedule: Schedule, operands: Operands | None = None, **how: Any) -> Runs:
        check_replica(schedule, self.replica)
        arrays = operands_of(schedule, operands)
        program = partial(perform, arrays=to_arrays(schedule), replica=self.replica, **how)
        job = self._started(schedule.ranks)
        expect_ranks(schedule, job.size)
        runs: Runs = job.call(schedule.ranks, program, arrays)[0]
        return runs

    def makespan(self, schedule: Schedule) -> float:
        """Return the seconds a run with random operands takes."""
        return self.run(schedule).makespan_s

    in_rounds = True

    def calibrate(
        self, dtypes: Sequence[str], note: Callable[[str], None], rounds: Rounds | None = None
    ) -> str:
        """Measure this host, a rank on each core unless ranks are given, and return its machine file.

        Args:
            note: Given what is measured now, in words.
            rounds: Where finished rounds are kept, and whether to be quick; None keeps none.
        """
        from umm_hw.calibrate.host_file import topology_text

        return topology_text(self.calibration(dtypes, note, rounds=rounds))

    def calibration(
        self,
        dtypes: Sequence[str],
        note: Callable[[str], None],
        between: Callable[[], object] | None = None,
        rounds: Rounds | None = None,
    ) -> "Calibration":
        """Return the numbers of that file.

        Args:
            note: Given what is measured now, in words.
            between: Called after each of some passes; it may run schedules.
        """
        from umm_hw.calibrate.host import calibrate
        from umm_hw.calibrate.small_schedules import Watched, watched

        ranks = self.ranks or core_count()

        def runs(schedule: Schedule, repeat: int) -> list[Watched]:
            results, _ = self._performed(schedule, repeat=repeat, paced=True)
            return [watched(schedule, _paced(run), run.start, run.end) for run in results]

        return calibrate(self._started(ranks).call, runs, ranks, dtypes, note, between, rounds)

    def processes(self) -> str | None:
        """Return which process each rank is, in words; None if this executor starts them itself.

        mpiexec names a rank that was killed by its process alone.
        """
        if launched_rank() is None:
            return None
        ranks = [f"{rank} is {process} on {host}" for rank, (host, process) in enumerate(_team().processes)]
        return "processes of the ranks: " + ", ".join(ranks)

    def follow(self) -> int | None:
        """Do rank 0's requests until it stops and return the exit code; None at once if this one leads."""
        return _team().follow() if launched_rank() else None

    def close(self, code: int = 0) -> None:
        """End the ranks; under mpiexec they end with this exit code."""
        if self._job is None and launched_rank() == 0:
            self._job = _team()
        if self._job is not None and self._owns:
            self._job.close(code)
        self._job = None

    def _started(self, ranks: int) -> Job:
        """Return a job with at least so many ranks, started if need be."""
        if launched_rank():
            sys.exit(self.follow())
        job = self._job
        if launched_rank() == 0:
            job = job or _team()
        elif job is None or not job.running:
            from umm_hw.mpi.job.job import MpiJob

            job = MpiJob(self._asked or ranks, self.timeout)
        self._job = job
        return job


def _paced(run: Run) -> Paced:
    """Return the seconds of a run with the pace of the cores."""
    return together(float(run.end.max(initial=0.0)), run.readings)


@cache
def _team() -> "Team":
    """Return the ranks that mpiexec has started together with this process."""
    os.environ.setdefault("UCX_LOG_LEVEL", "error")
    if "mpi4py.MPI" not in sys.modules:  # else it is too late to fork
        supervise()
        with ended_by_ctrl_c():
            import mpi4py.MPI  # noqa: F401
    from umm_hw.mpi.job.team import Team

    team = Team()
    if team.rank == 0:
        atexit.register(team.close)
    return team


def core_count() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

"""Performs schedules with a process per rank, each on one device, in memory that all of them reach."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from umm.dtypes import DTYPES
from umm.errors import ExecutorUnavailableError, InputError
from umm.executor import Operands, Rounds, cannot_save
from umm.schedules.file.arrays import to_arrays
from umm.schedules.schedule import Schedule
from umm.traces.trace import Trace
from umm_hw.devices.dtypes import check_tf32, check_types, device_dtype
from umm_hw.devices.links import BLOCKS
from umm_hw.mpi.executor import Job, MpiExecutor
from umm_hw.performance import check_replica, operands_of
from umm_hw.symmetric.one_sided import Joined

if TYPE_CHECKING:
    from umm_hw.calibrate.gpu import Costs


class SymmetricExecutor(MpiExecutor):
    """Performs schedules on devices, each rank a process; several may share a device.

    The processes are those of the MPI executor: from a plain process it starts them itself, under mpiexec
    rank 0 leads the others. A subclass says what joins the ranks.

    Args:
        ranks: Processes to start; as many as the first schedule has ranks if None.
        blocks: Most thread blocks of an accumulate kernel: fewer leave more of the device to GEMMs.
        replica: Replica that the results are gathered from; only the origin, 0, is complete unless the
            schedule completes the others. None stacks all replicas.
        timeout: Most seconds for one run; None waits as long as the ranks' watchdog does.
        job: Ranks that run already; they are not ended with the executor.
        connect: What joins the ranks, given their transport on the host; the subclass's own if None.
    """

    name = "symmetric"  # what traces are called after
    dtypes = DTYPES
    saves = False
    tf32 = False
    nvtx = False

    def __init__(
        self,
        ranks: int | None = None,
        blocks: int = BLOCKS,
        replica: int | None = 0,
        timeout: float | None = None,
        job: Job | None = None,
        connect: Callable[[Any], Joined] | None = None,
    ) -> None:
        super().__init__(ranks, replica, timeout, job)
        self.blocks = blocks
        self._connect = connect

    def available(self) -> str | None:
        """Return None, or the missing package and the line that installs it."""
        return None if self._connect is not None else self._problem() or super().available()

    def runs(
        self,
        schedule: Schedule,
        operands: Operands | None = None,
        repeat: int = 1,
        save: str | Path | None = None,
    ) -> list[Trace]:
        """Perform a schedule several times with the same operands; C is that of the last run.

        ExecutorUnavailableError if there is no device, or the ranks cannot be joined. InputError if the
        operands do not fit, devices do not multiply the pair of types, there are more or fewer processes than
        ranks, or matrices are to be saved.
        """
        if save is not None:
            raise cannot_save(self.name)
        check_types(schedule, self.tf32)
        check_replica(schedule, self.replica)
        arrays = operands_of(schedule, operands, device_dtype)
        from umm_hw.symmetric.program import perform

        program = partial(
            perform,
            connect=self._joining(),
            arrays=to_arrays(schedule),
            replica=self.replica,
            repeat=repeat,
            blocks=self.blocks,
            tf32=self.tf32,
            nvtx=self.nvtx,
        )
        job = self._started(schedule.ranks)
        self._check_size(schedule.ranks, job.size)
        spans, results = job.call(schedule.ranks, program, arrays)[0]
        return [Trace(schedule, self.name, start, end, results) for start, end in spans]

    in_rounds = False

    def calibrate(
        self, dtypes: Sequence[str], note: Callable[[str], None], rounds: Rounds | None = None
    ) -> str:
        """Measure rank 0's device and its way to the last rank; return the text of a machine file.

        ExecutorUnavailableError if there is no device, or the ranks cannot be joined.

        Args:
            note: Given what is measured now, in words.
            rounds: Not used; everything is measured in one go.
        """
        from umm_hw.symmetric.program import measured

        check_tf32(self.tf32, dtypes)
        connect = self._joining()
        note("everything, on rank 0 and from the last rank")
        job = self._started(self.ranks or 2)
        program = partial(
            measured,
            name=self.name,
            connect=connect,
            dtypes=dtypes,
            blocks=self.blocks,
            tf32=self.tf32,
            costs=self._costs(job.size, dtypes[0]),
        )
        text: str = job.call(job.size, program)[0]
        return text

    def _problem(self) -> str | None:
        """Return the missing requirement on this host; None if there is none."""
        raise NotImplementedError

    def _real_connect(self) -> Callable[[Any], Joined]:
        """Return a function that joins ranks on real devices."""
        raise NotImplementedError

    def _costs(self, ranks: int, dtype: str) -> "Costs | None":
        """Return the costs of actions in runs, where they exceed those alone; None if they do not."""
        return None

    def _check_size(self, ranks: int, processes: int) -> None:
        """Refuse other numbers of ranks than the processes can be."""
        if ranks > processes:
            raise InputError(f"the schedule is for {ranks} ranks, but {processes} processes run")

    def _joining(self) -> Callable[[Any], Joined]:
        """Return the function that joins the ranks."""
        reason = self.available()
        if reason is not None:
            raise ExecutorUnavailableError(reason)
        return self._connect or self._real_connect()

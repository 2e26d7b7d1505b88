"""The NVSHMEM executor: one process per rank, tiles in the symmetric memory of their GPUs."""

from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from umm.dtypes import DTYPES
from umm.errors import ExecutorUnavailableError, InputError
from umm.executor import Operands, cannot_save
from umm.host.launcher import launched_rank
from umm.schedules.files import to_arrays
from umm.schedules.schedule import Schedule
from umm.traces.trace import Trace
from umm_hw.gpu.accumulate_kernels import BLOCKS
from umm_hw.gpu.dtypes import check_tf32, check_types, gpu_dtype
from umm_hw.gpu.visible import gpu_problem
from umm_hw.mpi.executor import Job, MpiExecutor
from umm_hw.mpi.job.supervisor import supervise
from umm_hw.nvshmem.one_sided import Joined
from umm_hw.performance import check_replica, operands_of

INSTALL = "pip install 'umm-sim[nvshmem]'"


class NvshmemExecutor(MpiExecutor):
    """Performs schedules on GPUs, each rank a process; several may share a GPU.

    The processes are those of the MPI executor: from a plain process it starts them itself, under mpiexec
    rank 0 leads the others. NVSHMEM joins them for the life of the processes, so every schedule must have as
    many ranks as there are processes.

    Args:
        ranks: Processes to start; as many as the first schedule has ranks if None.
        blocks: Most thread blocks of an accumulate kernel: fewer leave more of the GPU to GEMMs.
        tf32: Whether float32 factors may be rounded to TF32, which is much faster and less exact.
        replica: Replica that the results are gathered from; only the origin, 0, is complete unless the
            schedule completes the others. None stacks all replicas.
        nvtx: Whether to name every action in a profiler's timeline.
        timeout: Most seconds for one run; None waits as long as the ranks' watchdog does.
        job: Ranks that run already; they are not ended with the executor.
        connect: What joins the ranks; NVSHMEM if None.
    """

    dtypes = DTYPES
    saves = False

    def __init__(
        self,
        ranks: int | None = None,
        blocks: int = BLOCKS,
        tf32: bool = False,
        replica: int | None = 0,
        nvtx: bool = False,
        timeout: float | None = None,
        job: Job | None = None,
        connect: Callable[[Any], Joined] | None = None,
    ) -> None:
        super().__init__(ranks, replica, timeout, job)
        self.blocks = blocks
        self.tf32 = tf32
        self.nvtx = nvtx
        self._connect = connect

    def available(self) -> str | None:
        """Return None, or what is missing and the line that installs it."""
        if self._connect is not None:
            return None
        missing = [name for name in ("nvshmem", "cuda", "mpi4py") if find_spec(name) is None]
        if missing:
            return f"executor nvshmem needs {', '.join(missing)}; {INSTALL}"
        if launched_rank() is not None:
            supervise()  # it forks, and CUDA that has begun does not work in a child
        return gpu_problem("nvshmem") or super().available()

    def runs(
        self,
        schedule: Schedule,
        operands: Operands | None = None,
        repeat: int = 1,
        save: str | Path | None = None,
    ) -> list[Trace]:
        """Perform a schedule several times with the same operands; C is that of the last run.

        Raises:
            ExecutorUnavailableError: if there is no GPU, or NVSHMEM does not start.
            InputError: if the operands do not fit, cuBLAS lacks the pair of types, there are more or fewer
                processes than ranks, or matrices are to be saved.
        """
        if save is not None:
            raise cannot_save("nvshmem")
        check_types(schedule, self.tf32)
        check_replica(schedule, self.replica)
        arrays = operands_of(schedule, operands, gpu_dtype)
        reason = self.available()
        if reason is not None:
            raise ExecutorUnavailableError(reason)
        from umm_hw.nvshmem.program import perform

        program = partial(
            perform,
            connect=self._connect or _real_connect(),
            arrays=to_arrays(schedule),
            replica=self.replica,
            repeat=repeat,
            blocks=self.blocks,
            tf32=self.tf32,
            nvtx=self.nvtx,
        )
        job = self._started(schedule.ranks)
        if job.size != schedule.ranks:
            raise InputError(
                f"the schedule is for {schedule.ranks} ranks, but NVSHMEM joins {job.size} processes; make "
                f"it for {job.size}, or start {schedule.ranks}"
            )
        spans, results = job.call(schedule.ranks, program, arrays)[0]
        return [Trace(schedule, "nvshmem", start, end, results) for start, end in spans]

    def calibrate(self, dtypes: Sequence[str], note: Callable[[str], None]) -> str:
        """Measure rank 0's GPU and its way to the last rank; return the text of a machine file.

        Args:
            dtypes: Types whose multiplies are measured.
            note: Given what is measured now, in words.

        Raises:
            ExecutorUnavailableError: if there is no GPU, or NVSHMEM does not start.
        """
        from umm_hw.nvshmem.program import measured

        check_tf32(self.tf32, dtypes)
        reason = self.available()
        if reason is not None:
            raise ExecutorUnavailableError(reason)
        note("everything, on rank 0 and from the last rank")
        job = self._started(self.ranks or 2)
        connect = self._connect or _real_connect()
        program = partial(measured, connect=connect, dtypes=dtypes, blocks=self.blocks, tf32=self.tf32)
        text: str = job.call(job.size, program)[0]
        return text


def _real_connect() -> Callable[[Any], Joined]:
    """Return what joins ranks by NVSHMEM; MPI is imported only now."""
    from umm_hw.nvshmem.library import connect

    return connect

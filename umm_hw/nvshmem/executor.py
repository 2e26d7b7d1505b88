"""The NVSHMEM executor: one process per rank, tiles in the symmetric memory of their GPUs."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from umm.errors import InputError
from umm.host.launcher import launched_rank
from umm_hw.devices.links import BLOCKS
from umm_hw.gpu.visible import gpu_problem
from umm_hw.mpi.executor import Job
from umm_hw.mpi.job.supervisor import supervise
from umm_hw.symmetric.executor import SymmetricExecutor
from umm_hw.symmetric.one_sided import Joined

INSTALL = "pip install 'umm-sim[nvshmem]'"


class NvshmemExecutor(SymmetricExecutor):
    """Performs schedules on GPUs, each rank a process; several may share a GPU.

    NVSHMEM joins the processes for their life, so every schedule must have as many ranks as there are
    processes.

    Args:
        ranks: Processes to start; as many as the first schedule has ranks if None.
        blocks: Most thread blocks of an accumulate kernel: fewer leave more of the GPU to GEMMs.
        tf32: Whether float32 factors may be rounded to TF32, which is much faster and less exact.
        replica: Replica that the results are gathered from; None stacks all replicas.
        nvtx: Whether to name every action in a profiler's timeline.
        timeout: Most seconds for one run; None waits as long as the ranks' watchdog does.
        job: Ranks that run already; they are not ended with the executor.
        connect: What joins the ranks; NVSHMEM if None.
    """

    name = "nvshmem"

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
        super().__init__(ranks, blocks, replica, timeout, job, connect)
        self.tf32, self.nvtx = tf32, nvtx

    def _problem(self) -> str | None:
        missing = [name for name in ("nvshmem", "cuda", "mpi4py") if find_spec(name) is None]
        if missing:
            return f"executor nvshmem needs {', '.join(missing)}; {INSTALL}"
        if launched_rank() is not None:
            supervise()  # it forks, and CUDA that has begun does not work in a child
        return gpu_problem("nvshmem")

    def _real_connect(self) -> Callable[[Any], Joined]:
        from umm_hw.nvshmem.library import connect

        return connect

    def _check_size(self, ranks: int, processes: int) -> None:
        if processes != ranks:
            raise InputError(
                f"the schedule is for {ranks} ranks, but NVSHMEM joins {processes} processes; make "
                f"it for {processes}, or start {ranks}"
            )

"""The OpenCL executor: the device core on OpenCL's devices, in this process or in one for each rank."""

from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from umm.algorithms.scheduling import schedule
from umm.errors import ExecutorUnavailableError, InputError
from umm.executor import Rounds
from umm.host.launcher import launched_rank, launched_size
from umm.machines import machine
from umm.program.problem import Problem
from umm.schedules.table.details import GEMM, GET
from umm_hw.devices.device import Device
from umm_hw.devices.executor import DeviceExecutor
from umm_hw.devices.links import BLOCKS
from umm_hw.mpi.executor import Job
from umm_hw.mpi.job.supervisor import supervise
from umm_hw.symmetric.executor import SymmetricExecutor
from umm_hw.symmetric.one_sided import Joined

if TYPE_CHECKING:
    from umm_hw.calibrate.gpu import Costs

REPEATS = 16  # of runs, the first of which warms up
TINY_TILE = 16  # rows and columns of tiles whose gets cost next to nothing but their queueing
INSTALL = "pip install 'umm-sim[opencl]'"


def opencl(
    accumulate: str = "kernel",
    blocks: int = BLOCKS,
    replica: int | None = 0,
    device: str = "",
    processes: bool | None = None,
    ranks: int | None = None,
    timeout: float | None = None,
) -> "OpenClExecutor | OpenClRanks":
    """Return an executor on OpenCL's devices: GPUs of any vendor, or the cores of a CPU.

    InputError for landing between processes.

    Args:
        accumulate: ``kernel`` adds to other ranks' memory by a kernel; ``landing`` copies to a buffer on the
            target's device and adds there, as devices must whose atomics are their own.
        blocks: Most work-groups of an accumulate kernel: fewer leave more of the device to GEMMs.
        replica: Replica that the results are gathered from; None stacks all.
        device: Which to use: gpu, cpu, or a part of a platform's or a device's name; if empty, GPUs first.
        processes: Whether each rank is a process, which shares memory on a CPU only, and takes MPI. If None,
            they are under mpiexec, and where the device is a CPU and MPI is installed.
        ranks: Processes to start; as many as the first schedule has ranks if None.
        timeout: Most seconds for one run of processes.
    """
    if processes is None:
        launched = launched_rank() is not None and (launched_size() or 1) > 1
        processes = launched or (accumulate == "kernel" and ranks_can_be_processes(device))
    if not processes:
        return OpenClExecutor(accumulate, blocks, replica, device)
    if accumulate != "kernel":
        raise InputError("processes accumulate by kernels; leave accumulate out, or set processes=off")
    return OpenClRanks(ranks, blocks, replica, timeout, device=device or "cpu")


def problem(device: str) -> str | None:
    """Return why there is no such device, ending with the line that fixes it; None if there is one."""
    if find_spec("pyopencl") is None:
        return f"executor opencl needs pyopencl; {INSTALL}"
    from umm_hw.opencl.platforms import visible

    try:
        visible(device)
    except ExecutorUnavailableError as error:
        return str(error)
    return None


def here(device: str) -> str:
    """Return the devices in words, whether ranks can be processes, and whether Level Zero is there."""
    from umm_hw.opencl.platforms import level_zero, visible

    devices = visible(device)
    how = "a process per rank" if ranks_can_be_processes(device) else "all ranks in one process"
    return f"{', '.join(x.name for x in devices)}; {how}; {level_zero()}"


def ranks_can_be_processes(device: str) -> bool:
    """Whether MPI is installed and the device's memory is the host's."""
    if find_spec("mpi4py") is None or problem(device) is not None:
        return False
    from umm_hw.opencl.platforms import visible

    return visible(device)[0].on_cpu


class OpenClExecutor(DeviceExecutor):
    """Performs schedules in this process, with a queue for every lane of its virtual ranks.

    Args:
        accumulate: See :func:`opencl`.
        devices: The devices themselves.
    """

    name = "opencl"

    def __init__(
        self,
        accumulate: str = "kernel",
        blocks: int = BLOCKS,
        replica: int | None = 0,
        device: str = "",
        devices: Sequence[Device] | None = None,
    ) -> None:
        super().__init__(accumulate, blocks, replica, devices)
        self.device = device

    in_rounds = False

    def calibrate(
        self, dtypes: Sequence[str], note: Callable[[str], None], rounds: Rounds | None = None
    ) -> str:
        """Measure the devices, accumulating as this executor does; return a machine file. It takes minutes.

        Args:
            note: Given what is measured now, in words.
            rounds: Not used; everything is measured in one go.
        """
        from umm_hw.calibrate.gpu import calibrate

        devices = self._used()
        return calibrate(devices, dtypes, note, self.blocks, accumulate=self.accumulate, executor="opencl")[0]

    def here(self) -> str:
        """Return the devices in words."""
        return here(self.device)

    def _problem(self) -> str | None:
        return problem(self.device)

    def _visible(self) -> Sequence[Device]:
        from umm_hw.opencl.platforms import visible

        return visible(self.device)


class OpenClRanks(SymmetricExecutor):
    """Performs schedules with a process per rank, whose heaps are shared memory of the host.

    Args:
        ranks: See :func:`opencl`.
        job: Ranks that run already; they are not ended with the executor.
        device: As there; it must be a CPU.
    """

    name = "opencl"

    def __init__(
        self,
        ranks: int | None = None,
        blocks: int = BLOCKS,
        replica: int | None = 0,
        timeout: float | None = None,
        job: Job | None = None,
        device: str = "cpu",
    ) -> None:
        super().__init__(ranks, blocks, replica, timeout, job)
        self.device = device

    def here(self) -> str:
        """Return the device in words."""
        return here(self.device)

    def _problem(self) -> str | None:
        if launched_rank() is not None:
            supervise()  # it forks, and PoCL's threads do not live on in a child
        return problem(self.device)

    def _costs(self, ranks: int, dtype: str) -> "Costs":
        """Run tiny gemms, then gets of tiny tiles besides: each is queued by the core that performs it."""
        from umm_hw.calibrate.gpu import Costs
        from umm_hw.calibrate.small_schedules import TINY_GEMMS, tiny_gemms

        gemms = tiny_gemms(ranks, dtype)
        size = 8 * TINY_TILE * ranks
        tiles = f"cyclic:{TINY_TILE}x{TINY_TILE}:1x{ranks}"
        problem = Problem(m=size, n=size, k=size, a=tiles, b="row", c="row", ranks=ranks, dtype=dtype)
        moving = schedule(problem, machine("h100-8"), stationary="C")
        launch, seconds = (
            min(trace.makespan_s for trace in self.runs(one, repeat=REPEATS)[1:]) for one in (gemms, moving)
        )
        first = moving.kind[moving.rank == 0]
        launch /= TINY_GEMMS
        computing, transfers = int((first == GEMM).sum()), int((first == GET).sum())
        return Costs(launch, max(0.0, seconds - computing * launch) / max(transfers, 1))

    def _real_connect(self) -> Callable[[Any], Joined]:
        from umm_hw.opencl.shared import connect

        return partial(connect, wanted=self.device)

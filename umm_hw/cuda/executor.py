"""The CUDA executor: the device core on the GPUs of this process."""

from collections.abc import Callable, Sequence

from umm.executor import Rounds
from umm_hw.devices.device import Device
from umm_hw.devices.dtypes import check_tf32
from umm_hw.devices.executor import DeviceExecutor
from umm_hw.devices.links import BLOCKS
from umm_hw.gpu.visible import gpu_problem, visible_gpus


class CudaExecutor(DeviceExecutor):
    """Performs schedules on the GPUs of this process.

    Args:
        accumulate: ``kernel`` adds to other ranks' memory by a kernel; ``landing`` copies to a buffer on the
            target's device by the copy engine and adds there.
        blocks: Most thread blocks of an accumulate kernel: fewer leave more of the GPU to GEMMs.
        tf32: Whether float32 factors may be rounded to TF32, which is much faster and less exact.
        replica: Replica that the results are gathered from; None stacks all.
        nvtx: Whether to name every action in a profiler's timeline.
        devices: The GPUs to use; all that are visible if None.
    """

    name = "cuda"

    def __init__(
        self,
        accumulate: str = "kernel",
        blocks: int = BLOCKS,
        tf32: bool = False,
        replica: int | None = 0,
        nvtx: bool = False,
        devices: Sequence[Device] | None = None,
    ) -> None:
        super().__init__(accumulate, blocks, replica, devices)
        self.tf32, self.nvtx = tf32, nvtx

    in_rounds = False

    def calibrate(
        self, dtypes: Sequence[str], note: Callable[[str], None], rounds: Rounds | None = None
    ) -> str:
        """Measure the GPUs, accumulating as this executor does; return a machine file. It takes minutes.

        ExecutorUnavailableError if there is no GPU, or CuPy is not installed.

        Args:
            note: Given what is measured now, in words.
            rounds: Not used; everything is measured in one go.
        """
        from umm_hw.calibrate.gpu import calibrate

        gpus = self._used()
        check_tf32(self.tf32, dtypes)
        return calibrate(gpus, dtypes, note, self.blocks, accumulate=self.accumulate, tf32=self.tf32)[0]

    def _problem(self) -> str | None:
        return gpu_problem("cuda")

    def _visible(self) -> Sequence[Device]:
        return visible_gpus()

"""The OpenCL kernels under oclgrind, which sees every data race: ``make test-opencl-races``.

Multiplies, maps, accumulates and landings of all types, in schedules of each kind, on devices that oclgrind
simulates. Then the barriers of the multiply are left out, which must be found.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import umm
from umm_hw.opencl import kernels
from umm_hw.opencl.executor import OpenClExecutor

MACHINE = "dgx-h100x4"


def perform(planted: bool) -> None:
    """Run schedules of each kind; raise if a result is wrong, but where a race is planted."""
    if planted:
        kernels.GEMM = kernels.GEMM.replace("barrier(CLK_LOCAL_MEM_FENCE);", "")
    for dtype, layouts in (
        ("float32", "col row row@2"),
        ("float64", "2d col row@2"),
        ("float16", "col 2d col"),
    ):
        a, b, c = layouts.split()
        problem = umm.Problem(m=9, n=7, k=8, a=a, b=b, c=c, ranks=4, dtype=dtype)
        schedule = umm.schedule(problem, MACHINE, stationary="A")
        rng = np.random.default_rng(1)
        operands = tuple(rng.integers(-3, 4, problem.shape(x)).astype(np.float32) for x in "AB")
        for way in ("kernel", "landing"):
            result = OpenClExecutor(accumulate=way, device="oclgrind").run(schedule, operands).result
            assert planted or np.array_equal(result, operands[0] @ operands[1]), (dtype, way)
            print(dtype, way, flush=True)
    made = umm.chain("mlp", backward=True, dtype="float32", tokens=4, hidden=4, ffn=6).laid_out("sequence", 2)
    OpenClExecutor(device="oclgrind").run(umm.schedule(made, MACHINE))
    print("mlp", flush=True)


def races(planted: bool) -> int:
    """Return how many races oclgrind reports."""
    with TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        words = ["oclgrind", "--data-races", "--log", str(log), sys.executable, "-m", __spec__.name]
        subprocess.run([*words, "planted" if planted else "clean"], check=True)
        return log.read_text().count("data race") if log.exists() else 0


def main() -> int:
    if len(sys.argv) > 1:
        perform(sys.argv[1] == "planted")
        return 0
    if shutil.which("oclgrind") is None:
        print("oclgrind is missing: apt-get install oclgrind")
        return 1
    result = {planted: races(planted) for planted in (False, True)}
    print(f"{result[False]} races in the kernels as they are, {result[True]} with one planted")
    return 0 if result == {False: 0, True: max(result[True], 1)} else 1


if __name__ == "__main__":
    sys.exit(main())

"""Parts of published measurements as umm predicts them: a GEMM, a collective, an algorithm."""

import umm
from umm.cost import gemm_seconds
from umm.dtypes import itemsize
from umm.executor import executor
from umm.machines import Machine
from umm.plans.collectives.library import choose


def gemm(
    machine: Machine, dtype: str, m: int, n: int, k: int, of_c: str = "", by_columns: bool = False
) -> float:
    """Return the seconds of one local multiply, C of the operands' type unless given."""
    return float(gemm_seconds(machine, dtype, m, n, k, itemsize(of_c or dtype), by_columns=by_columns))


def collective(machine: Machine, what: str, nbytes: float, devices: int) -> float:
    """Return the simulated seconds of a collective round a ring; ``nbytes`` is the whole buffer."""
    asked = umm.collective(what, nbytes=int(nbytes), machine=machine, algorithm="ring", ranks=devices)
    return executor("sim").makespan(asked)


def library(machine: Machine, what: str, nbytes: int, ranks: int, algorithm: str = "library") -> float:
    """Return the simulated seconds of a collective as the machine's library does it, or by an algorithm."""
    asked = umm.collective(what, nbytes=nbytes, machine=machine, ranks=ranks, algorithm=algorithm)
    return executor("sim").makespan(asked)


def law(machine: Machine, what: str, nbytes: int, ranks: int) -> float:
    """Return the seconds of the library's law; schedules follow it within 3 %, between nodes 6 %."""
    return choose(machine, what, tuple(range(ranks)), machine.device_count, nbytes).seconds


def all_gather(machine: Machine, shard: float, devices: int) -> float:
    """Return the simulated seconds of an all-gather of one shard a device."""
    return collective(machine, "all-gather", devices * shard, devices)


def dtensor(machine: Machine, m: int, n: int, k: int, layout: str) -> float:
    """Return the simulated seconds of DTensor's float32 multiply of matrices in rows or columns."""
    problem = umm.Problem(m=m, n=n, k=k, dtype="float32", a=layout, b=layout, c=layout, ranks=8)
    return executor("sim").makespan(umm.schedule(problem, machine, algorithm="dtensor"))


def fused(machine: Machine, dtype: str, m: int, n: int, k: int, devices: int, what: str) -> float:
    """Return the simulated seconds of the ring that multiplies while it gathers A or scatters C."""
    rows, cols = ("row", "col") if what == "all-gather" else ("col", "row")
    problem = umm.Problem(
        m=m, n=n, k=k, dtype=dtype, c_dtype=dtype, a=rows, b=cols, c=cols, ranks=devices
    )  # fmt: skip
    return executor("sim").makespan(umm.schedule(problem, machine, algorithm="ring", collective=what))

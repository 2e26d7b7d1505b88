"""Schedules of actions so small that what they take is what an action costs beside its work."""

from umm.algorithms.brought import brought
from umm.algorithms.registry import schedule
from umm.machines import Machine, machine
from umm.machines.files import shipped_folder
from umm.problem import Problem
from umm.schedules.builder import Builder
from umm.schedules.schedule import Schedule

TINY = 16  # rows, columns and length of the gemms
TINY_GEMMS = 400
SIGNALS = 200


def tiny_gemms(ranks: int, dtype: str) -> Schedule:
    """Return a schedule in which each rank multiplies its own tiny tiles, TINY_GEMMS of them."""
    columns = 20
    problem = Problem(
        m=TINY * ranks,
        n=TINY * columns,
        k=TINY * TINY_GEMMS // columns,
        a="row",
        b=f"cyclic:{TINY}x{TINY}:1x1@{ranks}",
        c="row",
        dtype=dtype,
        ranks=ranks,
    )
    return schedule(problem, _host(), stationary="C", prefetch=0, max_gemms=1, reuse=False)


def signals(ranks: int, dtype: str) -> Schedule:
    """Return a schedule in which a tiny tile goes round all ranks: each waits for the one before it."""
    problem = Problem(m=TINY * ranks, n=TINY, k=TINY, a="row", b="row", c="row", dtype=dtype, ranks=ranks)
    build = Builder("signals", problem, _host())
    piece = build.tile("A", 0, 0)
    for step in range(1, SIGNALS + 1):
        piece = brought(build, piece, step % ranks, step % 2)
    return build.schedule()


def _host() -> Machine:
    """Return the shipped file, not the user's, which may lack the type."""
    return machine(shipped_folder() / "localhost.toml")

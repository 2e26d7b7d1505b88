"""Fully sharded data parallel (ZeRO stage 3): rows of A and C stay, B is cut over all ranks and gathered.

B is gathered before it is used. Of several units by columns the next is gathered while one is multiplied, as
the next layer of a model is while this one computes: as much is hidden as with that many equal layers.
"""

from umm.algorithms.algorithm import Algorithm, Names, Native
from umm.algorithms.megatron import COLLECTIVE, laid_out
from umm.algorithms.writing import gathered, near_or_by_level
from umm.plans.option import Option
from umm.program.problem import Problem
from umm.schedules.writer.builder import Builder
from umm.units import counted


def native(problem: Problem, units: int, prefetch: int, collective: str) -> Native:
    """All by rows."""
    return laid_out(problem, "row", "row", "row")


def write(build: Builder, names: Names, units: int, prefetch: int, collective: str) -> None:
    """Gather a unit of B on every rank, multiply with it, and so on."""
    ranks = range(build.ranks)
    collective = near_or_by_level(build, collective, ranks)
    a, b, c = ({rank: build.placed(name)(rank) for rank in ranks} for name in names)
    for unit in range(units):
        pieces = {rank: b[rank].part(unit, units, axis=1) for rank in ranks}
        # prefetch + 1 slots bound how far gathers run ahead: a slot is free once its unit has been
        # multiplied.
        units_of_b = gathered(build, pieces, collective, ("B", unit % (prefetch + 1)))
        for rank in ranks:
            build.gemm(c[rank].cut(c[rank].rows, pieces[rank].cols), a[rank], units_of_b[rank], beta=0)


ALGORITHM = Algorithm(
    "fsdp",
    "Rows of A and C stay where they are; B is cut over all ranks and gathered before use (ZeRO stage 3).",
    "Rajbhandari et al. (2020), section 5.3; Zhao et al. (2023)",
    native,
    write,
    options=(
        Option(
            "units", 1, "Parts of B by columns that are gathered one after another, as layers are.", least=1,
            words=lambda n: counted(n, "unit"),
        ),
        Option("prefetch", 1, "Units on their way while one is multiplied.", words="prefetch {}".format),
        COLLECTIVE,
    ),
)  # fmt: skip

"""The waits of one rank of a schedule, at itself and for others."""

import umm
from umm.schedules.table.details import GEMM, REDUCE
from umm_hw.waits import rank_order


def test_a_reduction_waits_for_its_own_rank_before_it_looks_at_the_flags_of_others() -> None:
    """A rank that looks at flags while its own gemm runs takes time from it, and learns nothing."""
    problem = umm.Problem(m=8, n=8, k=8, a="col", b="row", c="row@2", ranks=2)
    schedule = umm.schedule(problem, "localhost", stationary="B", final="reduce")
    reducing = int((schedule.kind == REDUCE).nonzero()[0][0])
    rank = int(schedule.rank[reducing])
    gemm = int(((schedule.kind == GEMM) & (schedule.rank == rank)).nonzero()[0][0])
    order = rank_order(schedule, rank)
    (barrier,) = order.arrival
    assert order.releases == {gemm: [barrier], barrier: [reducing]}
    assert order.waits_for == {barrier: 1, reducing: 1}
    count = len(schedule)
    assert order.flags == {reducing: [count, count + 1]}

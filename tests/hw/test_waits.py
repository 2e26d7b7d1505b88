"""The waits of one rank of a schedule, at itself and for others."""

from time import monotonic, sleep

import pytest

import umm
from umm.schedules.table.details import GEMM, REDUCE
from umm_hw.mpi.lanes import RankLanes
from umm_hw.waits import RankOrder, rank_order


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


class NeverUp:
    """Flags that another rank would raise, and does not."""

    def up(self, flags: list[int]) -> bool:
        return False

    def raise_on(self, ranks: list[int], flag: int) -> None:
        raise AssertionError


def test_a_lane_that_waits_for_another_rank_ends_when_another_lane_fails() -> None:
    """Lane 0 waits for flag 0; lane 1 fails after 0.3 s, which lane 0 sees at its next look."""

    def fail() -> None:
        sleep(0.3)
        raise ZeroDivisionError("on purpose")

    order = RankOrder([[0], [1]], set(), {}, {0: [0]}, {}, {}, {}, 2)
    began = monotonic()
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        RankLanes(order, {0: fail, 1: fail}, NeverUp(), 2).perform(0.0)
    assert monotonic() - began < 3

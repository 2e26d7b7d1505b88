"""The duties of every executor of data; a test class for one inherits this and says how to make it."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from strategies import problems, schedule_options, stationaries

import umm
from umm.errors import InputError, LayoutError
from umm.executor import Executor, times_of

MACHINE = umm.machine("dgx-h100x4")  # holds up to 32 ranks and multiplies every type
MOST_ACTIONS = 3000

# One law runs once for every class that inherits it, and each class has an executor of its own.
laws = settings(
    deadline=None,
    suppress_health_check=[
        HealthCheck.differing_executors,
        HealthCheck.filter_too_much,
        HealthCheck.too_slow,
    ],
)


def integer_operands(problem, seed=0):
    """Whole numbers from −8 to 8, so that every product and every sum is exact in any order."""
    rng = np.random.default_rng(seed)
    return tuple(rng.integers(-8, 9, problem.shape(x)).astype(problem.dtype) for x in "AB")


def scheduled(problem, stationary, options):
    """The problem's schedule, unless it is too long for a test."""
    schedule = umm.schedule(problem, MACHINE, stationary=stationary, **options)
    assume(len(schedule) <= MOST_ACTIONS)
    return schedule


class ExecutorConformance:
    """Inherit, override ``executor``, and set ``keeps_lanes`` to False if lanes are ignored.

    ``many`` is a number of ranks above 3 that an executor can have.
    """

    keeps_lanes = True
    many = 16

    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls) -> Callable[..., Executor]:
        """A function that makes an executor, taking its options; ``replica`` is one of them."""
        raise NotImplementedError

    @laws
    @given(problem=problems(), stationary=stationaries, options=schedule_options)
    def test_a_product_of_whole_numbers_is_exact(self, executor, problem, stationary, options):
        """Every layout, replication, stationary matrix and option: C == A @ B, bit for bit."""
        schedule = scheduled(problem, stationary, options)
        a, b = integer_operands(problem)
        result = executor().run(schedule, (a, b)).result
        assert result.dtype == np.float64
        assert np.array_equal(result, a @ b)

    @laws
    @given(problem=problems(dtype="float32"), stationary=stationaries, options=schedule_options)
    def test_a_float32_product_is_right_to_1e_5(self, executor, problem, stationary, options):
        """Relative to |A| @ |B|, against a float64 product of the operands an executor chooses itself."""
        schedule = scheduled(problem, stationary, options)
        rng = np.random.default_rng(3)
        a, b = (rng.standard_normal(problem.shape(x), dtype=np.float32) for x in "AB")
        result = executor().run(schedule, (a, b)).result
        assert result.dtype == np.float32
        error = np.abs(result - a.astype(np.float64) @ b.astype(np.float64))
        assert np.all(error <= 1e-5 * (np.abs(a) @ np.abs(b)))

    @pytest.mark.parametrize("replicas", [1, 2, 4])
    @pytest.mark.parametrize("stationary", ["A", "B", "C"])
    def test_a_broadcast_completes_c_in_every_replica(self, executor, stationary, replicas):
        problem = umm.Problem(
            m=9, n=10, k=11, a="2d", b="col@2", c=f"row@{replicas}:interleaved", ranks=8, dtype="float64"
        )
        schedule = umm.schedule(problem, MACHINE, stationary=stationary, final="broadcast")
        a, b = integer_operands(problem)
        for replica in range(replicas):
            assert np.array_equal(executor(replica=replica).run(schedule, (a, b)).result, a @ b)

    def test_more_ranks_than_rows_leave_empty_tiles_and_the_right_product(self, executor):
        """3x3x3 in row blocks over 16 ranks: 13 own nothing."""
        problem = umm.Problem(m=3, n=3, k=3, a="row", b="row", c="row", ranks=self.many, dtype="float64")
        a, b = integer_operands(problem)
        result = executor().run(umm.schedule(problem, MACHINE), (a, b)).result
        assert np.array_equal(result, a @ b)

    def test_half_precision_is_summed_in_float32(self, executor):
        """64 products of 64 ones and 2048: float16 would lose the ones."""
        problem = umm.Problem(
            m=2, n=2, k=64, a="col", b="row", c="row", ranks=4, dtype="float16", c_dtype="float32"
        )
        a = np.ones((2, 64), dtype=np.float16)
        b = np.ones((64, 2), dtype=np.float16)
        b[0] = 2048
        result = executor().run(umm.schedule(problem, MACHINE, stationary="A"), (a, b)).result
        assert result.dtype == np.float32
        assert np.array_equal(result, np.full((2, 2), 2111.0))

    @laws
    @given(problem=problems(), stationary=stationaries, options=schedule_options)
    def test_no_action_starts_before_what_it_waits_for_has_finished(
        self, executor, problem, stationary, options
    ):
        """One span per action, none shorter than nothing, in dependency order and in lane order."""
        schedule = scheduled(problem, stationary, options)
        trace = executor().run(schedule)
        assert trace.schedule is schedule
        assert trace.times == times_of(executor())
        assert list(trace.results) == ["C"]
        assert len(trace.start) == len(trace.end) == len(schedule)
        assert np.all(trace.start >= 0)
        assert np.all(trace.end >= trace.start)
        waiting = schedule.waiting
        assert np.all(trace.start[waiting] >= trace.end[schedule.after])
        if self.keeps_lanes:
            for lane in range(len(schedule.lanes)):
                on_lane = schedule.lane == lane
                assert np.all(trace.start[on_lane][1:] >= trace.end[on_lane][:-1])

    def test_the_makespan_is_a_time(self, executor):
        schedule = umm.schedule(umm.Problem(m=8, n=8, k=8, ranks=4), MACHINE)
        assert executor().makespan(schedule) > 0

    def test_it_is_available_where_it_is_tested(self, executor):
        assert executor().available() is None

    def test_operands_come_by_name_and_with_a_slice_for_each_replica(self, executor):
        """Replica 0 has the left half of A alone, replica 1 the right half: each sums its half of k."""
        problem = umm.Problem(m=6, n=5, k=8, a="row@2", b="row@2", c="row@2", ranks=4, dtype="float64")
        a, b = integer_operands(problem)
        halves = np.stack([a, a])
        halves[0, :, 4:] = halves[1, :, :4] = 0
        schedule = umm.schedule(problem, MACHINE, stationary="C", final="broadcast")
        result = executor(replica=1).run(schedule, {"B": b, "A": halves}).result
        assert np.array_equal(result, a @ b)

    def test_all_replicas_of_a_result_can_be_had(self, executor):
        """After a reduce alone each of the two others keeps its own partial sum."""
        problem = umm.Problem(m=6, n=5, k=9, a="col@3", b="row@3", c="row@3", ranks=3, dtype="float64")
        a, b = integer_operands(problem)
        schedule = umm.schedule(problem, MACHINE, stationary="C", final="reduce")
        result = executor(replica=None).run(schedule, (a, b)).result
        partials = [a[:, k : k + 3] @ b[k : k + 3] for k in (3, 6)]
        assert np.array_equal(result, np.stack([a @ b, *partials]))

    def test_operands_that_do_not_fit_are_refused(self, executor):
        schedule = umm.schedule(umm.Problem(m=4, n=5, k=6, ranks=2), MACHINE)
        a = np.zeros((4, 6))
        with pytest.raises(InputError, match=r"operand B has shape \(5, 6\), but the problem's is \(6, 5\)"):
            executor().run(schedule, (a, np.zeros((5, 6))))
        with pytest.raises(InputError, match="1 operands are given; the schedule takes A and B"):
            executor().run(schedule, (a,))
        with pytest.raises(InputError, match="operands A, C are given; the schedule takes A and B"):
            executor().run(schedule, {"A": a, "C": a})
        with pytest.raises(InputError, match="operand B is complex128, not float32; give its real"):
            executor().run(schedule, (a, np.zeros((6, 5)) + 1j))
        with pytest.raises(InputError, match="operand A is an array of <U1; it must hold numbers"):
            executor().run(schedule, (np.full((4, 6), "x"), np.zeros((6, 5))))

    def test_a_replica_that_is_not_there_is_refused(self, executor):
        schedule = umm.schedule(umm.Problem(m=4, n=4, k=4, c="row@2", ranks=2), MACHINE)
        with pytest.raises(LayoutError, match="replica 2 is outside row@2, which has 2"):
            executor(replica=2).run(schedule)

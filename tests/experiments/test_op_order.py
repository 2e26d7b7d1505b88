"""The best order of ops by simulated makespan, and the bound no order beats."""

from dataclasses import replace

import pytest
from examples import WHOLE
from problem_corpus import corpus

import umm
from experiments.universal.op_order import best_order, order_bound
from umm.executor import executor
from umm.machines.curves import EfficiencyTable
from umm.plans.multiply.oplist import op_list
from umm.plans.multiply.options import Options
from umm.plans.multiply.policies import policy_names
from umm.schedules.rules.invariants import check

MAKESPAN = executor("sim").makespan
GEMMS = EfficiencyTable.measured([16, 4096], [64], [64], [[[0.2]], [[0.9]]])


def test_no_policy_beats_the_bound_of_all_orders():
    """Small problems, where latencies count, and 128 times as large ones; gemms may find C in caches."""
    for scale in (1, 128):
        for problem, machine, stationary, options in corpus(80 if WHOLE else 8, scale):
            plain = umm.machine(machine)
            for m in (plain, replace(plain, refill=1e12, efficiency={problem.dtype: GEMMS})):
                bound = order_bound(op_list(problem, stationary), m, Options(**options))
                for policy in policy_names():
                    schedule = umm.schedule(problem, m, stationary=stationary, policy=policy, **options)
                    assert 0 < bound <= MAKESPAN(schedule)


def test_the_best_schedule_is_no_worse_than_direct_and_is_what_it_says():
    for problem, machine, stationary, options in corpus(12 if WHOLE else 4, scale=128):
        result = best_order(
            problem, machine, MAKESPAN, stationary=stationary, options=Options(**options), moves=20
        )
        check(result.schedule)
        assert MAKESPAN(result.schedule) == result.makespan_s
        assert result.bound_s <= result.makespan_s <= result.order_s <= result.direct_s
        assert 0 <= result.saving <= result.gap < 1


def test_a_bad_order_is_repaired():
    """Without offset all ranks read the same tile first, through one port of h100-8; other orders spread."""
    problem = umm.Problem(m=8192, n=8192, k=8192, a="row", b="row", c="row", ranks=8)
    result = best_order(problem, "h100-8", MAKESPAN, options=Options(offset="none", prefetch=0), moves=0)
    assert result.saving > 0.05
    assert result.makespan_s == pytest.approx(MAKESPAN(result.schedule))

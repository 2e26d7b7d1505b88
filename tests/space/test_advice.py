"""A verdict's advice: following it gives the stated gain, and then nothing is left to advise."""

import os
from dataclasses import replace
from functools import partial

import pytest
from command import good, record
from hypothesis import given, settings
from hypothesis import strategies as st

import umm
from umm.executor import executor
from umm.machines.corners import moved_alone
from umm.space import Space, search
from umm.space.pricing.multiplies import content_of
from umm.space.search import uncertainty
from umm.space.search.found import front
from umm.space.search.uncertainty import unused
from umm.space.what_if.advice import advise, decides
from umm.space.what_if.beside import LEAST
from umm_sim.executor import SimExecutor

SIZES = st.sampled_from((96, 512, 1000, 4096))


def layouts(ranks):
    factors = st.sampled_from([c for c in range(1, ranks + 1) if ranks % c == 0])
    return st.tuples(st.sampled_from(("row", "col", "2d")), factors).map(lambda x: f"{x[0]}@{x[1]}")


@st.composite
def asked(draw):
    """Draw a machine and a schedule for it."""
    machine = umm.machine(draw(st.sampled_from(("h100-8", "pvc-12", "tpu-v5e-4"))))
    ranks = draw(st.sampled_from((4, machine.default_ranks)))
    a, b, c = (draw(layouts(ranks)) for _ in "abc")
    m, n, k = (draw(SIZES) for _ in "mnk")
    problem = umm.Problem(m=m, n=n, k=k, a=a, b=b, c=c, ranks=ranks, dtype="bfloat16")
    return machine, umm.schedule(problem, machine, stationary=draw(st.sampled_from("ABC")))


@settings(max_examples=int(os.environ.get("UMM_VERDICTS", "10")), deadline=None)
@given(asked())
def test_following_a_verdict_gives_what_it_said_and_ends_the_advice(one):
    """And nothing that the search looks at is faster by a hundredth, or as fast with less memory.

    ``UMM_VERDICTS=200`` asks for as many verdicts.
    """
    machine, schedule = one
    makespan = executor("sim").makespan
    advice = advise(schedule, machine, makespan)
    if advice:
        followed = advice.choice.schedule(machine)
        now, memory = makespan(schedule), int(schedule.memory_bytes.max())
        assert makespan(followed) == advice.choice.makespan_s
        assert 1 - makespan(followed) / now == pytest.approx(advice.saving)
        assert int(followed.memory_bytes.max()) - memory == advice.extra_bytes
        assert advice.saving >= LEAST or advice.extra_bytes < 0
        assert advise(followed, machine, makespan) is None
        schedule = followed
    problem = schedule.problem
    space = Space(problem.m, problem.n, problem.k, problem.dtype, schedule.ranks)
    result = search(space, machine, top=1)
    seconds, memory = makespan(schedule), int(schedule.memory_bytes.max())
    assert result.top[0].makespan_s > seconds * (1 - LEAST)
    as_fast = [x for x in front(result.pricer, result.limit, reach=1 + LEAST) if x.makespan_s <= seconds]
    assert all(x.memory_bytes > memory * (1 - LEAST) for x in as_fast)


def test_advice_keeps_the_prefetch_and_the_limits_that_were_asked_for():
    problem = umm.Problem(m=1024, n=1024, k=1024, a="row", b="row", c="row", ranks=8)
    schedule = umm.schedule(problem, "h100-8", prefetch=1, max_gemms=1)
    advice = advise(schedule, umm.machine("h100-8"), executor("sim").makespan)
    assert (advice.choice.options.prefetch, advice.choice.options.max_gemms) == (1, 1)
    assert "prefetch 1, 1 gemm in flight" in str(advice)


def test_an_assumed_number_that_turns_a_choice_round_is_named():
    """How many copy engines a PVC tile uses at once is a guess; with one, another matrix should stay."""
    machine = umm.machine("pvc-12-planes")
    shape = {"m": 4096, "n": 12288, "k": 12288, "ranks": 12}
    problem = umm.Problem(**shape, a="col@12", b="2d", c="2d", dtype="bfloat16", c_dtype="float32")
    makespan = executor("sim").makespan

    def lower(stationary):
        return lambda target: umm.schedule(problem, target, stationary=stationary)

    ways = {f"stationary {x}": lower(x) for x in "ABC"}
    result = decides(machine, "bfloat16", ways, makespan)
    fact = next(x for x in machine.facts if x.key == f"devices.{result.key}")
    assert fact.assumed
    assert result.saving > 0.008
    sure = replace(machine, document=_known(machine.document))
    assert decides(sure, "bfloat16", ways, makespan) is None


def _known(node):
    """Return a machine file's content in which nothing is assumed."""
    if isinstance(node, list):
        return [_known(x) for x in node]
    if isinstance(node, dict):
        return {name: _known(x) for name, x in node.items() if name != "assumed"}
    return node


def test_no_advice_is_given_where_its_search_would_take_too_long(monkeypatch):
    """``umm simulate -m 16 -n 12 -k 8 --movement two-level`` searched for minutes."""
    slow = umm.schedule(umm.Problem(m=16, n=12, k=8, ranks=8), umm.machine("h100-8"))
    ask = partial(advise, slow, umm.machine("h100-8"), SimExecutor().makespan)
    assert ask() is not None
    monkeypatch.setattr("umm.space.what_if.advice.MOST_WORK", 0)
    assert ask() is None


def test_advice_that_takes_long_is_left_out_with_a_line():
    """On 64 ranks no search is begun; the output says so, and names a command to run instead."""
    asked = ["-m", 512, "-n", 512, "-k", 512, "--ranks", 64, "--machine", "h100-8", "--nodes", 8]
    result = " ".join(good("simulate", *asked, "--a", "2d", "--b", "2d", "--c", "2d").split())
    assert "advice left out at this size; 'umm search' with these sizes, ranks and machine gives it" in result
    cyclic = [y for x in "abc" for y in (f"--{x}", "cyclic:16x16:8x8")]
    assert "at this size; 'umm peers' with" in " ".join(good("simulate", *asked, *cyclic).split())
    small = good("simulate", "-m", 512, "-n", 512, "-k", 512, "--ranks", 4, "--machine", "h100-8")
    assert "left out" not in small


def test_the_number_to_measure_next_is_sought_for_few_actions(monkeypatch):
    """Both ends of 16 numbers are 32 schedules more: a larger one has its range without."""
    asked = ["-m", "256", "-n", "256", "-k", "256", "--machine", "h100-8"]
    asked += ["--a", "2d", "--b", "2d", "--c", "2d"]
    result = record("simulate", *asked)["predicted"]
    assert result["measure_next"]
    monkeypatch.setattr(uncertainty, "MOST_ACTIONS", result["actions"] - 1)
    larger = record("simulate", *asked)["predicted"]
    assert larger["measure_next"] is None
    assert larger["makespan_range_s"] == result["makespan_range_s"]


@pytest.mark.parametrize("name", ["h100-8", "dgx-h100x4", "pvc-12"])
def test_what_a_multiply_does_not_rest_on_is_not_moved(name):
    """Tables of collectives, attention and grouped multiplies leave a one-sided multiply as it is."""
    machine = umm.machine(name)

    def lower(target, c):
        problem = umm.Problem(m=700, n=900, k=500, a="row", b="col", c=c, ranks=8, dtype="bfloat16")
        return umm.schedule(problem, target, stationary="B")

    keys = unused(lower(machine, "2d"))
    assert set(moved_alone(machine, keys)) < set(moved_alone(machine)) or name == "pvc-12"
    for key, ends in moved_alone(machine).items():
        if not set(key.split(".")).isdisjoint(keys):
            for end in ends:
                assert content_of(lower(end, "2d")) == content_of(lower(machine, "2d")), key
    assert not unused(lower(machine, "2d@2"))

"""The policies that lower to IR, over a corpus of problems: valid, right, none worse than a greedier one."""

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from command import good
from examples import examples
from problem_corpus import corpus

import umm
from umm.plans.multiply.oplist import op_list
from umm.plans.multiply.options import Options
from umm.policies.model import model_cost, steps
from umm.policies.policy import step_policies
from umm.schedules.races import races
from umm.schedules.rules.invariants import check
from umm.schedules.table.details import ACCUMULATE, BARRIER, GEMM, GET
from umm_hw.numpy.executor import NumpyExecutor

CORPUS = corpus(510)
SOME = CORPUS[: examples(510)]


def scheduled(case, policy):
    problem, machine, stationary, options = case
    return umm.schedule(problem, machine, stationary=stationary, policy=policy, **options)


def test_the_corpus_has_every_kind_of_problem():
    layouts = [(p.layouts, stationary) for p, _, stationary, _ in CORPUS]
    assert len(CORPUS) >= 500
    assert sum(any(x.replicas > 1 for x in cases) for cases, _ in layouts) > 100
    assert sum(len({str(x) for x in cases}) > 1 for cases, _ in layouts) > 100
    assert {machine for _, machine, _, _ in CORPUS} >= {"pvc-12", "pvc-12-planes", "h100-8"}
    assert {stationary for _, stationary in layouts} == {"A", "B", "C"}


def test_exhaustive_never_costs_more_than_cost_greedy_and_all_irs_are_valid():
    """On every case, 128 times as large so that bytes and flop matter; a gap of 0 is a proof."""
    proven = better = 0
    cases = corpus(len(SOME), scale=128)
    for problem, machine, stationary, options in cases:
        machine, options = umm.machine(machine), Options(**options)
        ops = op_list(problem, stationary)
        irs = {name: policy.ir(ops, machine, options) for name, policy in step_policies().items()}
        for ir in irs.values():
            ir.validate()
        least = irs["exhaustive"].cost_s
        assert least <= irs["cost-greedy"].cost_s
        assert least <= irs["greedy"].cost_s
        better += least < 0.99 * irs["cost-greedy"].cost_s
        proven += irs["exhaustive"].gap == 0
    assert proven >= 0.98 * len(cases)
    assert better >= 0.1 * len(cases)


@pytest.mark.parametrize("policy", step_policies())
def test_every_schedule_of_the_corpus_multiplies_right_and_has_no_race(policy):
    """C == A @ B on whole numbers, in row order or a random one that the dependencies allow."""
    for number, case in enumerate(SOME):
        schedule = scheduled(case, policy)
        check(schedule)
        assert races(schedule) == []
        rng = np.random.default_rng(number)
        a, b = (rng.integers(-8, 9, case[0].shape(x)).astype(np.float32) for x in "AB")
        executor = NumpyExecutor(order="random", seed=number) if number % 3 == 0 else NumpyExecutor()
        assert np.array_equal(executor.run(schedule, (a, b)).result, a @ b)


@pytest.mark.parametrize("policy", step_policies())
def test_a_schedule_has_the_steps_of_its_ir_and_costs_the_same(policy):
    """Each rank's steps, read back from the table, add up to the IR's cost; reduces come on top."""
    for case in SOME[:100]:
        problem, machine, stationary, options = case
        options = Options(policy, **options)
        ir = step_policies()[policy].ir(op_list(problem, stationary), umm.machine(machine), options)
        schedule = scheduled(case, policy)
        longest = max(sum(step.seconds for step in of_rank) for of_rank in steps(schedule))
        assert longest == pytest.approx(ir.cost_s, rel=1e-9)
        if problem.layout("C").replicas == 1:
            assert model_cost(schedule) == longest
        else:
            assert model_cost(schedule) > longest


def test_direct_execution_costs_its_natural_steps():
    """Two gemms of 256 ns, the second's two tiles of 128 ns: both are got under the first gemm."""
    machine = "tests/golden/round.toml"
    problem = umm.Problem(m=8, n=8, k=8, a="col", b="row", c="col", ranks=2)
    schedule = umm.schedule(problem, machine, stationary="C", offset="none", prefetch=1, max_gemms=1)
    of_rank_0 = [(len(step.actions), step.communication, step.computation) for step in steps(schedule)[0]]
    assert of_rank_0 == [
        (3, pytest.approx(256e-9), pytest.approx(256e-9)),
        (1, 0, pytest.approx(256e-9)),
    ]
    nothing_ahead = umm.schedule(problem, machine, stationary="C", prefetch=0, max_gemms=1)
    assert model_cost(nothing_ahead) == pytest.approx(768e-9)
    assert model_cost(schedule) == pytest.approx(768e-9)  # rank 1 starts with what it has to get


def test_every_step_waits_for_all_of_the_step_before():
    for case in CORPUS[:40]:
        schedule = scheduled(case, "greedy")
        for of_rank in steps(schedule):
            for before, step in pairwise(of_rank):
                for action in step.actions:
                    assert set(before.actions) <= set(schedule.after_of(action).tolist())


def test_a_fetched_tile_stays_and_no_tile_is_fetched_twice():
    """Misaligned: direct execution gets some tiles again, the IR none; its pool holds more instead."""
    problem = umm.Problem(m=96, n=96, k=96, a="row", b="col", c="2d", ranks=12)
    lowered = umm.schedule(problem, "pvc-12", stationary="C", policy="greedy")
    direct = umm.schedule(problem, "pvc-12", stationary="C")
    for schedule, twice in ((lowered, False), (direct, True)):
        get = schedule.kind == GET
        matrix = schedule.operand_tensors(0)[get]
        tile = np.where((matrix == 0)[:, None], *(schedule.touched_tiles(x)[get] for x in (0, 1)))
        named = list(zip(schedule.rank[get].tolist(), matrix.tolist(), map(tuple, tile), strict=True))
        assert (len(set(named)) < len(named)) == twice


def test_only_barriers_and_steps_order_actions():
    """Nothing but a barrier waits for another rank."""
    for case in CORPUS[:40]:
        schedule = scheduled(case, "cost-greedy")
        multiply = slice((schedule.kind == BARRIER).argmax() if BARRIER in schedule.kind else len(schedule))
        for action in np.nonzero(np.isin(schedule.kind[multiply], (GET, GEMM, ACCUMULATE)))[0]:
            after = schedule.after_of(action)
            assert np.all(schedule.kind[after] != BARRIER)
            assert np.all(schedule.rank[after] == schedule.rank[action])


def test_the_gap_of_exhaustive_is_among_the_options_and_survives_a_file():
    schedule = scheduled(CORPUS[0], "exhaustive")
    again = umm.Schedule.from_json(schedule.to_json())
    assert again.options["gap"] == schedule.options["gap"] == 0
    assert model_cost(again) == model_cost(schedule)


def test_a_schedule_that_no_policy_made_has_no_steps():
    from dataclasses import replace

    schedule = replace(scheduled(CORPUS[0], "greedy"), options={}, name="SUMMA")
    with pytest.raises(umm.errors.ScheduleError, match="the schedule of SUMMA has no steps"):
        model_cost(schedule)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The how-to's package on the import path, as pip would lay it there."""
    page = Path(__file__).parents[2] / "docs/how-to/add-a-policy.md"
    code = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)[0]
    (tmp_path / "one_by_one.py").write_text(code)
    info = tmp_path / "one_by_one-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: one-by-one\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[umm.policies]\none-by-one = one_by_one:POLICY\n")
    monkeypatch.syspath_prepend(tmp_path)


def test_an_unknown_policy_is_answered_with_the_known_ones():
    known = "policy 'one-by-one' is unknown; choose from direct, cost-greedy, exhaustive, greedy"
    with pytest.raises(umm.errors.ScheduleError, match=known):
        umm.Space(m=8, n=8, k=8, policy="one-by-one")


def test_an_installed_package_s_policy_is_found_by_its_name(installed):
    """Its method alone: schedules, products, the search with its proof and the command line follow."""
    for case in CORPUS[:10]:
        schedule = scheduled(case, "one-by-one")
        check(schedule)
        assert {len(step.actions) for of_rank in steps(schedule) for step in of_rank} == {1}
        a, b = (np.ones(case[0].shape(x), dtype=np.float32) for x in "AB")
        assert np.array_equal(NumpyExecutor().run(schedule, (a, b)).result, a @ b)
    space = umm.Space(m=96, n=96, k=96, a="col", b="row", c="2d@2", policy="direct,one-by-one")
    result = umm.search(space, "h100-8", memory=None, top=24)
    assert result.proven
    assert {x.options.policy for x in result.top} == {"direct", "one-by-one"}
    sizes = ["-m", 96, "-n", 96, "-k", 96, "--a", "col", "--b", "row"]
    assert "one-by-one, prefetch 2" in good("simulate", *sizes, "--policy", "one-by-one")

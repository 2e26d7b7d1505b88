"""Movement by panels: the steps of umm.multiply and pgemm, as a schedule."""

import numpy as np
import pytest
from array_cases import random_layout
from command import times_only
from command import umm as command
from hypothesis import given
from hypothesis import strategies as st

import umm
from umm.errors import ScheduleError
from umm.machines import machine
from umm.plans.movement.blocks import by_owner
from umm.schedules.races import races
from umm.schedules.rules.invariants import check
from umm.schedules.table.details import GEMM, GET
from umm_hw.arrays.exchange import A, B, MessageExchange
from umm_hw.arrays.operand import works
from umm_hw.arrays.panels import Panels
from umm_hw.arrays.perform import Performer
from umm_hw.arrays.prediction import operands_of, schedule_of
from umm_hw.arrays.product import Product
from umm_hw.arrays.sharing import _fitted, bound, estimate, share_out, stepped
from umm_hw.numpy.executor import NumpyExecutor

NODES = machine("cpu-hdr", {"nodes": "8"})


def cyclic(n, block, grid, **more):
    rows, cols = map(int, grid.split("x"))
    text = f"cyclic:{block}x{block}:{grid}"
    return umm.Problem(m=n, n=n, k=n, a=text, b=text, c=text, ranks=rows * cols, dtype="float64", **more)


def drawn(rng, ranks, least, most):
    """A problem of sizes from least to below most, in random layouts over one of some numbers of ranks."""
    ranks = int(rng.choice(ranks))
    m, n, k = (int(x) for x in rng.integers(least, most, 3))
    texts = [random_layout(rng, shape, ranks) for shape in ((m, k), (k, n), (m, n))]
    return umm.Problem(m=m, n=n, k=k, **dict(zip("abc", texts, strict=True)), ranks=ranks, dtype="float64")


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("stationary", "ABC")
def test_panels_are_exact_and_race_free(seed, stationary):
    """Any layouts, on one host and on several: the product is right, and no two actions race."""
    rng = np.random.default_rng(seed)
    problem = drawn(rng, [1, 2, 3, 4, 6, 8], 1, 40)
    schedule = umm.schedule(
        problem, NODES if seed % 2 else "h100-8", stationary=stationary, movement="panels"
    )
    check(schedule)
    assert races(schedule) == []
    a, b = (rng.integers(-9, 10, shape).astype(float) for shape in map(problem.shape, "AB"))
    assert np.array_equal(NumpyExecutor(order="random", seed=seed).run(schedule, (a, b)).result, a @ b)


def test_a_panel_comes_once_however_small_its_blocks_are():
    """Blocks of 64 on 2x4 ranks: of 2048 x 2048 a rank gets 3 panels of A and one of B, in few messages."""
    small, large = (cyclic(2048, block, "2x4") for block in (64, 256))
    moved = {}
    for problem in (small, large):
        schedule = umm.schedule(problem, NODES, stationary="C", movement="panels")
        moved[problem.a] = int(schedule.nbytes[schedule.kind == GET].sum())
    assert set(moved.values()) == {8 * 2048**2 * (3 + 1)}
    flat = umm.schedule(large, NODES, stationary="C")
    assert flat.nbytes[flat.kind == GET].sum() > 1.5 * moved[large.a]  # a tile again for each block of C


@pytest.mark.parametrize("grid", ["2x2", "2x4", "4x2"])
def test_the_schedule_has_the_steps_panels_and_messages_of_pgemm(grid):
    """As many GEMMs of the same depth, and as many bytes from each rank, as the executor's own plan."""
    problem = cyclic(6144, 48, grid)
    schedule = umm.schedule(problem, NODES, stationary="C", movement="panels")
    product = stepped(operands_of(problem), "stationary C", several_hosts=True)
    depths, received = [], 0
    for rank in range(problem.p):
        for step in range(product.steps):
            depths += [Panels(product, rank).depth(x, step) for x in Panels(product, rank).groups]
        received += sum(
            rows.size * cols.size * 8
            for kind in (A, B)
            for source in product.sources(kind, rank)
            for step in range(product.steps)
            for rows, cols in [product.rectangle(kind, source, rank, step)]
        )
    gemms = schedule.kind == GEMM
    assert product.steps > 1
    assert gemms.sum() == len(depths)
    assert sorted(schedule.details.shape[gemms, 1, 1].tolist()) == sorted(depths)
    assert schedule.nbytes[schedule.kind == GET].sum() == received


def test_steps_are_as_deep_as_half_of_the_operands_allow():
    """32768 cubed on 8x8 ranks, 384 MiB each: k in parts of 128 of each panel take 128 MiB beside them.

    Parts of 32, which 64 MiB would hold, make a pass over C of 128 MiB for each: they wait for memory.
    """
    problem = cyclic(32768, 256, "8x8")
    product = stepped(operands_of(problem), "stationary C", several_hosts=True)
    assert product.steps == 32
    assert product.part_sizes(0).tolist() == [128] * 8
    assert MessageExchange(None).bytes_beside(product, 0, product.steps) == 112 * 2**20


def test_thin_panels_are_put_together_until_a_gemm_hides_its_pass_over_c():
    """On 8x16 ranks room allows steps of 32 of 16 panels: four at a time, the last rank's own among them."""
    product = stepped(operands_of(cyclic(32768, 256, "8x16")), "stationary C", several_hosts=True)
    assert (product.steps, set(product.part_sizes(0).tolist())) == (64, {32})
    for rank in (0, 127):
        panels = Panels(product, rank)
        assert [panels.depth(group, 0) for group in panels.groups] == [128] * 4
        place = product.a.place_of_rank[rank][1], product.b.place_of_rank[rank][0]
        assert place in [product.classes[number][1:3] for number in panels.groups[0]]
    assert max(Performer(product, rank, MessageExchange(None)).nbytes for rank in (0, 127)) == 54 * 2**20


@pytest.mark.parametrize("seed", range(30))
def test_panels_that_are_put_together_in_steps_are_exact_and_race_free(seed, monkeypatch):
    """Any layouts and ways in 2 to 5 steps, a panel deep enough from 8 indices of k."""
    monkeypatch.setattr("umm_hw.arrays.panels.DEEP", 8)
    rng = np.random.default_rng(seed)
    problem = drawn(rng, [2, 4, 6, 8], 20, 80)
    operands = operands_of(problem)
    results = works(*operands)
    work = results[int(rng.integers(len(results)))]
    product = Product(*operands, work, int(rng.integers(2, 6)), operands[0].dtype, joins=True)
    schedule = schedule_of(product, NODES if seed % 2 else umm.machine("h100-8"))
    check(schedule)
    assert races(schedule) == []
    a, b = (rng.integers(-9, 10, shape).astype(float) for shape in map(problem.shape, "AB"))
    assert np.array_equal(NumpyExecutor(order="random", seed=seed).run(schedule, (a, b)).result, a @ b)


@given(st.integers(1, 40), st.integers(1, 9), st.sampled_from(["2x2", "1x4", "2x3", "3x2"]))
def test_by_owner_every_rank_holds_as_much_as_before(n, block, grid):
    """Of every matrix; and where blocks are dealt over as many rows as columns, in one tile."""
    problem = cyclic(n, block, grid)
    result = by_owner(problem)
    for was, now in zip(problem.layouts, result.layouts, strict=True):
        for rank in range(problem.p):
            areas = [
                sum((r.stop - r.start) * (c.stop - c.start) for r, c in map(x.tile_bounds, x.tiles_of(rank)))
                for x in (was, now)
            ]
            assert areas[0] == areas[1]
    rows, cols = map(int, grid.split("x"))
    if rows == cols:
        assert [x.grid_shape() for x in result.layouts] == [(rows, cols)] * 3


@pytest.mark.parametrize("seed", range(10))
def test_ways_are_ruled_out_by_less_than_their_estimates(seed):
    """So among 64 ranks one way is looked at in full, not thirty: a second, where it was minutes."""
    rng = np.random.default_rng(seed)
    problem = drawn(rng, [2, 4, 6, 8], 1, 60)
    operands = operands_of(problem)
    compute, best = operands[2].dtype, float("inf")
    for work in works(*operands):
        made = _fitted(*operands, work, compute, MessageExchange(None), None)
        assert bound(work, compute) <= estimate(made)
        best = min(best, estimate(made))
    product, costs = share_out(operands, MessageExchange(None), None)
    assert costs[product.work.name] == best


def test_a_search_by_panels_is_not_bounded_by_the_ops_of_blocks():
    """Blocks of 32: multiplied one by one they would take longer than all panels do."""
    text = "cyclic:32x32:2x4"
    sizes = dict.fromkeys("mnk", 2048) | dict.fromkeys("abc", text)
    result = umm.search(umm.Space(**sizes, ranks=8, dtype="float64", movement="panels"), NODES, top=3)
    best = result.top[0]
    assert result.proven
    assert best.stationary == "C"
    assert best.bound_s <= best.makespan_s < umm.run(umm.schedule(cyclic(2048, 32, "2x4"), NODES)).makespan_s


def test_a_search_by_panels_leaves_out_what_takes_too_many_steps(monkeypatch):
    """With A in place panels are in more tiles than a layout may have here, so C stays."""
    monkeypatch.setattr("umm.layouts.layout.MOST_TILES", 1000)
    cyclic = ("cyclic:32x32:4x2",)
    sizes = {"m": 512, "n": 512, "k": 512, "a": cyclic, "b": cyclic, "c": cyclic, "stationary": ("A", "C")}
    result = umm.search(umm.Space(**sizes, ranks=8, dtype="float64", movement="panels"), NODES, top=3)
    assert {x.stationary for x in result.top} == {"C"}


def test_simulate_says_at_once_that_blocks_of_pdgemm_may_move_as_panels():
    """Before the simulation, which takes minutes where blocks are many; of other layouts nothing."""
    machine, sizes = ["--machine", "cpu-hdr", "--nodes", "2"], ["-m", "64", "-n", "64", "-k", "64"]
    words = ["simulate", *machine, *sizes, "--a", "cyclic:8x8:2x2"]
    alike = [*words, "--b", "cyclic:8x8:2x2", "--c", "cyclic:8x8:2x2"]
    with times_only():
        assert "--movement panels" in command(*alike).stderr
        assert "panels" not in command(*alike, "--movement", "panels").stderr
        assert "panels" not in command(*words, "--b", "row", "--c", "row").stderr


def test_nodes_of_one_rank_send_messages_too():
    """With a node for each rank the panels of a step move while those of the step before are multiplied."""
    alone = machine("cpu-hdr", {"nodes": "8", "ranks_per_node": "1"})
    schedule = umm.schedule(cyclic(6144, 48, "2x4"), alone, stationary="C", movement="panels")
    shared = umm.schedule(cyclic(6144, 48, "2x4"), NODES, stationary="C", movement="panels")
    assert len(schedule) == len(shared)
    assert (schedule.kind == GEMM).sum() > 8 * 8


def test_panels_do_not_move_operands_that_are_given_elsewhere():
    with pytest.raises(ScheduleError, match="multiplies operands where they start"):
        umm.schedule(cyclic(64, 4, "2x2", given="a=row"), NODES, stationary="C", movement="panels")

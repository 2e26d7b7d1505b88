"""Peers: every row is a schedule that gives the product; who is taken, and where that changes."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from command import good, record, umm
from examples import WHOLE, examples
from hypothesis import given, settings
from hypothesis import strategies as st

import umm as um
from umm.algorithms.scheduling import UNIVERSAL, algorithms
from umm.program.problem import Problem
from umm.space.bounds.closed_form import least_seconds
from umm.space.peers.contender import MARGIN, Stack, Timed, chosen, systems
from umm.space.peers.multiplies import Way
from umm.space.peers.peers import peers
from umm.space.peers.table import MAX_STRETCH, stretches
from umm_hw.numpy.executor import NumpyExecutor

MLP = {"mlp1": {"n": 49152, "k": 12288}, "mlp2": {"n": 12288, "k": 49152}}


def product_is_right(contender, problem, machine):
    """Every replica of C, in a random order, from the layouts the problem has."""
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-8, 9, problem.shape(x)).astype(np.float64) for x in "AB")
    made = contender.schedule(problem, machine)
    assert made.problem.outside == problem.outside
    result = NumpyExecutor("random", 7, replica=None).run(made, (a, b)).result
    assert np.array_equal(result, np.broadcast_to(a @ b, result.shape))


@pytest.mark.parametrize(
    ("machine", "preset"), [("h100-8", "mlp1"), ("pvc-12", "mlp2"), ("a100-2x4", "mlp1")]
)
def test_every_row_is_a_schedule_that_gives_the_product_at_small_size(machine, preset):
    """MLP-1 and MLP-2 with m = 8K: the rows' choices, executed on matrices a 512th as long, and uneven."""
    machine = um.machine(machine)
    problem = Problem(m=8192, **MLP[preset], ranks=machine.default_ranks)
    result = peers(problem, machine, crossover=None)
    names = [row.algorithm for row in result.rows]
    assert set(names) | set(result.refused) == {UNIVERSAL, "redistribute", *algorithms()} - {"scalapack"}
    assert names[0] == UNIVERSAL
    for sizes in ({x: getattr(problem, x) // 512 for x in "mnk"}, {"m": 13, "n": 29, "k": 22}):
        small = replace(problem, **sizes, dtype="float64", c_dtype="")
        for row in result.rows:
            product_is_right(row.contender, small, machine)


def test_rows_start_alike_and_say_what_they_move_and_hold():
    """MLP-1, 2-D layouts: of megatron's row A is gathered, from 2-D blocks, and C goes back to them."""
    problem = Problem(m=4096, **MLP["mlp1"], a="2d", b="2d", c="2d", ranks=8)
    result = peers(problem, "h100-8", crossover=None)
    rows = {row.algorithm: row for row in result.rows}
    assert rows["universal"].layouts == {"A": "2d", "B": "2d", "C": "2d"}
    assert rows["megatron"].layouts == {"A": "row@8", "B": "col", "C": "col"}
    assert rows["megatron"].bytes > problem.m * problem.k * 4 * 6
    for row in result.rows:
        made = row.contender.schedule(problem, result.machine)
        trace = um.run(made)
        assert row.makespan_s == trace.makespan_s >= least_seconds(problem, result.machine)
        assert row.memory_bytes == made.memory_bytes.max()
        assert 0 <= row.exposed_s <= row.makespan_s
        assert row.own_s <= row.makespan_s * (1 + 1e-9)
    assert list(result.to_frame().columns[:8]) == [
        "algorithm", "a", "b", "c", "makespan_s", "exposed_s", "bytes", "memory_bytes"
    ]  # fmt: skip


def test_each_row_is_there_as_soon_as_it_is_known():
    """Before the best layouts are found, and long before the ranges of all rows."""
    ended = []
    problem = Problem(m=512, n=512, k=512, a="row", b="row", c="row", ranks=4)
    result = peers(problem, "h100-8", crossover=False, ended=lambda row: ended.append((row, row.range_s)))
    names = [row.algorithm for row, _ in ended]
    assert sorted(names) == sorted(row.algorithm for row in result.rows)
    assert names[-1] == "redistribute" or UNIVERSAL in names[-2:]
    assert all(ends is None for _, ends in ended)


def test_given_says_where_operands_start():
    """As if the problem had these layouts; its own then do not matter."""
    size = {"m": 1024, "n": 2048, "k": 512, "ranks": 4}
    one = peers(Problem(**size, a="col", b="row", c="2d"), "h100-8", crossover=False)
    other = peers(Problem(**size, a="row@4", given="a=col,b=row,c=2d"), "h100-8", crossover=False)
    assert one.start == other.start
    assert [one.record(row) for row in one.rows] == [other.record(row) for row in other.rows]


def test_in_place_is_proven_by_a_search_over_stationary_matrices():
    problem = Problem(m=2048, n=8192, k=2048, a="row", b="col", c="2d", ranks=8)
    result = peers(problem, "h100-8", crossover=None)
    options = [um.schedule(problem, "h100-8", stationary=x) for x in "ABC"]
    assert result.rows[0].makespan_s <= min(um.run(x).makespan_s for x in options)


def test_what_does_not_fit_the_budget_is_listed_but_never_taken():
    """With 2x at rest and in flight, MLP-1 by rows cannot be multiplied in place."""
    problem = Problem(m=8192, **MLP["mlp1"], ranks=8)
    result = peers(problem, "h100-8", memory="2x", crossover=None)
    assert not result.rows[0].fits
    assert all(row.fits == (row.memory_bytes <= result.limit) for row in result.rows)
    assert result.best.fits
    assert "in place does not fit the budget" in result.verdict


# Who is taken -------------------------------------------------------------------------------------


START = Problem(m=64, n=64, k=64, a="row", b="col", c="col", ranks=4)
CONTENDERS = [
    Way("universal"),
    Way("redistribute", layouts=("row@4", "col", "col")),
    Way("ring", "ring"),
    Way("redistribute", layouts=("row", "row@4", "row")),
]


@settings(max_examples=examples(50))
@given(st.lists(st.tuples(st.floats(0.1, 10), st.booleans()), min_size=4, max_size=4))
def test_in_place_is_left_only_for_what_fits_and_is_faster_by_the_margin(facts):
    timed = [Timed(x, seconds, fits) for x, (seconds, fits) in zip(CONTENDERS, facts, strict=True)]
    taken = next(x for x in timed if x.contender is chosen(timed, START))
    if taken is not timed[0]:
        assert taken.fits
        assert not timed[0].fits or taken.makespan_s < timed[0].makespan_s * (1 - MARGIN)
    elif timed[0].fits:
        assert all(x.makespan_s >= taken.makespan_s * (1 - MARGIN) for x in timed if x.fits)
    preferred = chosen(timed, START, "multiply by ring")
    if preferred is not chosen(timed, START):
        assert preferred.in_words(START) == "multiply by ring"


def test_what_to_do_is_said_in_words():
    words = [x.in_words(START) for x in CONTENDERS]
    assert words == ["in place", "gather A", "multiply by ring", "gather B and move C from row"]


@given(st.integers(1, 10**6), st.integers(1, 10**7))
def test_a_single_change_is_found_to_one_part_in_eight(size, change):
    """Stretches cover everything asked about, without a gap."""
    result = stretches(size, lambda m: "below" if m < change else "above")
    assert (result[0].start, result[-1].stop) == (max(1, size // MAX_STRETCH), size * MAX_STRETCH)
    assert all(x.stop == y.start for x, y in pairwise(result))
    if result[0].start < change <= result[-1].stop:
        _, above = result
        assert above.way == "above"
        assert change <= above.start <= max(change + 1, change * 1.125)
    else:
        assert len(result) == 1


# Crossovers ---------------------------------------------------------------------------------------


def test_the_verdict_names_where_what_to_do_changes_and_simulation_agrees():
    """MLP-1 by rows on 8 GPUs: in the middle of every stretch the advised move is worth it, or none is."""
    problem = Problem(m=4096, **MLP["mlp1"], a="row", b="row", c="row", ranks=8)
    result = peers(problem, "h100-8")
    crossover = result.crossover
    assert crossover is not None
    assert f"m = {crossover.at}" in result.verdict
    assert {crossover.below, crossover.above} <= {x.way for x in result.stretches}
    for stretch in result.stretches if WHOLE else result.stretches[:2]:
        middle = replace(problem, m=(stretch.start + stretch.stop) // 2)
        answer = peers(middle, "h100-8", crossover=None)
        gain = 1 - answer.best.makespan_s / answer.rows[0].makespan_s
        if stretch.way == "in place":
            assert gain < 2 * MARGIN
        else:
            assert gain > MARGIN / 2


def test_where_nothing_changes_the_verdict_says_so():
    problem = Problem(m=64, n=64, k=64, a="row", b="col", c="row", ranks=2)
    result = peers(problem, "h100-8")
    assert result.crossover is None
    (all_of_it,) = result.stretches
    assert result.verdict.endswith(f". The same holds from m = {all_of_it.start} to m = {all_of_it.stop}.")


def test_layouts_for_one_m_alone_have_no_crossover():
    problem = Problem(m=8, n=8, k=8, a="edges:0-3-8x0-8:2x1", b="row", c="row", ranks=2)
    result = peers(problem, "h100-8")
    assert result.stretches == []
    assert result.crossover is None


# The command --------------------------------------------------------------------------------------


def test_the_command_prints_json_with_the_rows_and_the_verdict():
    result = record("peers", "--machine", "h100-8", "--preset", "mlp1", "-m", "4096", "--no-crossover")
    assert result["command"] == "peers"
    rows = result["rows"]
    assert {"universal", "dtensor", "cosma", "megatron", "fsdp"} <= {row["algorithm"] for row in rows}
    keys = {"algorithm", "a", "b", "c", "makespan_s", "exposed_s", "bytes", "memory_bytes"}
    assert all(keys <= set(row) and row["makespan_s"] > 0 for row in rows)
    assert result["verdict"] == "Move A to col, C from col: 13.16 ms, 4 % less than in place."
    assert (result["crossover"], result["stretches"]) == (None, [])
    assert "cannon" in result["refused"]


def test_the_command_lists_refusals_on_request_and_writes_a_page(tmp_path):
    page = tmp_path / "peers.html"
    flags = ["peers", "-m", 128, "-n", 256, "-k", 64, "--ranks", 6, "--no-crossover"]
    assert "(see --refused)" in good(*flags)
    text = good(*flags, "--refused", "--html", page)
    assert "cannon is not applicable: 6 ranks do not fit p = q²; choose 4" in text
    written = page.read_text()
    assert written.count('class="half"') == sum(line.startswith("  ") for line in text.splitlines()) - 1
    assert "universal: A row, B row, C row" in written


def test_a_budget_that_means_nothing_is_refused():
    result = umm("peers", "-m", 64, "-n", 64, "-k", 64, "--memory", "much")
    assert result.exit_code == 2
    assert "write it like 2x or 16GiB" in result.stderr


@pytest.fixture(scope="module")
def ranged():
    """Algorithms beside each other, with their ranges, on four ranks of h100-8."""
    problem = Problem(m=512, n=768, k=640, a="row", b="col", c="row", ranks=4)
    return peers(problem, "h100-8", crossover=False)


def test_rows_have_the_ranges_of_their_corners_and_the_verdict_says_who_may_be_faster(ranged):
    """On h100-8 the range of a row holds its time; a rival is named if it leads at some corner by 0.8 %."""
    result = ranged
    for row in result.rows:
        low, high = row.range_s
        assert low <= row.makespan_s <= high
    best = result.best
    ahead = [row for row in result.rows if row is not best and row.fits and best.lead(row) < -0.008]
    assert bool(ahead) == ("measure these two to decide" in result.verdict)
    assert result.starts is None  # every assumed start of the file has a range


def test_a_rival_that_leads_at_a_corner_is_named(ranged):
    result, best = ranged, ranged.best
    rival = next(row for row in result.rows if row is not best)
    sooner = tuple(0.9 * x for x in best.corners_s)
    rows = [replace(x, corners_s=sooner) if x is rival else x for x in result.rows]
    output = f"{rival.algorithm} may be 10 % faster than {best.algorithm}; measure these two"
    assert output in replace(result, rows=rows).verdict


def test_a_machine_without_assumed_numbers_has_ranges_without_a_width():
    row = peers(Problem(m=64, n=64, k=64, ranks=2), "h100-8", crossover=False).best
    assert replace(row, corners_s=()).range_s == (row.makespan_s, row.makespan_s)


def test_between_nodes_everybody_uses_all_cards():
    """A by rows, B by columns over 2 nodes of 4: 235 MB of B cross each way by 4 cards in 2.3 ms."""
    layouts = {"a": "row", "b": "col", "c": "row"}
    problem = Problem(m=8192, n=28672, k=8192, dtype="bfloat16", c_dtype="bfloat16", ranks=8, **layouts)
    result = peers(problem, "a100-2x4", crossover=None)
    seconds = {row.algorithm: row.makespan_s for row in result.rows}
    assert max(seconds[x] for x in ("dtensor", "fsdp", "sequence", "universal")) < 4 * 2.35e-3
    assert seconds["universal"] < seconds["dtensor"]


def test_schemes_whose_weights_do_not_fit_come_last():
    """56 layers of mixtral-8x22b on 16 nodes, with gradients and 12 bytes of states: GiB of a rank."""
    sizes = {"model": "mixtral-8x22b", "tokens": 2**19, "sequences": 128}
    outline, stack = (
        um.chain("moe-layer", backward=True, dtype="bfloat16", **sizes),
        Stack(56, ("all",), 12.0),
    )
    least = {}
    for scheme in systems(outline, 128, um.machine("h100-8", nodes=16)):
        changed = scheme.change(outline)
        laid = changed.laid_out(scheme.layouts, 128)
        least[scheme.name] = stack.least_bytes(changed, laid, "all") / 2**30
    assert {name: round(x) for name, x in least.items() if "ep8" in name} == {
        "ep8-dp16": 326,
        "ep8-fsdp16": 16,
    }
    assert [name for name, x in least.items() if x < 67] == ["ep8-fsdp16"]

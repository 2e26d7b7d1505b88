"""Muon: steps as a program are exact in any layout; plans are no slower than any placement, and balanced."""

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from click.testing import CliRunner
from examples import WHOLE, examples
from hypothesis import given, settings
from hypothesis import strategies as st

import umm
from experiments.muon.published import SETS, in_order
from umm.cli.main import main
from umm.errors import InputError
from umm.executor import executor as named
from umm.executor import run
from umm.layouts.layout import Layout
from umm.muon.emit import emitted
from umm.muon.owners import Owned, Weight, loads_of, longest_first, solve
from umm.muon.placements import PRODUCTS, Costs
from umm.muon.planning import Bucket, Planner, overlapped, plan
from umm.muon.program import JORDAN, newton_schulz, read_coefficients
from umm.muon.weights import Grid, Matrix, matrices
from umm.program.models import find_model
from umm.schedules.races import races
from umm.step.step import rates_of

MACHINE = umm.machine("h100-8", nodes=2)


def update(x, steps=JORDAN):
    for a, b, c in steps:
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def unit(rows, cols):
    """A matrix whose norm is 1."""
    x = np.random.default_rng(rows).standard_normal((rows, cols))
    return x / np.linalg.norm(x)


chains = st.builds(
    lambda rows, longer, *more: (rows, rows + longer, *more), st.integers(1, 9), st.integers(0, 9),
    st.sampled_from(["row", "col", "2d", "col@2", "row@4"]), st.integers(1, 3),
    st.sampled_from(["gemm", "syrk"]),
)  # fmt: skip
"""Rows, columns, layout of X, steps, and the library's kernel."""


def assert_steps(sizes, executor, dtype, atol=1e-11):
    """Steps on four ranks are those of one: within rounding, and one step of small integers exactly."""
    rows, cols, layout, steps, kernel = sizes
    integers = [(2.0, -1.0, 1.0)] if steps == 1 else JORDAN[:steps]
    chain = newton_schulz(rows, cols, layout, 4, coefficients=integers, kernel=kernel, dtype=dtype)
    schedule = umm.schedule(chain, "h100-8")
    assert not races(schedule)
    drawn = np.random.default_rng(rows).integers(-2, 3, (rows, cols)) if steps == 1 else unit(rows, cols)
    x = drawn.astype(dtype)
    result, expected = executor.run(schedule, {"X": x}).results["Y"], update(x, integers)
    np.testing.assert_allclose(
        result, expected, atol=0 if steps == 1 else atol, rtol=0 if steps == 1 else 1e-7
    )


@settings(max_examples=1000 if WHOLE else 25, deadline=None)
@given(chains)
def test_steps_of_any_layout_are_those_of_one_rank(sizes):
    assert_steps(sizes, named("numpy"), "float64")


@pytest.mark.mpi
@pytest.mark.usefixtures("shared_ranks")
@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("kernel", ["gemm", "syrk"])
def test_steps_run_on_mpi(kernel, steps):
    performer = named("mpi")
    assert_steps((8, 20, "col", steps, kernel), performer, "float64")
    performer.close()


@pytest.fixture(scope="module")
def device():
    """Four ranks on an OpenCL device."""
    pytest.importorskip("pyopencl", reason="pyopencl is not installed; make test-opencl has it")
    performer = named("opencl")
    yield performer
    performer.close()


@pytest.mark.timeout(3600)
@settings(max_examples=200 if WHOLE else 2, deadline=None)
@given(chains, st.sampled_from(["float32", "float64"]))
def test_steps_run_by_opencl(device, sizes, dtype):
    assert_steps(sizes, device, dtype, 1e-4 if dtype == "float32" else 1e-11)


@pytest.mark.parametrize("tokens", [6, 12])
@pytest.mark.parametrize("scheme", ["megatron", "sequence", "data"])
def test_the_preset_is_the_steps_of_a_matrix_whose_norm_is_below_one(scheme, tokens):
    """Of more rows than columns the transpose's."""
    chain = umm.chain("newton-schulz", tokens=tokens, hidden=9, dtype="float64").laid_out(scheme, 3)
    x = np.random.default_rng(4).uniform(-1, 1, (tokens, 9))
    result = run(umm.schedule(chain, "h100-8"), "numpy", {"X": x}).results["Y"]
    x /= np.sqrt(tokens * 9)
    np.testing.assert_allclose(result, update(x) if tokens < 9 else update(x.T).T, atol=1e-11)


shapes = st.tuples(
    st.sampled_from([256, 1024, 4096]), st.sampled_from([256, 2048, 8192]), st.integers(1, 40),
    st.sampled_from([1, 1, 16]),
)  # fmt: skip
weight_sets = st.lists(shapes, min_size=1, max_size=5).map(
    lambda drawn: [Matrix(f"w{i}", *x) for i, x in enumerate(drawn)]
)
RATES = rates_of(MACHINE, "bf16")


@pytest.mark.timeout(1800)
@settings(max_examples=1000 if WHOLE else 12)
@given(
    weight_sets,
    st.sampled_from(["fsdp8", "tp2-fsdp4", "fsdp16-ep8", "tp4-fsdp4", "tp8"]),
    st.fixed_dictionaries(
        {"syrk": st.booleans(), "batch": st.sampled_from([1, 32]), "resident": st.booleans()}
    ),
    st.sampled_from([(False, 0.0), (False, 0.0), (True, 0.0), (True, 0.05)]),
)
def test_the_best_mix_is_no_slower_than_any_placement(drawn, layouts, options, overlap):
    """Owners alone are those of longest first; the best is at its bound, or the gap is given."""
    costs = Costs(RATES, **options)
    result = plan(drawn, layouts, costs, overlap=overlap[0], backward=overlap[1])
    best = result.rows[-1]
    assert best.placement == "best"
    assert best.seconds <= min(row.seconds for row in result.rows)
    assert result.gap >= 0
    assert set(result.best) == {x.name for x in drawn}
    # Each rank's own matrices, one after another, take as long as the plan says.
    prices = Planner(drawn, result.grid, costs, overlap).chosen([*result.best.values()])
    loads = np.full(result.grid.ranks, sum(x.shared for x in prices))
    for x, price in zip(drawn, prices, strict=True):
        np.add.at(loads, [*result.homes.get(x.name, ())], price.owned)
    assert result.loads == pytest.approx(loads)
    if not overlap[0]:
        assert best.seconds == pytest.approx(loads.max() + sum(x.moved for x in prices))
    for name, ranks in result.homes.items():
        matrix = next(x for x in drawn if x.name == name)
        assert len(ranks) == matrix.count
        assert 0 <= min(ranks) <= max(ranks) < result.grid.ranks
        if result.grid.ep > 1 and matrix.each > 1 and result.best[name] == "owners":
            # Each group of ranks has as many experts as any other.
            groups = np.bincount(np.array(ranks) // (result.grid.ranks // result.grid.ep))
            assert max(groups) - min(groups) <= 1


@settings(max_examples=examples(10))
@given(weight_sets.filter(lambda x: len(x) < 4), st.sampled_from(["fsdp8", "tp4-fsdp4"]), st.data())
def test_no_mix_is_faster_than_the_bound(drawn, layouts, data):
    """Every mix of placements, with owners of longest first and collectives that overlap or not."""
    overlap = data.draw(st.sampled_from([(False, 0.0), (True, 0.0), (True, 1e-3), (True, 0.05)]))
    planner = Planner(drawn, Grid.parse(layouts), Costs(RATES), overlap)
    bound, _ = planner.mixes()
    for placements in product(planner.names, repeat=len(drawn)):
        assert planner.candidate("best", placements).row.seconds >= bound * (1 - 1e-9)


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4)), min_size=1, max_size=3), st.integers(1, 3))
def test_a_proven_plan_is_the_best_of_all_owners(drawn, ranks):
    """Against every way to share out up to twelve matrices."""
    weights = [Weight([0.0], [0.0], [0.0], [1], 0, Owned(float(each), count)) for each, count in drawn]
    mix = solve(weights, ranks)
    ways = [[x for x in product(range(count + 1), repeat=ranks) if sum(x) == count] for _, count in drawn]
    best = min(
        max(
            sum(each * share[rank] for (each, _), share in zip(drawn, shares, strict=True))
            for rank in range(ranks)
        )
        for shares in product(*ways)
    )
    busiest = max(
        sum(x.owned.each * share[rank] for x, share in zip(weights, mix.shares, strict=True))
        for rank in range(ranks)
    )
    assert mix.bound <= best * (1 + 1e-9)
    assert best <= busiest
    if busiest <= mix.bound * (1 + 1e-5):
        assert busiest == best


def test_the_program_beats_longest_first():
    """Graham's example: 3, 3, 2, 2, 2 on two ranks are 7 by longest first, 6 at best."""
    owned = {"a": Owned(3.0, 2), "b": Owned(2.0, 3)}
    assert max(loads_of(owned, longest_first(owned, 2), 2)) == 7
    mix = solve([Weight([0.0], [0.0], [0.0], [1], 0, x) for x in owned.values()], 2)
    assert sorted(loads_of(owned, dict(zip(owned, mix.shares, strict=True)), 2)) == [6, 6]
    assert mix.bound == pytest.approx(6, rel=1e-5)


@given(
    st.lists(st.tuples(st.floats(0.1, 9.0), st.integers(1, 30)), min_size=1, max_size=6), st.integers(1, 9)
)
def test_longest_first_spreads_all_and_keeps_its_bound(drawn, ranks):
    """No rank exceeds the mean by more than the longest matrix."""
    owned = {str(i): Owned(*x) for i, x in enumerate(drawn)}
    shares = longest_first(owned, ranks)
    total = sum(each * count for each, count in drawn)
    loads = loads_of(owned, shares, ranks)
    assert sum(loads) == pytest.approx(total)
    assert {name: sum(x) for name, x in shares.items()} == {name: x.count for name, x in owned.items()}
    assert max(loads) <= total / ranks + max(each for each, _ in drawn) + 1e-9


@given(st.lists(st.builds(Bucket, *[st.floats(0, 9)] * 3), min_size=1, max_size=8), st.floats(0, 20))
def test_overlap_takes_less_than_one_after_another_and_no_less_than_a_lane(buckets, backward):
    seconds = overlapped(buckets, backward)
    compute, moved = sum(x.compute for x in buckets), sum(x.before + x.after for x in buckets)
    assert max(compute, moved - backward) - 1e-9 <= seconds <= compute + moved + 1e-9
    assert seconds <= overlapped(buckets) + 1e-9


@pytest.mark.parametrize("each", SETS, ids=lambda x: x.source)
def test_published_placements_are_in_order_and_times_within_15_percent(each):
    """Megatron-LM 6676: 157 ms at owners, 356 with sums of X·Xᵀ, 632 duplicated; and all others."""
    for predicted in each.predicted():
        assert in_order(each.measured, predicted)
        for name, ms in each.measured.items() if each.timed else ():
            assert abs(predicted[name] * 1e3 / ms - 1) < 0.15


def test_matrices_are_those_of_the_layers():
    """llama-3-8b: seven matrices a layer, no embedding, no norm."""
    every = matrices(find_model("llama-3-8b"))
    assert sum(x.rows * x.cols * x.count for x in every) == 32 * (
        2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    )
    named = {x.name: x for x in matrices(find_model("qwen3-30b-a3b"))}
    assert [(x.rows, x.cols, x.each, x.layers) for name, x in named.items() if "experts" in name] == [
        (768, 2048, 128, 48), (768, 2048, 128, 48), (2048, 768, 128, 48)
    ]  # fmt: skip
    for name in ("deepseek-v3", "qwen3-235b-a22b"):
        every = [x.name for x in matrices(find_model(name))]
        assert len(every) == len(set(every))


@pytest.mark.parametrize("text", ["fsdp", "tp4fsdp4", "dp8", "tp2-tp4", "fsdp0", "fsdp8-ep3"])
def test_a_grid_that_means_nothing_is_refused(text):
    with pytest.raises(InputError):
        Grid.parse(text)


def test_experts_without_ranks_to_spread_over_are_answered_with_a_grid():
    with pytest.raises(InputError, match=r"ep8 does not divide the 1 ranks of ep8, .* are fsdp8-ep8$"):
        Grid.parse("ep8")


def test_a_matrix_of_a_model_has_the_shape_of_torchs_weight():
    """Rows are outputs. FSDP splits them, so only down_proj's parts are exchanged before X·Xᵀ is summed."""
    up, down = (
        next(x for x in matrices(find_model("llama-3-8b")) if x.name == name)
        for name in ("mlp.up_proj", "mlp.down_proj")
    )
    assert ((up.rows, up.cols), (down.rows, down.cols)) == ((14336, 4096), (4096, 14336))
    before = [
        Planner([x], Grid(1, 8), Costs(RATES), (False, 0.0)).prices[0]["gram"].before for x in (up, down)
    ]
    assert before[0] == 0 < before[1]


def test_syrk_halves_two_of_three_products_and_batches_take_no_longer():
    """4096 x 4096: three equal products, of which two are halved, so two thirds of the time."""
    full, half = (Costs(RATES, syrk=syrk).compute(4096, 4096, 1) for syrk in (False, True))
    assert half / full == pytest.approx(2 / 3, abs=0.1)
    small = [Costs(RATES, batch=batch).compute(256, 256, 64) for batch in (1, 32)]
    assert small[1] < small[0]


def test_products_of_shampoo_and_soap_are_those_of_their_factors():
    """G of 2 x 3: L and R, then two products a side; SOAP rotates there and back."""
    multiplies = {
        name: sum(x.m * x.n * x.k for x in products(2, 3, 1, 5)) for name, products in PRODUCTS.items()
    }
    assert multiplies == {
        "muon": 5 * (12 + 8 + 12), "muon-gram": 2 * (12 + 12) + 14 * 8, "shampoo": 2 * (12 + 18),
        "soap": 3 * (12 + 18),
    }  # fmt: skip
    result = plan([Matrix("w", 512, 1024, 8)], "fsdp8", Costs(RATES, optimizer="soap"))
    assert [x.placement for x in result.rows] == ["duplicated", "owners", "layers", "best"]


def test_weights_that_live_with_their_owners_move_nothing_in_the_step():
    """torchtitan 3502: the backward pass reduces gradients to them, the forward pass broadcasts weights."""
    row = plan([Matrix("w", 4096, 4096, 8)], "fsdp8", Costs(RATES, resident=True), only="owners").rows[-1]
    assert (row.moved, row.collectives) == (0, 0)
    assert row.seconds == row.busiest


@pytest.mark.parametrize(("rows", "cols", "layout"), [(2048, 8192, "2d:2x4"), (8192, 2048, "2d:2x4")])
def test_a_step_in_place_takes_the_time_of_its_products_as_a_program(rows, cols, layout):
    """Tall ones are read transposed; three matrices take three times as long, and nothing is gathered."""
    row = plan([Matrix("w", rows, cols, 3)], "tp4-fsdp2", Costs(RATES, steps=1), only="in-place").rows[-1]
    layout = Layout.parse(layout, (rows, cols), 8)
    layout = layout.transposed if rows > cols else layout
    chain = newton_schulz(2048, 8192, layout, 8, coefficients=JORDAN[:1], dtype="bfloat16")
    assert row.seconds == pytest.approx(3 * run(umm.schedule(chain, MACHINE)).makespan_s)
    assert row.collectives == 0


def test_one_rank_moves_nothing():
    """8 matrices of 64 MiB each: two buckets, whose collectives nobody takes part in."""
    result = plan([Matrix("w", 4096, 8192, 8)], "fsdp1", Costs(RATES))
    assert {(row.moved, row.collectives) for row in result.rows} == {(0, 0)}


def test_a_placement_of_ranks_that_share_devices_computes_in_turns():
    """Four ranks of a host with one device: copies take four times as long as one matrix."""
    one, four = (
        plan([Matrix("w", 512, 512, 4)], grid, "localhost", only="duplicated", dtype="float32").rows[-1]
        for grid in ("fsdp1", "fsdp4")
    )
    assert four.busiest == pytest.approx(4 * one.busiest)


def test_plans_are_written_for_trainers():
    names = {"mlp.up": "owners", "a'b\n": "gram"}
    result = plan([Matrix(name, 64, 64, 2) for name in names], "tp2-fsdp2", Costs(RATES), only="owners")
    result = replace(result, best=names, homes={"mlp.up": (3, 0)})
    given: dict = {}
    exec(emitted(result, "megatron"), given)
    assert given["muon_tp_mode"] == {"mlp.up": "layer_sharded", "a'b\n": "distributed"}
    assert given["ns_homes"] == {"mlp.up": [(1, 1), (0, 0)]}
    exec(emitted(result, "torchtitan"), given)
    assert given["owners"] == {"layers.0.mlp.up": 3, "layers.1.mlp.up": 0}
    assert given["sharded"] == {"a'b\n": "gram"}
    assert emitted(result, "megatron").count("# ") >= 2
    with pytest.raises(InputError):
        emitted(result, "jax")
    with pytest.raises(InputError, match="has no mode for mlp"):
        emitted(replace(result, best={"mlp.up": "in-place"}), "megatron")


def test_owners_are_of_the_layers_that_have_a_weight():
    """Llama 4 Maverick has experts in every second layer, the first dense; a layer alone is one rank's."""
    weights = matrices(find_model("llama-4-maverick"))
    given: dict = {}
    result = plan(weights, "fsdp8", Costs(RATES), only="layers")
    exec(emitted(result, "torchtitan"), given)
    assert len(given["owners"]) == sum(x.count for x in weights)
    for module, first in (("mlp.gate_proj", 0), ("mlp.experts.gate_proj.127", 1)):
        of_layers = {x: y for x, y in given["owners"].items() if x.endswith(f".{module}")}
        assert of_layers == {f"layers.{x}.{module}": x % 8 for x in range(first, 48, 2)}


def test_coefficients_come_from_a_file(tmp_path):
    path = tmp_path / "steps.toml"
    path.write_text("steps = [[1.5, -0.5, 0], [3, -4.5, 2]]")
    assert read_coefficients(path) == ((1.5, -0.5, 0.0), (3.0, -4.5, 2.0))
    for text in ("", "steps = []", "steps = [[1, 2]]", "steps = [[1, 2, nan]]", 'steps = [["1", 2, 3]]'):
        path.write_text(text)
        with pytest.raises(InputError):
            read_coefficients(path)


def test_the_command_prints_a_table_and_json():
    command = ["muon", "--model", "llama-3-8b", "--layouts", "fsdp8"]
    text = CliRunner().invoke(main, command)
    assert text.exit_code == 0, text.output
    assert max(map(len, text.stdout.splitlines())) <= 80
    record = json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)
    assert len(record["loads_s"]) == 8
    assert (min(record["loads_s"]), max(record["loads_s"])) == tuple(
        record["rows"][-1][key] for key in ("idlest_s", "busiest_s")
    )
    assert {row["placement"] for row in record["rows"]} >= {"duplicated", "owners", "layers", "gram", "best"}
    assert record["best"]["mlp.down_proj"] in {"duplicated", "owners", "layers", "gram"}
    assert CliRunner().invoke(main, [*command[:3], "--layouts", "fsdp64"]).exit_code == 2
    for more in (
        ["--json", "--emit", "megatron"],
        ["--placement", "none", "--emit", "megatron"],
        ["--placement", "gram"],
        ["--backward", "nan"],
        ["--coefficients", "none.toml"],
    ):
        refused = CliRunner().invoke(main, [*command, *more])
        assert refused.exit_code == 2, refused.output
        assert len(refused.stderr.splitlines()) == 1
    text = CliRunner().invoke(main, [*command, "--emit", "megatron"]).stdout
    assert text.startswith("# --muon-tp-mode by weight; predicted ")

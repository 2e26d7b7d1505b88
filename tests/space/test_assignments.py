"""The search over a chain's layouts: bounds below every joined schedule, and the best of all of them."""

import random
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import layout_texts

import umm
from umm.errors import InfeasibleError, InputError, UmmError
from umm.executor import executor
from umm.plans.lower import lower
from umm.plans.steady import steady
from umm.program import Chain
from umm.program.layers import repeated
from umm.schedules.table.details import GEMM
from umm.space.bounds.batch_work import batch_work
from umm.space.bounds.program import LayoutProgram
from umm.space.bounds.tables import tables_of
from umm.space.pricing.multiplies import pricer_of
from umm.space.search.descent import ONE_BY_ONE, divide, near_the_bound
from umm.space.search.effort import Effort
from umm.space.search.search import more_memory
from umm.space.search.walk import Incumbents


def of_chain(chain, ranks, layouts=None, **more):
    return umm.Space(chain=chain, ranks=ranks, layouts=layouts, **more)


def outline(name="mlp", backward=True, **sizes):
    return umm.chain(
        name, backward=backward, dtype="float16", **({"tokens": 96, "hidden": 128, "ffn": 256} | sizes)
    )


@pytest.mark.parametrize(
    ("machine", "ranks", "layouts", "options"),
    [
        ("h100-8", 4, ("col@2", "row@p"), {"prefetch": 0, "max_accumulates": 4}),
        ("pvc-12", 4, ("2d", "row@p"), {}),
        ("localhost", 2, ("row", "col@2"), {"granularity": "slice"}),
    ],
)
def test_no_joined_schedule_beats_its_bound(machine, ranks, layouts, options):
    """Random assignments; the schedules of localhost are of ranks that may share a device."""
    machine = umm.machine(machine)
    dtype = "float16" if "float16" in machine.peaks else "float32"
    chain = umm.chain("mlp", tokens=500, hidden=1024, ffn=2048, backward=True, dtype=dtype)
    space = of_chain(chain, ranks, layouts)
    tables = tables_of(space.points(), machine, options, 0.0)
    busiest, memory = tables.all_busiest(), tables.all_memory()
    rng, simulate = random.Random(0), executor("sim").makespan
    for number in rng.sample(range(len(busiest)), 8):
        place = tuple(np.unravel_index(number, tables.shape))
        schedule = lower(space.points().program(place), machine, **options)
        assert tables.busiest(place) == pytest.approx(busiest[number], rel=1e-12)
        assert simulate(schedule) >= tables.bound(place) >= tables.busiest(place)
        assert schedule.memory_bytes.max() >= tables.memory(place) == memory[number]


@pytest.mark.parametrize(
    ("name", "machine"),
    [("gated-mlp", "h100-8"), ("gated-mlp", "pvc-12"), ("transformer-layer", "dgx-h100x4")],
)
def test_no_layer_beats_its_bound(name, machine):
    """Random assignments of long chains: replicated results, additions into one tensor, heads, norms."""
    sizes = {"hidden": 256, "ffn": 512} | ({"heads": 4} if name == "transformer-layer" else {})
    machine = umm.machine(machine)
    dtype = "float16" if "float16" in machine.peaks else "float32"
    chain = umm.chain(name, tokens=128, backward=True, dtype=dtype, **sizes)
    layouts = ("row", "row@p") if name == "transformer-layer" else ("row", "2d", "row@p")
    space = of_chain(chain, 4, layouts, stationary="best")
    tables = tables_of(space.points(), machine, {}, 0.0)
    rng, simulate = random.Random(1), executor("sim").makespan
    for _ in range(3):
        place = tuple(rng.randrange(count) for count in tables.shape)
        schedule = lower(space.points().program(place), machine, stationary=tables.stationary(place))
        assert simulate(schedule) >= tables.bound(place)


@pytest.mark.parametrize("asked", [{"tokens": 128}, {"decode": True, "batch": 4, "context": 64}])
def test_no_layer_with_weights_of_8_bits_beats_its_bound(asked):
    sizes = {"hidden": 2048, "ffn": 4096, "heads": 8, "kv_heads": 4, "dtype": "bfloat16", "weights": "fp8"}
    machine = umm.machine("h100-8")
    space = of_chain(umm.chain("transformer-layer", **sizes, **asked), 4, ("row", "col", "row@p"))
    tables = tables_of(space.points(), machine, {}, 0.0)
    rng, simulate = random.Random(1), executor("sim").makespan
    for _ in range(6):
        place = tuple(rng.randrange(count) for count in tables.shape)
        assert simulate(lower(space.points().program(place), machine)) >= tables.bound(place)


def test_the_bound_of_a_data_parallel_layer_is_what_its_links_carry():
    """Gradients of llama-3-8b, and of its keys, fill the links: 3.23 of 3.53 ms."""
    chain = umm.chain(
        "transformer-layer", hidden=4096, heads=32, kv_heads=8, ffn=14336, tokens=8192, backward=True,
        dtype="bfloat16",
    )  # fmt: skip
    machine, points = umm.machine("h100-8"), of_chain(chain, 8, ("row", "row@p")).points()
    tables, place = tables_of(points, machine, {}, 0.0), points.place(chain.layouts["data"])
    takes = executor("sim").makespan(lower(points.program(place), machine))
    assert takes >= tables.bound(place) >= 0.91 * takes


def test_a_norm_that_goes_on_where_a_sum_ended_is_priced_as_that():
    """Both norms of a layer read as much, but the second has it in registers: 2.8 in place of 8.6 µs."""
    chain = umm.chain(
        "transformer-layer", hidden=4096, heads=32, kv_heads=8, ffn=14336, tokens=8192, dtype="bfloat16"
    )
    machine, points = umm.machine("h100-8"), of_chain(chain, 8, ("row", "row@p")).points()
    tables, place = tables_of(points, machine, {}, 0.0), points.place(chain.layouts["data"])
    spans = {
        str(x): y.works[y.at(place)].span.max()
        for x, y in zip(chain.statements, tables.statements, strict=True)
    }
    assert spans["N1 = rms_norm(X, g1)"] == pytest.approx(8.6e-6, rel=0.01)
    assert spans["N2 = rms_norm(R, g2)"] == pytest.approx(2.8e-6, rel=0.01)
    assert executor("sim").makespan(lower(points.program(place), machine)) >= tables.bound(place)


def test_the_bound_of_a_layer_counts_what_its_sums_and_products_wait_for():
    """llama-3-70b on 8 H100s: megatron waits for four sums, sequence for the sums at each rank."""
    chain = umm.chain("transformer-layer", model="llama-3-70b", tokens=4096, backward=True, dtype="bfloat16")
    machine, points = umm.machine("h100-8"), of_chain(chain, 8, ("row", "col", "row@p")).points()
    tables, simulate = tables_of(points, machine, {}, 0.0), executor("sim").makespan
    for name, share in (("megatron", 0.99), ("sequence", 0.95)):
        place = points.place(chain.layouts[name])
        takes = simulate(lower(points.program(place), machine))
        assert takes >= tables.bound(place) >= share * takes, name


@pytest.mark.parametrize("layouts", [("row", "col"), ("col", "row@p"), ("row", "2d"), ("2d", "zigzag")])
def test_no_layer_of_long_transfers_beats_its_bound(layouts):
    """Random assignments where moves take longer than their starts, forward and backward."""
    chain = umm.chain(
        "transformer-layer", hidden=1024, heads=8, kv_heads=4, ffn=2048, tokens=4096, backward=True,
        dtype="bfloat16",
    )  # fmt: skip
    machine, points = umm.machine("h100-8"), of_chain(chain, 4, layouts).points()
    tables = tables_of(points, machine, {}, 0.0)
    rng, simulate = random.Random(2), executor("sim").makespan
    for _ in range(examples(6)):
        place = tuple(rng.randrange(count) for count in tables.shape)
        schedule = lower(points.program(place), machine, stationary=tables.stationary(place))
        assert simulate(schedule) >= tables.bound(place)


@settings(max_examples=examples(20), deadline=None)
@given(st.data())
def test_no_attention_beats_its_bound(data):
    """Heads that share keys or not, cut between ranks of one or more nodes: gets wait for room."""
    name, ranks = data.draw(st.sampled_from([("h100-8", 4), ("dgx-h100x4", 12), ("pvc-12", 6)]))
    heads = data.draw(st.sampled_from([(12, 3), (12, 12), (24, 6)]))
    sizes = {"tokens": data.draw(st.sampled_from([24, 768])), "hidden": 16 * heads[0]}
    chain = umm.chain(
        "attention", heads=heads[0], kv_heads=heads[1], sequences=data.draw(st.sampled_from([1, 2])),
        backward=data.draw(st.booleans()), dtype="float32" if name == "pvc-12" else "float16", **sizes,
    )  # fmt: skip
    machine = umm.machine(name)
    options = {"prefetch": data.draw(st.integers(0, 2)), "max_gemms": data.draw(st.integers(1, 2))}
    space = of_chain(chain, ranks, ("row", data.draw(st.sampled_from(["col", "2d", "row@p", "col@2"]))))
    tables = tables_of(space.points(), machine, options, 0.0)
    place = tuple(data.draw(st.integers(0, count - 1)) for count in tables.shape)
    schedule = lower(space.points().program(place), machine, stationary=tables.stationary(place), **options)
    assert executor("sim").makespan(schedule) >= tables.bound(place)


@settings(max_examples=examples(30), deadline=None)
@given(st.data())
def test_a_batch_is_priced_as_its_schedule_is(data):
    """Heads, shared or not, of one or two sequences, in any layouts: the same gemms, the same bytes."""
    ranks, machine = (
        data.draw(st.sampled_from([2, 4, 6])),
        data.draw(st.sampled_from(["h100-8", "dgx-h100x4"])),
    )
    chain = umm.chain(
        "attention-stored", tokens=24, hidden=96, heads=12, kv_heads=data.draw(st.sampled_from([3, 12])),
        sequences=data.draw(st.sampled_from([1, 2])), backward=True, dtype="float16",
    )  # fmt: skip
    statement = data.draw(st.sampled_from([x for x in chain.statements if getattr(x, "is_batch", False)]))
    names = {statement.out, *statement.reads}
    laid = {x.name: x.laid_out(data.draw(layout_texts((x.rows, x.cols), ranks)), ranks)
            for x in chain.tensors if x.name in names}  # fmt: skip
    tensors = [replace(x, role="output" if name == statement.out else "input") for name, x in laid.items()]
    schedule = lower(Chain("batch", tuple(tensors), (statement,), ranks), machine)
    result, moves = batch_work(statement, laid, umm.machine(machine)), schedule.src != schedule.dst
    gemms = schedule.kind == GEMM
    seconds = np.bincount(schedule.rank[gemms], schedule.seconds[gemms], ranks)
    assert result.gemms == pytest.approx(seconds, rel=1e-12)
    nbytes = np.zeros((ranks, ranks))
    np.add.at(nbytes, (schedule.src[moves], schedule.dst[moves]), schedule.payload[moves])
    assert (result.nbytes == nbytes).all()
    assert result.actions >= len(schedule)


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_the_program_finds_the_least_of_all_assignments(data):
    """Up to five groups of up to three choices, loads of one to three groups together on two resources."""
    shape = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=5))
    tables = [((group,), np.ones((count, 2))) for group, count in enumerate(shape)]
    for _ in range(data.draw(st.integers(0, 5))):
        groups = tuple(sorted(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1, max_size=3))))
        sizes = [*(shape[x] for x in groups), 2]
        loads = data.draw(
            st.lists(st.integers(0, 9), min_size=int(np.prod(sizes)), max_size=int(np.prod(sizes)))
        )
        tables.append((groups, np.array(loads, dtype=float).reshape(sizes)))

    def busiest(place):
        return np.sum([x[tuple(place[group] for group in groups)] for groups, x in tables], axis=0).max()

    places = list(product(*map(range, shape)))
    program = LayoutProgram(tables, [np.zeros((count, 1)) for count in shape])
    bound, place = program.least()
    assert busiest(place) == min(map(busiest, places))
    assert bound == pytest.approx(busiest(place), rel=1e-5)
    assert bound <= busiest(place)
    program.by_choice()
    seconds, listed = program.below(bound + 2, program.left(bound + 2))
    assert sorted(map(tuple, listed.tolist())) == [x for x in places if busiest(x) < bound + 2]
    assert seconds.tolist() == [busiest(x) for x in listed.tolist()] == sorted(seconds)


def test_the_program_keeps_to_the_memory_of_each_rank():
    """Two tensors, each on one of two ranks or on the other: both on one take less, but do not fit."""
    together = np.array([[1.0, 2.0], [2.0, 1.0]])[..., None]
    memory = [np.array([[0.6, 0.0], [0.0, 0.6]])] * 2
    assert LayoutProgram([((0, 1), together)], [x / 2 for x in memory]).least()[0] == pytest.approx(
        1.0, rel=1e-5
    )
    bound, place = LayoutProgram([((0, 1), together)], memory).least()
    assert bound == pytest.approx(2.0, rel=1e-5)
    assert place in ((0, 1), (1, 0))


def test_the_best_is_the_best_of_all_assignments_simulated():
    space = of_chain(outline(backward=False, tokens=2048, hidden=2048, ffn=4096), 4, ("row", "col", "row@4"))
    machine, simulate = umm.machine("h100-8"), executor("sim").makespan
    result = umm.search(space, machine, memory=None, top=3)
    times = sorted(
        simulate(lower(space.points().program(place), machine))
        for place in product(*(range(len(x)) for x in space.points().choices))
    )
    assert result.proven
    assert result.simulated < result.priced == len(times)
    assert [x.makespan_s for x in result.top] == pytest.approx(times[:3], rel=1e-9)


def test_a_smaller_budget_is_kept_and_never_faster():
    space = of_chain(outline(tokens=1024, hidden=1024, ffn=2048), 4, ("col", "row@4"))
    times = []
    for memory in ("3x", "4x", None):
        result = umm.search(space, "h100-8", memory=memory, top=1)
        assert result.top[0].memory_bytes <= result.limit
        times.append(result.top[0].makespan_s)
    assert times == sorted(times, reverse=True)
    with pytest.raises(InfeasibleError, match="no layouts of chain mlp fit"):
        umm.search(space, "h100-8", memory="0.5x")


def test_a_search_that_stops_early_states_its_gap():
    space = of_chain(outline(), 4, ("row", "col"))
    result = umm.search(space, "h100-8", memory=None, top=1, most=1)
    assert not result.proven
    assert 1 <= result.simulated <= 1 + len(result.named)
    assert 0 < result.gap < 1


def test_a_makespan_of_a_chain_has_a_range_and_what_ties_with_it():
    """Every corner of the machine's numbers; the best of two that are nearly alike may be either."""
    result = umm.search(of_chain(outline(backward=False), 4), "a100-8", memory=None, top=3)
    assert result.ranged == result.top
    best = result.record(result.top[0])
    low, high = best["makespan_range_s"]
    assert low <= best["makespan_s"] <= high
    assert low < high
    assert best["ties_with_first"]
    assert result.top[0] in result.tied


def test_bringing_inputs_is_bounded_and_changes_the_best():
    """Weights that lie by rows: to bring them costs more than to multiply where they are."""
    given_ = outline(backward=False, tokens=1024).with_given({"W1": "row", "W2": "row"})
    space, machine = of_chain(given_, 4, ("row", "col")), umm.machine("h100-8")
    tables, simulate = tables_of(space.points(), machine, {}, 0.0), executor("sim").makespan
    for place in product(*map(range, tables.shape)):
        schedule = lower(space.points().program(place), machine)
        assert simulate(schedule) >= tables.bound(place)
        assert schedule.memory_bytes.max() >= tables.memory(place)
    result, free = (umm.search(x, machine, memory=None, top=1) for x in (space, bare_forward()))
    assert result.proven
    assert result.top[0].makespan_s >= free.top[0].makespan_s


def bare_forward():
    return of_chain(outline(backward=False, tokens=1024), 4, ("row", "col"))


def test_a_search_without_time_has_one_assignment_and_bounds_of_others():
    result = umm.search(of_chain(outline(), 4), "a100-8", memory=None, seconds=0.0)
    assert result.cut
    assert result.simulated == len(result.top) == 1
    assert 0 < result.gap < 1
    assert len(result.left_out) + len(result.named) == 4
    assert all(seconds > 0 for seconds in result.left_out.values())


def test_a_space_of_a_chain_is_asked_for_by_name():
    space = umm.Space(chain=outline(), ranks=4)
    assert ("H", "G", "dG", "dH") in space.points().groups
    assert space.points().asked(0)["stationary"] == "auto"
    assert umm.Space(chain=outline(), ranks=4, stationary="C").points().asked(0)["stationary"] == "C"


def test_a_long_chain_is_searched_near_a_bound_and_states_its_gap():
    """Four million assignments of an attention; the best is no slower than named ones."""
    layer = umm.chain("attention-stored", tokens=512, hidden=512, heads=8, dtype="float16")
    space = of_chain(layer, 4)
    result = umm.search(space, "h100-8", memory=None, top=1, most=5_000)
    assert result.priced == space.points().count == 4**11
    assert not result.proven
    assert 0 < result.gap < 0.9
    assert set(result.named) == {"megatron", "sequence", "data", "tp2-dp2", ONE_BY_ONE}
    assert all(result.top[0].makespan_s <= seconds for seconds in result.named.values())


def test_tensor_parallelism_in_groups_of_a_node_is_the_best_where_it_is_faster():
    """54.4 µs by any layouts of the space, 50.9 by tp4-dp2: no search is beaten by a row of peers."""
    mlp = umm.chain("mlp", tokens=256, hidden=512, ffn=4096, backward=True, dtype="bfloat16")
    result = umm.search(of_chain(mlp, 8), "h100-8", memory=None, top=2)
    best, second = result.top
    assert result.named["tp4-dp2"] == best.makespan_s < 0.95 * second.makespan_s
    assert executor("sim").makespan(best.schedule("h100-8")) == best.makespan_s
    assert best.layouts == dict(mlp.layouts_of("tp4-dp2", 8))
    asked = umm.search(of_chain(mlp, 8, {"X": "all"}), "h100-8", memory=None, top=1)
    assert asked.points.place(asked.top[0].layouts) is not None


def test_dividing_that_is_interrupted_keeps_the_bound_it_has_reached():
    space, bounds = of_chain(outline(tokens=1024, hidden=1024, ffn=2048), 4), []
    pricer = pricer_of(space, umm.machine("h100-8"))
    result = Incumbents(pricer, 2**40, 1, Effort(pricer.work))
    program = near_the_bound(result.pricer, result)
    first = result.lowest

    def standing(best, bound):
        bounds.append(bound)
        if bound > first:
            raise KeyboardInterrupt

    result.standing = standing
    with pytest.raises(KeyboardInterrupt):
        divide(result.pricer, result, program)
    assert first < result.lowest == bounds[-1] <= result.first.makespan_s


def test_the_chains_own_layouts_are_points_of_the_space():
    space = of_chain(outline(), 4)
    for name, texts in space.program.layouts.items():
        place = space.points().place(texts)
        chain = space.program.laid_out(name, 4)
        assert [x.layout for x in space.points().program(place).tensors] == [x.layout for x in chain.tensors]
    assert space.points().place({"W1": "row@2"}) is None


def test_optimizer_state_counts_against_the_budget():
    """12 B for each element of W1 and W2, 128x256 both, a quarter of them on each rank where they are cut."""
    bare = of_chain(outline(), 4, ("row", "col"))
    memory = [umm.search(x, "h100-8", memory=None, top=1).top[0].memory_bytes for x in (bare, bare_and(12.0))]
    assert memory[1] - memory[0] == 12 * 2 * 128 * 256 / 4
    with pytest.raises(InfeasibleError):
        umm.search(bare_and(1000.0), "h100-8", memory="4x")


def bare_and(state):
    return of_chain(outline(), 4, ("row", "col"), state=state)


def test_scores_are_cut_between_heads_alone():
    """Four heads of eight keys: between 4 ranks by columns, but not between 8."""
    layer = umm.chain("attention-stored", tokens=8, hidden=32, heads=4)
    for ranks, choices in ((4, ("row", "col", "2d", "row@4")), (8, ("row", "2d", "row@8"))):
        space = of_chain(layer, ranks)
        assert space.points().choices[[x[0] for x in space.points().groups].index("S")] == choices
    with pytest.raises(InputError, match="S is needed by whole rows or heads, so no layout is left for it"):
        _ = of_chain(layer, 8, ("col",)).points().choices


def test_the_best_says_what_each_statement_moves():
    """All on every rank: each multiplies a share of k; a rank reads the three others' additions."""
    space = of_chain(outline(backward=False), 4, ("row@p",))
    result = umm.search(space, "h100-8", memory=None, top=1)
    assert result.moved == [("H = X·W1", {"H": 2 * 3 * 96 * 256}), ("Y = G·W2", {"Y": 2 * 3 * 96 * 128})]


@pytest.mark.parametrize("layers", [2, 3, 8])
def test_memory_of_many_layers_is_that_of_their_schedules(layers):
    """A search's memory of all layers equals that of simulating so many with its layouts."""
    of_one = umm.chain("mlp", hidden=64, ffn=128, tokens=96, backward=True)
    result = umm.search(of_chain(of_one, 4, layers=layers, state=12.0), "h100-8", top=1).top[0]
    made = steady(of_one, result.layouts, 4, umm.machine("h100-8"), layers, state=12.0)
    assert result.memory_bytes == pytest.approx(made.memory_bytes, rel=0.02)
    full = lower(repeated(of_one.with_layouts("best", result.layouts), layers).laid_out("best", 4), "h100-8")
    weights = sum(
        x.layout.elements_of_rank * 12
        for x in of_one.laid_out(result.layouts, 4).tensors
        if x.name in of_one.weights
    )
    assert result.memory_bytes == pytest.approx(int((full.memory_bytes + weights * layers).max()), rel=0.02)


def test_times_of_many_layers_are_of_one_in_the_middle():
    """A gated MLP: alone data takes 2.37 ms and megatron 2.01; between others 2.18 and 2.30.

    The sums of data's gradients run beside the next layer, which waits for those of megatron's outputs.
    """
    layer = umm.chain("gated-mlp", hidden=4096, ffn=14336, tokens=8192, dtype="bf16", backward=True)
    machine = umm.machine("h100-8")
    one, many = (
        umm.search(of_chain(layer, 8, layers=x), machine, memory=None, top=1, most=20_000) for x in (1, 32)
    )
    assert one.named["megatron"] == pytest.approx(2.01e-3, rel=0.01)
    assert one.named["data"] == pytest.approx(2.37e-3, rel=0.01)
    for name, seconds in (("megatron", 2.30e-3), ("data", 2.18e-3)):
        assert many.named[name] == pytest.approx(seconds, rel=0.01)
        made = steady(layer, layer.layouts_of(name, 8), 8, machine, 32)
        assert many.named[name] == pytest.approx(made.layer_s, rel=0.01)
    assert many.top[0].layouts["X"] == many.top[0].layouts["Y"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_decoded_layer_among_many_takes_what_simulating_so_many_adds(ranks):
    """On one H100 192.4 µs: the first layer alone, which reads X from memory, takes 195.5."""
    sizes = {"hidden": 8192, "ffn": 28672, "heads": 64, "kv_heads": 8, "batch": 8, "context": 64}
    layer = umm.chain("transformer-layer", dtype="bf16", weights="int4", decode=True, **sizes)
    result = umm.search(of_chain(layer, ranks, ("row",), layers=2), "h100-8", top=1).top[0]
    made = steady(layer, result.layouts, ranks, umm.machine("h100-8"), 2, stationary=result.stationary)
    assert result.makespan_s == pytest.approx(made.layer_s, rel=1e-9)
    if ranks == 1:
        assert made.alone_s == pytest.approx(195.5e-6, rel=1e-3)
        assert result.makespan_s == pytest.approx(192.4e-6, rel=1e-3)


def test_a_bound_of_a_layer_in_the_middle_is_below_all_of_them():
    """Loads alone count: first gathers and last sums run beside the layers before and after."""
    layer = outline(backward=True)
    space = of_chain(layer, 4, ("row", "col", "row@p"), layers=8)
    pricer, machine = pricer_of(space, umm.machine("h100-8")), umm.machine("h100-8")
    for place in random.Random(1).sample([*np.ndindex(*pricer.tables.shape)], 12):
        layouts = pricer.points.layouts(place)
        made = steady(layer, layouts, 4, machine, 8, stationary=pricer.tables.stationary(place))
        assert pricer.bound(place) <= made.layer_s * (1 + 1e-9)


def test_layers_are_of_a_layer():
    with pytest.raises(UmmError, match="layers"):
        umm.Space(8, 8, 8, layers=2)
    with pytest.raises(UmmError, match="no X and Y of one shape"):
        of_chain(umm.chain("head", hidden=8, vocab=16, tokens=4), 2, layers=2)


def test_what_more_memory_buys_is_faster_with_each_step():
    result = umm.search(of_chain(outline(), 2), "h100-8", memory="1.2x", top=1)
    steps = [result.top[0], *more_memory(result)]
    assert len(steps) > 1
    assert all(x.makespan_s <= 0.99 * y.makespan_s for y, x in pairwise(steps))
    assert all(x.memory_bytes > result.limit for x in steps[1:])

"""Presets: gradients against differences in float64, named layouts on executors, files."""

import numpy as np
import pytest
from command import record, times_only

import umm
from umm.checks import random_inputs
from umm.errors import InputError, ProblemError
from umm.machines.corners import corners
from umm.plans.lower import lower
from umm.plans.statements.multiplies import in_one_kernel
from umm.plans.steady import ends_in, steady
from umm.program import Map, Multiply, load_chain, save_chain
from umm.program.layers import repeated
from umm.program.models import find_model
from umm.program.outline import Outline, Shape
from umm.program.presets import PRESETS
from umm.program.systems import in_scheme
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import GEMM, MAP
from umm.space.bounds.statement_work import statement_work

SIZES = {
    "mlp": {"tokens": 5, "hidden": 4, "ffn": 6},
    "gated-mlp": {"tokens": 5, "hidden": 4, "ffn": 6},
    "attention": {"tokens": 5, "hidden": 16, "heads": 4, "kv_heads": 2},
    "transformer-layer": {
        "tokens": 6, "hidden": 16, "ffn": 6, "heads": 4, "kv_heads": 2, "sequences": 2,
    },
    "latent": {
        "tokens": 6, "hidden": 10, "heads": 4, "head_dim": 3, "q_rank": 6, "kv_rank": 5, "rope_dim": 2,
        "sequences": 2,
    },
    "latent-wide": {
        "tokens": 6, "hidden": 10, "heads": 4, "head_dim": 3, "kv_rank": 5, "rope_dim": 2, "value_dim": 2,
        "gate": 1,
    },
    "gated-wide": {
        "tokens": 8, "hidden": 16, "heads": 4, "kv_heads": 2, "value_dim": 3, "chunk": 2, "gate": 1,
        "sequences": 2,
    },
    "mamba": {
        "tokens": 6, "hidden": 6, "scan_heads": 4, "scan_groups": 2, "scan_key": 3, "scan_value": 2,
        "sequences": 2,
    },
    "delta": {
        "tokens": 6, "hidden": 6, "scan_heads": 4, "scan_groups": 2, "scan_key": 3, "scan_value": 2,
        "delta": 1,
    },
    "kimi-delta": {
        "tokens": 5, "hidden": 6, "scan_heads": 2, "scan_groups": 2, "scan_key": 3, "scan_value": 3,
        "delta": 1, "decay_rank": 2,
    },
    "mamba-1": {
        "tokens": 6, "hidden": 6, "scan_heads": 8, "scan_groups": 1, "scan_key": 3, "scan_value": 1,
        "decay_rank": 2, "sequences": 2,
    },
    "normed-after": {
        "tokens": 6, "hidden": 16, "ffn": 6, "heads": 4, "kv_heads": 2, "sequences": 2, "post_norm": 1,
    },
    "attention-stored": {"tokens": 5, "hidden": 16, "heads": 4, "kv_heads": 2},
    "summa25-layer": {"tokens": 6, "hidden": 16, "ffn": 6, "heads": 4, "sequences": 3},
}  # fmt: skip
SCHEMES = ("megatron", "sequence", "data")


def outlined(name):
    preset = name if name in PRESETS else "transformer-layer" if "ffn" in SIZES[name] else "attention"
    return umm.chain(preset, **SIZES[name], backward=True, dtype="float64")


def operands_of(chain, seed=0):
    rng = np.random.default_rng(seed)
    return {x.name: rng.standard_normal(x.shape) for x in chain.tensors if x.is_input}


@pytest.mark.parametrize("name", SIZES)
def test_gradients_are_those_of_differences(name):
    """Along a random direction of each input, (L(x + h) − L(x − h)) / 2h, where L = sum of Y·dY."""
    chain = outlined(name).laid_out(ranks=1)
    given = {key: 0.5 * x for key, x in operands_of(chain).items()}
    result = chain.reference(given)
    rng, h = np.random.default_rng(1), 1e-5
    for key in (x for x in chain.operand_names if x != "dY"):
        along = rng.standard_normal(given[key].shape)
        ends = [
            (chain.reference(given | {key: given[key] + step * along})["Y"] * given["dY"]).sum()
            for step in (h, -h)
        ]
        slope = (result[f"d{key}"] * along).sum()
        assert (ends[0] - ends[1]) / (2 * h) == pytest.approx(slope, rel=1e-6, abs=1e-7), key


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", SIZES)
def test_named_layouts_give_the_reference_in_any_order(name, scheme):
    chain = outlined(name).laid_out(scheme, ranks=4)
    given = operands_of(chain)
    schedule, expected = lower(chain, "dgx-h100x4"), chain.reference(given)
    assert "Y" in chain.outputs
    for order in ({"order": "rows"}, {"order": "random", "seed": 3}):
        trace = umm.run(schedule, executor="numpy", operands=given, replica=None, **order)
        for output in chain.outputs:
            for replica in trace.results[output]:
                assert np.allclose(replica, expected[output], rtol=1e-10, atol=1e-10), output


@pytest.mark.mpi
@pytest.mark.usefixtures("shared_ranks")
def test_a_layer_and_its_gradients_are_right_on_processes():
    chain = outlined("transformer-layer").laid_out("sequence", ranks=4)
    given = operands_of(chain)
    trace, expected = (
        umm.run(lower(chain, "dgx-h100x4"), executor="mpi", operands=given),
        chain.reference(given),
    )
    for output in chain.outputs:
        assert np.allclose(trace.results[output], expected[output], rtol=1e-10, atol=1e-10), output


def test_the_backward_part_of_an_mlp_reads_three_activations():
    """X for dW1, H for the derivative of gelu, G for dW2."""
    assert outlined("mlp").kept == ("X", "H", "G")
    assert umm.chain("mlp", **SIZES["mlp"]).kept == ()


def test_a_tensor_without_a_layout_is_cut_by_rows():
    chain = umm.chain("mlp", **SIZES["mlp"]).laid_out({"W1": "col@p", "H": "2d@2"}, ranks=4)
    layouts = {x.name: str(x.layout) for x in chain.tensors}
    assert layouts == {"X": "row", "Y": "row", "W1": "col@4", "W2": "row", "H": "2d@2", "G": "row"}


def test_a_model_gives_the_sizes_and_a_size_given_wins():
    outline = umm.chain("transformer-layer", model="llama-3-70b", tokens=8)
    shapes = {x.name: (x.rows, x.cols) for x in outline.tensors}
    assert shapes["W1"] == (8192, 28672)
    assert shapes["Wk"] == (8192, 1024)
    small = umm.chain("mlp", model="llama-3-8b", tokens=8, hidden=64)
    assert {x.name: (x.rows, x.cols) for x in small.tensors}["W1"] == (64, 14336)


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("mpl", {}, "there is no chain 'mpl'; did you mean 'mlp'?"),
        ("mlp", {"hidden": 4, "fnn": 6}, "chain mlp has no size 'fnn'; did you mean 'ffn'?"),
        ("mlp", {"hidden": 4}, "chain mlp needs tokens, hidden, ffn; give tokens and ffn"),
        ("mlp", {"hidden": 0, "ffn": 1, "tokens": 1}, "hidden of chain mlp = 0 is not possible"),
        ("attention", {"hidden": 12, "heads": 4, "tokens": 1}, "hidden must be a multiple of 2 · heads"),
        ("attention", {"hidden": 16, "heads": 4, "kv_heads": 3, "tokens": 1}, "kv_heads must divide heads"),
        ("mlp", {"model": "llama"}, "there is no model 'llama'"),
    ],
)
def test_what_is_not_a_preset_is_refused_in_one_line(name, sizes, message):
    with pytest.raises(InputError) as refused:
        umm.chain(name, **sizes)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_layouts_that_are_not_there_are_refused():
    outline = umm.chain("mlp", **SIZES["mlp"])
    with pytest.raises(InputError, match="did you mean 'megatron'"):
        outline.laid_out("megatrom", ranks=2)
    with pytest.raises(InputError, match="chain mlp has no tensor 'W9'"):
        outline.laid_out({"W9": "row"}, ranks=2)


@pytest.mark.parametrize("name", SIZES)
def test_a_chain_comes_back_from_its_file(name, tmp_path):
    outline = outlined(name).with_given({"X": "col"})
    save_chain(outline, tmp_path / "chain.toml")
    assert load_chain(tmp_path / "chain.toml") == outline


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "mlp"', 'nam = "mlp"', "a chain lacks 'name'"),
        ("shape = [5, 4]", "shape = [5, 4.0]", "a size of tensor 'X' = 4.0 is not possible"),
        ('kind = "map"', 'kind = "mop"', "kind 'mop' of statement 2 is unknown; did you mean 'map'?"),
        ('fn = "gelu"', 'fn = "glu"', "function 'glu' is unknown"),
        ("[layouts.", "[layout.", "has no key 'layout'"),
        ('H = "col"', "H = 3", "layouts of a chain must be tables of a text for each tensor"),
        ('H = "col"', 'HH = "col"', "has no tensor 'HH'"),
        ("shape = [5, 4]", "shape = [5, 4", "is not TOML"),
    ],
)
def test_a_file_that_is_not_a_chain_is_refused_in_one_line(old, new, message, tmp_path):
    path = tmp_path / "chain.toml"
    save_chain(umm.chain("mlp", **SIZES["mlp"]), path)
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(InputError) as refused:
        load_chain(path)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    with pytest.raises(InputError, match="cannot read"):
        load_chain(tmp_path / "none.toml")


def test_a_token_decoded_by_latent_vectors_is_the_last_of_its_sequence():
    """Two sequences of 4 tokens, whole and with the first 3 as a cache of latents: the same last rows."""
    sizes = SIZES["latent"] | {"dtype": "float64"}
    sizes = {x: size for x, size in sizes.items() if x not in ("tokens", "sequences")}
    full = umm.chain("attention", tokens=8, sequences=2, **sizes).laid_out()
    given = operands_of(full)
    result, last, earlier = full.reference(given), [3, 7], [0, 1, 2, 4, 5, 6]
    cache = {f"{x}.cache": result[x][earlier] for x in ("Nk", "Kr")}
    for layouts in ("megatron", "data"):
        decoded = umm.chain("attention", decode=True, batch=2, context=3, **sizes).laid_out(layouts, 2)
        operands = given | cache | {"X": given["X"][last]}
        run = umm.run(lower(decoded, "dgx-h100x4"), executor="numpy", operands=operands, replica=None)
        for replica in run.results["Y"]:
            assert np.allclose(replica, result["Y"][last], rtol=1e-12)


def test_the_cache_of_deepseek_v3_holds_576_numbers_a_token():
    """61 layers of 128 heads: 1,152 bytes a token and layer in bf16, where 128 heads would hold 64 KiB."""
    outline = umm.chain("moe-layer", model="deepseek-v3", decode=True, batch=1, context=100, dtype="bf16")
    assert sum(x.cols for x in outline.tensors if x.name.endswith(".cache")) == 512 + 64


def test_sequences_attend_to_themselves_alone():
    """Two sequences at once give the results of each by itself, and the sum of its gradients of weights."""
    sizes = {"hidden": 8, "heads": 2, "backward": True, "dtype": "float64"}
    both = umm.chain("attention", tokens=6, sequences=2, **sizes).laid_out()
    one = umm.chain("attention", tokens=3, **sizes).laid_out()
    given = operands_of(both)
    result = both.reference(given)
    parts = [
        one.reference(given | {name: given[name][rows] for name in ("X", "dY")})
        for rows in (slice(0, 3), slice(3, 6))
    ]
    assert np.allclose(result["Y"], np.vstack([x["Y"] for x in parts]), rtol=1e-12)
    assert np.allclose(result["dWk"], parts[0]["dWk"] + parts[1]["dWk"], rtol=1e-10)
    with pytest.raises(InputError, match="6 tokens cannot be 4 sequences of one length"):
        umm.chain("attention", tokens=6, sequences=4, **sizes)


def test_inputs_given_elsewhere_are_brought_before_they_are_read():
    """X and W2 lie by rows, W1 where `sequence` wants it; results are those of the reference."""
    outline = outlined("mlp").with_given({"X": "row@p", "W1": "col", "W2": "col"})
    chain = outline.laid_out("sequence", ranks=4)
    assert [str(x) for x in chain.statements[:2]] == ["X.here = copy of X", "H = X.here·W1"]
    layouts = {x.name: str(x.layout) for x in chain.tensors}
    assert (layouts["X"], layouts["X.here"], layouts["W2"], layouts["W2.here"]) == (
        "row@4",
        "row",
        "col",
        "row",
    )
    assert "W1.here" not in layouts
    given = operands_of(chain)
    result = umm.run(lower(chain, "dgx-h100x4"), executor="numpy", operands=given).results
    expected = chain.reference(given)
    assert all(np.allclose(result[x], expected[x], rtol=1e-10) for x in chain.outputs)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"Y": "row"}, "Y of chain mlp cannot be given elsewhere; choose from its inputs X, W1, W2, dY"),
        ({"Z": "row"}, "chain mlp has no tensor 'Z'"),
    ],
)
def test_what_is_not_an_input_cannot_be_given(given, message):
    with pytest.raises(InputError, match=message):
        outlined("mlp").with_given(given)


def test_a_summa25_layer_has_its_activations_on_layers_of_squares():
    """64 ranks are 4 layers of 4x4, 8 are 2 of 2x2; ffn is 4 hidden; gradients of weights lie as they do."""
    layer = umm.chain("summa25-layer", tokens=64, hidden=32, heads=4, sequences=16, backward=True)
    assert {x.name: x.cols for x in layer.tensors}["H"] == 128
    for ranks, (tokens, weights) in {64: ("2d:16x4", "2d:4x4@4"), 8: ("2d:4x2", "2d:2x2@2")}.items():
        texts = {x.name: str(x.layout) for x in layer.laid_out(ranks=ranks).tensors}
        assert {texts[x] for x in ("X", "Q", "S", "H", "G", "Y", "dX", "dH", "dS")} == {tokens}
        assert {texts[x] for x in ("W1", "W2", "dW1", "dW2")} == {weights}
    with pytest.raises(InputError, match="12 ranks are not d layers of q×q with d ≤ q"):
        layer.laid_out(ranks=12)


def test_the_gradients_of_a_summa25_layer_are_summed_over_its_layers():
    """On 8 ranks, a sequence and two heads each: dW in two replicas, both whole; attention moves nothing."""
    layer = umm.chain(
        "summa25-layer", tokens=12, hidden=8, heads=4, sequences=4, backward=True, dtype="float64"
    )
    made = layer.laid_out(ranks=8)
    schedule = umm.schedule(made, "dgx-h100x4")
    moved = schedule.operand_tensors(0)[schedule.src != schedule.dst]
    scores = [x.name for x in made.tensors].index("S")
    assert scores not in moved
    rng = np.random.default_rng(5)
    operands = {x.name: rng.uniform(-1, 1, x.shape) for x in made.tensors if x.is_input}
    outcome = umm.run(schedule, executor="numpy", operands=operands, replica=None).results
    expected = made.reference(operands)
    assert outcome["dW1"].shape == (2, 8, 32)
    for name, result in outcome.items():
        assert np.allclose(result, expected[name], rtol=1e-12), name


# Decoding, models ---------------------------------------------------------------------------------


def test_a_decoded_token_is_the_last_of_the_whole_sequence():
    """Two sequences of 4 tokens: the next one of each from a cache equals attention to all five."""
    full = umm.chain("attention", tokens=10, sequences=2, hidden=16, heads=4, kv_heads=2, dtype="float64")
    given = operands_of(full.laid_out(ranks=1))
    result = full.laid_out(ranks=1).reference(given)
    last, earlier = [4, 9], [0, 1, 2, 3, 5, 6, 7, 8]
    sizes = {"batch": 2, "context": 4, "hidden": 16, "heads": 4, "kv_heads": 2}
    chain = umm.chain("attention", decode=True, dtype="float64", **sizes).laid_out("megatron", 4)
    given |= {"X": given["X"][last], "K.cache": result["K"][earlier], "V.cache": result["V"][earlier]}
    results = umm.run(lower(chain, "dgx-h100x4"), executor="numpy", operands=given, replica=None).results
    for replica in results["Y"]:
        assert np.allclose(replica, result["Y"][last], rtol=1e-10)


def decoded(model, context, machine="h100-8"):
    """Return the trace of one token of a layer on 8 GPUs, in bfloat16."""
    outline = umm.chain(
        "transformer-layer", model=model, decode=True, dtype="bfloat16", batch=1, context=context
    )
    return umm.run(lower(outline.laid_out("megatron", 8), machine))


def test_multiplies_of_a_decoded_layer_take_what_was_measured():
    """Of 70B at TP 8 on H100, one token, µs: Q, K and V together 13, output 9, gate and up 43.5, down 22.

    Source: microsoft/vidur, data/profiling/compute/h100/meta-llama/Llama-2-70b-hf/mlp.csv, medians; the
    shapes are those of Llama 3.
    """
    schedule = decoded("llama-3-70b", 8192).schedule
    on_first = (schedule.kind == GEMM) & (schedule.rank == 0)
    tensor, took = schedule.operand_tensors(0), {}
    for number, x in enumerate(schedule.tensors):
        took[x.name] = 1e6 * float(schedule.seconds[on_first & (tensor == number)].sum())
    measured = {("Q", "K", "V"): 13, ("R",): 9, ("H1", "H3"): 43.5, ("Y",): 22}
    for names, micro in measured.items():
        assert sum(took[x] for x in names) == pytest.approx(micro, rel=0.2)
    assert sum(took.values()) == pytest.approx(sum(measured.values()), rel=0.05)


def test_a_token_of_8b_on_8_gpus_takes_what_a_serving_engine_took():
    """450 tokens/s, 2.22 ms on 8 H100; embedding, 32 layers and head are 1.99. Source: sglang, pull 3124."""
    layer = umm.chain(
        "transformer-layer", model="llama-3-8b", decode=True, dtype="bfloat16", batch=1, context=288
    )
    machine, layouts = umm.machine("h100-8"), layer.layouts_of("megatron", 8)
    ends = ends_in("megatron", layer, find_model("llama-3-8b").vocab, 8)
    token = steady(layer, layouts, 8, machine, 32).with_ends(ends, 8, machine)
    assert token.makespan_s == pytest.approx(1 / 450, rel=0.11)


@pytest.mark.parametrize(("backward", "rows"), [(False, 4), (True, 2048)])
def test_without_gradients_a_head_multiplies_the_last_token_of_each_sequence(backward, rows):
    """Four sequences of 512: serving needs four rows of logits, the loss of training all 2048."""
    layer = umm.chain("transformer-layer", model="llama-3-8b", tokens=2048, sequences=4, backward=backward)
    embedding, head = ends_in("data", layer, 128, 8)
    tokens = {x.name: x.rows for x in head.outline.tensors}
    assert (tokens["X"], tokens["Y"]) == (rows, rows)
    assert next(x.rows for x in embedding.outline.tensors if x.name == "Y") == 2048


def launched(trace):
    """Return the maps of rank 0 that a kernel of their own runs: the tensors written, by their time."""
    schedule, launch = trace.schedule, umm.machine("h100-8").launch_s
    launches = (schedule.kind == MAP) & (schedule.rank == 0) & (schedule.seconds >= launch)
    return [schedule.tensors[x].name for x in schedule.operand_tensors(0)[launches].tolist()]


def test_a_decoded_layer_has_the_kernels_of_serving_engines():
    """One turns K and Q, one attends to cache and new token, one adds and norms, one gates, one adds.

    The sum that a layer ends with is that of the next one's first norm: only the first layer norms alone.
    """
    assert launched(decoded("llama-3-8b", 288)) == ["K", "O", "R", "G", "Y"]
    layer = umm.chain(
        "transformer-layer", model="llama-3-8b", decode=True, dtype="bfloat16", batch=1, context=288
    )
    two = umm.run(lower(repeated(layer, 2).laid_out("megatron", 8), "h100-8"))
    of_each = ["K", "O", "R", "G"]
    assert launched(two) == ["N1", *of_each, "Y.0", *of_each, "Y"]


@pytest.mark.parametrize(("layouts", "kernels"), [({}, 1), ({"Q": "row@8"}, 2)])
def test_a_map_goes_on_beside_another_only_where_its_rank_has_what_it_reads(layouts, kernels):
    """Q = silu(X) beside K = silu(X): one launch, or two where Q is gathered before."""
    shapes = [Shape("X", 8, 64, "float32", "input"), *(Shape(x, 8, 64, "float32", "output") for x in "KQ")]
    maps = Map("K", "silu", ("X",)), Map("Q", "silu", ("X",), beside="K")
    texts = dict.fromkeys("XKQ", "col") | layouts
    chain = Outline("two", tuple(shapes), maps, (), {"asked": texts}).laid_out("asked", 8)
    schedule = lower(chain, "h100-8")
    launch = umm.machine("h100-8").launch_s
    on_rank = (schedule.kind == MAP) & (schedule.rank == 0)
    assert np.count_nonzero(schedule.seconds[on_rank] >= launch) == kernels
    work = statement_work(maps[1], {x.name: x for x in chain.tensors}, umm.machine("h100-8"), {})
    assert max(work.span) < launch  # a bound takes it for one kernel


def test_a_decoded_layer_has_a_range_for_the_latencies_it_is_made_of():
    """Launches and hops of 70B are assumed, and its kernels known within a tenth: 118 µs are 102 to 143."""
    middle = decoded("llama-3-70b", 8192).makespan_s
    ends = [decoded("llama-3-70b", 8192, x).makespan_s for x in corners(umm.machine("h100-8"))]
    assert min(ends) < 0.96 * middle < 1.04 * middle < max(ends)


def test_weights_that_lie_side_by_side_are_one_kernel_only_if_cut_alike():
    """H3 = N2·W3 beside H1: in its kernel if both are by columns, alone if H3 is by rows."""
    outline = umm.chain("gated-mlp", model="llama-3-8b", decode=True, dtype="bfloat16", batch=8)
    assert [x.beside for x in outline.statements if isinstance(x, Multiply)] == ["", "H1", ""]
    for layouts, joined in ({}, True), ({"H3": "row@8"}, False):
        chain = outline.with_layouts("asked", outline.layouts["megatron"] | layouts).laid_out("asked", 8)
        assert in_one_kernel(chain.statements[1], {x.name: x for x in chain.tensors}) is joined


def test_a_small_sum_takes_the_same_in_a_chain_and_alone():
    """16 KiB among 8 H100: 5.2 µs, by the kernel of serving engines, not the 21 of NCCL.

    vLLM's takes 5.2 µs in a CUDA graph (ai-dynamo/aiconfigurator, campaign_checkpoints/h100_sxm) and 9 to 12
    outside one (sglang pull request 2904).
    """
    alone = umm.run(umm.collective("all-reduce", nbytes=2**14, machine="h100-8", dtype="bfloat16"))
    layouts = {"a": "col", "b": "row", "c": "row@8"}
    product = umm.Problem(m=1, n=8192, k=1024, dtype="bfloat16", c_dtype="bfloat16", ranks=8, **layouts)
    parts = umm.run(umm.schedule(product, "h100-8"))
    waiting = parts.breakdown().mean
    assert alone.makespan_s == pytest.approx(5.2e-6, rel=0.02)
    took = waiting["reduce"] + waiting["exposed_communication"] + waiting["idle"]
    assert took == pytest.approx(alone.makespan_s, rel=0.01)


def test_a_small_sum_over_two_nodes_takes_the_fastest_way_that_one_multiply_takes():
    """32 KiB among 16 H100: 43 µs; a reduce-scatter and an all-gather by level start twice and take 71."""
    machine = umm.machine("h100-8", nodes=2)
    layer = umm.chain("mlp", hidden=16384, ffn=53248, tokens=1, dtype="bfloat16")
    by_level, flat, auto = (
        umm.run(lower(layer.laid_out("megatron", ranks=16), machine, movement=x)).makespan_s
        for x in ("gathered", "flat", "auto")
    )
    assert auto == pytest.approx(flat, rel=1e-9)
    assert by_level - auto > 25e-6


def test_a_chain_takes_the_layer_of_a_model_that_it_computes():
    """DeepSeek-V3's first three layers are dense and wide, the others have experts."""
    sizes = {"model": "deepseek-v3", "tokens": 8}
    dense, sparse = (umm.chain(x, **sizes) for x in ("gated-mlp", "moe"))
    columns = ({x.name: x.cols for x in chain.tensors}["W1"] for chain in (dense, sparse))
    assert list(columns) == [18432, 2048]
    with pytest.raises(InputError, match="attention of deepseek-v3 is by latent vectors, which chain att"):
        umm.chain("attention-stored", **sizes)


@pytest.mark.parametrize(
    ("sizes", "why"),
    [
        ({"tokens": 4}, "give batch and context alone"),
        ({"batch": 0, "context": 4}, "batch of chain attention"),
        ({"batch": 1}, "context of chain attention"),
    ],
)
def test_what_cannot_be_decoded_is_refused(sizes, why):
    with pytest.raises(InputError, match=why):
        umm.chain("attention", decode=True, hidden=16, heads=4, **sizes)


@pytest.mark.parametrize(
    ("preset", "sizes", "scheme"),
    [
        *(("gated-mlp", {}, x) for x in (*SCHEMES, "2d2x2")),
        *(("transformer-layer", {"heads": 4, "kv_heads": 2}, x) for x in (*SCHEMES, "2d2x2")),
        *(("moe", {"experts": 4, "top_k": 2}, x) for x in ("expert", "tensor", "whole")),
    ],
)
def test_weights_of_8_bits_give_the_reference_of_casts(preset, sizes, scheme):
    """Factors are rounded under scales of 128, products are bfloat16; router and experts too.

    Weights are eighths, which 8 bits have. A product that bfloat16 rounds may be cast to the next number.
    """
    outline = umm.chain(preset, hidden=256, ffn=384, tokens=24, dtype="bfloat16", weights="fp8", **sizes)
    chain = outline.laid_out(outline.layouts_of(scheme, 4), ranks=4)
    given = {x: np.clip(np.round(8 * y), -8, 8) / 8 for x, y in operands_of(chain).items()}
    trace = umm.run(lower(chain, "h100-8"), executor="numpy", operands=given)
    result, expected = np.asarray(trace.results["Y"], dtype=np.float64), chain.reference(given)["Y"]
    assert np.abs(result - expected).max() < 0.05 * np.abs(expected).max()


@pytest.mark.parametrize("scheme", ["ep8", "ep8/each", "ep4-dp2"])
def test_with_weights_of_8_bits_tokens_travel_in_8_bits_and_are_cast_once(scheme):
    """Of 2 bytes an element 1 is left, and 4 for each 128; the sums come back in 2."""
    sizes = {"hidden": 256, "ffn": 256, "tokens": 512, "experts": 8, "top_k": 2, "dtype": "bfloat16"}
    moved = {}
    for weights in ("", "fp8"):
        full = umm.chain("moe", weights=weights, **sizes)
        for name in (scheme, f"{scheme}:fp8"):
            outline = in_scheme(name, full, 8)
            moved[weights, name] = umm.run(lower(outline.laid_out(name, 8), "h100-8")).schedule.nbytes.sum()
            casts = [x.out for x in outline.statements if isinstance(x, Map) and x.fn == "cast"]
            assert len(casts) == len(set(casts))
    assert moved["fp8", scheme] == moved["fp8", f"{scheme}:fp8"] == moved["", f"{scheme}:fp8"]
    assert moved["fp8", scheme] < 0.8 * moved["", scheme]


def test_a_router_keeps_16_bits_and_the_pass_before_it_casts():
    """One norm writes N2 for the router and its cast for the experts; Nq's cast is in its norm too."""
    sizes = {"experts": 8, "top_k": 2, "heads": 4, "sequences": 1, "q_rank": 32, "kv_rank": 32, "rope_dim": 8}
    layer = umm.chain("moe-layer", hidden=128, ffn=128, tokens=8, dtype="bfloat16", weights="fp8", **sizes)
    types = {x.name: x.dtype for x in layer.tensors}
    assert (types["Wg"], types["W1"]) == ("bfloat16", "float8_e4m3:128")
    assert next(x for x in layer.statements if x.out == "Lg").reads == ("N2", "Wg")
    fused = {x.out: x.fused for x in layer.statements if x.passes and x.out in ("N2.fp8", "Nq.fp8")}
    assert fused == {"N2.fp8": ("N2",), "Nq.fp8": ("Nq",)}


@times_only()
def test_decoded_tokens_of_dense_layers_and_ends_are_where_experts_cut_by_tensors_have_them():
    """DeepSeek-R1 in 8 bits, 16 requests, 8 H200, SGLang: 16.6 ms a token. Source: InferenceX."""
    asked = (
        "simulate", "--machine", "h200-8", "--chain", "moe-layer", "--model", "deepseek-v3", "--decode",
        "--context", "1536", "--batch", "16", "--dtype", "bf16", "--weights", "fp8", "--layouts", "tensor",
        "--layers", "61", "--kernels", "sglang", "--json",
    )  # fmt: skip
    result = record(*asked)["predicted"]
    assert result["makespan_s"] == pytest.approx(16.63e-3, rel=0.1)
    assert result["ends"]["head"] < 0.1e-3


def test_weights_of_8_bits_take_half_the_memory_and_half_of_what_fsdp_moves():
    """A layer of 70B on 8 H100: 102 MiB of weights in place of 204; a token in 80 % of the time."""
    asked = {"model": "llama-3-70b", "dtype": "bfloat16"}
    token, token8 = (
        umm.run(lower(x.laid_out("megatron", ranks=8), "h100-8"))
        for x in (umm.chain("transformer-layer", decode=True, batch=1, context=8192, weights=w, **asked)
                  for w in ("", "fp8"))
    )  # fmt: skip
    assert token.memory_bytes - token8.memory_bytes == pytest.approx(102 * 2**20, rel=0.01)
    assert token8.makespan_s == pytest.approx(0.80 * token.makespan_s, rel=0.03)
    fsdp, fsdp8 = (
        umm.run(lower(x.laid_out(x.layouts_of("data", 8) | dict.fromkeys(x.weights, "row"), 8), "h100-8"))
        for x in (umm.chain("transformer-layer", tokens=8192, weights=w, **asked) for w in ("", "fp8"))
    )
    assert fsdp8.makespan_s < fsdp.makespan_s


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (
            {"weights": "float16"},
            "weights of float16 are not possible; choose fp8, e5m2, int8, int4, fp4 or the chain's own type",
        ),
        ({"weights": "fp8", "backward": True}, "weights of 8 bits or fewer are of a forward part"),
    ],
)
def test_weights_that_are_not_possible_are_refused(asked, why):
    with pytest.raises(InputError, match=why):
        umm.chain("mlp", hidden=8, ffn=16, tokens=4, dtype="bfloat16", **asked)


def test_tiles_of_a_rank_that_one_kernel_multiplies_take_what_the_kernel_takes():
    """Tokens front and back of 7 ranks, forward and backward: maps and multiplies take as long as in order.

    A rank has the rows that a tile of 16384 / 14 has twice, so up to one more than in order.
    """
    chain, seconds = umm.chain("mlp", tokens=16384, hidden=4096, ffn=14336, backward=True, dtype="bf16"), {}
    for tokens in ("row", "zigzag"):
        texts = {x.name: "row@7" if "W" in x.name else tokens for x in chain.tensors}
        laid = chain.with_layouts("asked", texts).laid_out("asked", 7)
        schedule = lower(laid, "h100-8")
        computes = np.isin(schedule.kind, (GEMM, MAP)) & (schedule.lane >= 0)
        of_kind = np.array([schedule.seconds[computes & (schedule.kind == x)].sum() for x in (GEMM, MAP)])
        seconds[tokens], tensors = of_kind, {x.name: x for x in laid.tensors}
        work = [statement_work(x, tensors, umm.machine("h100-8"), {}) for x in laid.statements]
        assert sum(x.span.sum() for x in work) == pytest.approx(of_kind.sum(), rel=1e-6)
        assert (computes.sum() > 7 * len(laid.statements)) == (tokens == "zigzag")
    assert seconds["zigzag"] == pytest.approx(seconds["row"], rel=0.01)


def test_columns_narrower_than_a_head_are_cut_as_any_are():
    """3 columns hold no head of 4: ``2d@2:c`` is as without heads."""
    assert str(Shape("K", 8, 3, "float32", head=4).laid_out("2d@2:c", 2).layout) == "2d@2:c"


@pytest.mark.parametrize("stored", ["int8", "int4", "fp4"])
def test_weights_that_kernels_expand_are_held_in_their_bits_and_multiply_as_they_are(stored, tmp_path):
    """By every scheme in NumPy; in a chain's file and a schedule's file they are held in as many bytes."""
    sizes = {"hidden": 64, "ffn": 64, "experts": 4, "top_k": 2, "heads": 4, "tokens": 32}
    outline = umm.chain("moe-layer", dtype="float32", weights=stored, **sizes)
    plain = umm.chain("moe-layer", dtype="float32", **sizes)
    save_chain(outline, tmp_path / "few.toml")
    assert load_chain(tmp_path / "few.toml") == outline
    for scheme in outline.layouts:
        chain = outline.laid_out(scheme, 4)
        schedule = umm.schedule(chain, umm.machine("h100-8"))
        operands = random_inputs(chain, 1)
        result = umm.run(schedule, executor="numpy", operands=operands).results["Y"]
        assert result == pytest.approx(chain.reference(operands)["Y"], abs=1e-4)
        again = Schedule.from_json(schedule.to_json())
        assert np.array_equal(again.memory_bytes, schedule.memory_bytes)
        wide = umm.schedule(plain.laid_out(scheme, 4), umm.machine("h100-8"))
        assert (schedule.memory_bytes < wide.memory_bytes).all()
        assert umm.run(schedule).makespan_s <= umm.run(wide).makespan_s


def test_weights_of_few_bits_are_not_trained_nor_of_8_bits():
    sizes = {"hidden": 64, "ffn": 64, "tokens": 32}
    with pytest.raises(ProblemError, match="weights of 8 bits or fewer are of a forward part"):
        umm.chain("mlp", dtype="bfloat16", weights="int4", backward=True, **sizes)
    with pytest.raises(ProblemError, match="choose fp8, e5m2, int8, int4, fp4 or the chain's own type"):
        umm.chain("mlp", dtype="bfloat16", weights="int3", **sizes)
    data = umm.chain("mlp", dtype="bfloat16", weights="int4", **sizes).to_dict()
    for x in data["tensors"]:
        x |= {"stored": "int3"} if "stored" in x else {}
    with pytest.raises(ProblemError, match="W1 cannot be stored as 'int3'; choose from int8, int4"):
        Outline.from_dict(data)

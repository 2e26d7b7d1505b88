"""Many layers: the same numbers however often something is computed again, and a steady state that lasts."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from command import good, record, times_only
from examples import WHOLE
from performed import NODES_OF_TWO, assert_right

import umm
from umm.checks import random_inputs
from umm.errors import InputError
from umm.plans.lower import lower
from umm.plans.steady import added_parts, middle, steady
from umm.program.layers import RECOMPUTE, of_layers, repeated
from umm.program.systems import CHANGES, choices_left, fully_sharded, in_scheme, sharded_choices
from umm.schedules.races import races
from umm.schedules.table.details import BARRIER, GEMM
from umm.traces.breakdown import PARTS
from umm.traces.traffic import bytes_by_kind
from umm.units import format_bytes, range_in_words

SMALL = {"tokens": 12, "hidden": 16, "ffn": 6, "heads": 4, "kv_heads": 2, "sequences": 2}
LARGE = {"model": "llama-3-70b", "dtype": "bfloat16", "backward": True}


def layer(**more):
    return umm.chain("transformer-layer", **SMALL, dtype="float64", **more)


def given(chain, seed=0):
    random = np.random.default_rng(seed)
    return {x.name: random.standard_normal(x.shape) * 0.5 for x in chain.tensors if x.is_input}


def test_three_layers_are_a_layer_of_a_layer_of_a_layer():
    one, three = layer().laid_out(ranks=1), repeated(layer(), 3).laid_out(ranks=1)
    operands, x = given(three), None
    for number in range(3):
        weights = {name: operands[f"{name}.{number}"] for name in one.operand_names if name != "X"}
        x = one.reference({"X": operands["X"] if x is None else x, **weights})["Y"]
    np.testing.assert_allclose(three.reference(operands)["Y"], x, rtol=1e-12)


@pytest.mark.parametrize("recompute", RECOMPUTE)
def test_gradients_are_the_same_whatever_is_computed_again(recompute):
    """Of three layers, in any order that dependencies allow; all holds less than none."""
    chain = repeated(layer(backward=True), 3, recompute).laid_out("sequence", 4)
    operands = given(chain)
    expected = repeated(layer(backward=True), 3).laid_out("sequence", 4).reference(operands)
    schedule = lower(chain, "h100-8")
    assert races(schedule) == []
    how = {"operands": operands, "replica": None, "order": "random", "seed": 1}
    results = umm.run(schedule, executor="numpy", **how).results
    for name, replicas in results.items():
        for replica in replicas:
            np.testing.assert_allclose(replica, expected[name], rtol=1e-9, atol=1e-9)


def test_what_is_computed_again_is_not_held():
    """Of each of 80 layers of 70B on two ranks: all that is kept, less attention's part, or nothing."""
    machine, chain = umm.machine("h100-8"), umm.chain("transformer-layer", tokens=2048, **LARGE)
    layouts = chain.layouts["sequence"]
    result = [steady(chain, layouts, 2, machine, 80, recompute=x) for x in RECOMPUTE]
    assert [round(x.kept_bytes / 2**20) for x in result] == [252, 216, 0]
    assert [x.held.get("kept for the backward part", 0) for x in result] == [
        80 * x.kept_bytes for x in result
    ]
    assert {x.held["layer inputs"] for x in result} == {80 * 1024 * 8192 * 2}
    weights = 80 * 2 * result[0].weights // 2  # bytes of half of each
    assert result[0].held["weights"] == pytest.approx(weights, rel=1e-3)
    assert result[0].held["weights"] == result[0].held["gradients"]
    assert result[0].memory_bytes > result[1].memory_bytes > result[2].memory_bytes
    assert result[0].layer_s < result[1].layer_s < result[2].layer_s < 1.5 * result[0].layer_s


MLP = {"tokens": 4096, "hidden": 4096, "ffn": 8192, "dtype": "bfloat16", "backward": True}


def deep(name, layers):
    """Return many layers of an MLP in a scheme on 8 H100, and the seconds of a schedule of all of them."""
    chain, machine = umm.chain("mlp", **MLP), umm.machine("h100-8")
    how = {"stationary": "auto", "movement": "auto"}
    chain = in_scheme(name, chain, 8)
    how |= choices_left(chain.laid_out(chain.layouts_of(name, 8), 8), how)
    result = steady(chain, chain.layouts_of(name, 8), 8, machine, layers, **how)
    if not isinstance(how["stationary"], str):
        how["stationary"] = of_layers(chain, layers, how["stationary"])
    full = repeated(chain.with_layouts("asked", chain.layouts_of(name, 8)), layers).laid_out("asked", 8)
    return result, umm.run(lower(full, machine, **how))


@pytest.mark.parametrize("name", ["sp4-dp2", "sequence"])
def test_up_to_sixteen_layers_take_what_their_schedule_takes(name):
    """All five are simulated: the same time, bytes and memory."""
    result, trace = deep(name, 5)
    assert result.depths[-1] == 5
    assert result.makespan_s == trace.makespan_s
    assert result.bytes == sum(bytes_by_kind(trace.schedule).values())
    assert result.memory_bytes == trace.memory_bytes


@pytest.mark.parametrize("name", ["fsdp8", "hsdp4x2", "megatron", "sequence", "data", "tp4-dp2", "sp4-dp2"])
def test_more_layers_take_within_two_percent_of_what_their_schedule_takes(name):
    """Of 24 layers at most 16 are simulated, and 4 where each takes the same."""
    result, trace = deep(name, 24)
    assert result.depths[-1] <= 16
    assert result.makespan_s == pytest.approx(trace.makespan_s, rel=0.02)
    assert result.bytes == sum(bytes_by_kind(trace.schedule).values())
    assert result.memory_bytes == pytest.approx(trace.memory_bytes, rel=0.02)


def test_one_layer_is_in_the_middle_of_itself():
    result, trace = deep("megatron", 1)
    assert result.depths == (1,)
    assert result.layer_s == result.makespan_s == sum(result.parts.values()) == trace.makespan_s


def sharded(name, layers, backward=True, **sizes):
    """Return the parts that one more fully sharded layer adds on 8 H100, and its collectives' seconds.

    NCCL gathers each weight whole, and once more for the backward part, and reduce-scatters its gradient.
    """
    chain = umm.chain(name, dtype="bfloat16", backward=backward, **sizes)
    chain = fully_sharded(chain)
    how = sharded_choices(chain.laid_out("fsdp", 8))
    traces = []
    for depth in (layers - 1, layers):
        stays = of_layers(chain, depth, how["stationary"])
        full = repeated(chain, depth).laid_out("fsdp", 8)
        traces.append(umm.run(lower(full, "h100-8", **how | {"stationary": stays})))
    weights = [2 * x.rows * x.cols for x in chain.tensors if x.name in chain.weights and x.rows > 1]
    passes = ["all-gather", "all-gather", "reduce-scatter"] if backward else ["all-gather"]
    taken = [umm.collective(what, nbytes=x, machine="h100-8", dtype="bfloat16", algorithm="nccl")
             for x in weights for what in passes]  # fmt: skip
    return added_parts(*traces), sum(umm.run(x).makespan_s for x in taken)


@pytest.mark.parametrize("layers", [3, 9, 15] if WHOLE else [3, 7])
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("model", ["llama-3-8b", "llama-3-70b"])
def test_a_sharded_layer_exposes_what_its_collectives_take_beyond_its_multiplies(model, backward, layers):
    """Of 8K tokens, at any depth: its collectives run one after another, so ranks keep step.

    In ms: 1.43 of collectives beside 1.01 of multiplies, 4.36 and 3.25 with gradients; of 70B 4.65 and 3.82,
    14.25 and 12.01.
    """
    parts, taken = sharded("transformer-layer", layers, backward, model=model, sequences=8, tokens=8192)
    beyond = taken - parts["compute"]
    assert 0.95 * beyond < parts["exposed_communication"] < 1.15 * beyond


def test_a_sharded_mlp_exposes_what_its_collectives_take_beyond_its_multiplies():
    """Collectives 11.4 ms, multiplies beside them 9.4."""
    parts, taken = sharded("gated-mlp", 3, tokens=8192, hidden=8192, ffn=28672)
    beyond = taken - parts["compute"]
    assert 0.95 * beyond < parts["exposed_communication"] < 1.15 * beyond


def test_gathers_of_the_next_layer_hide_behind_a_large_batch():
    """Fully sharded MLP of 70B: collectives take 11.4 ms a layer; 32K tokens compute for 24."""
    parts, _ = sharded("gated-mlp", 3, tokens=32768, hidden=8192, ffn=28672)
    assert parts["exposed_communication"] < 0.3e-3


@pytest.mark.parametrize("scheme", CHANGES)
def test_schemes_that_change_what_a_chain_does_do_not_change_its_results(scheme):
    """FSDP, ring, gathered keys and Ulysses: the gradients of a layer, exact and without races."""
    changed = CHANGES[scheme](layer(backward=True)).laid_out(None, 4)
    operands = given(changed)
    expected = layer(backward=True).laid_out(ranks=1).reference(operands)
    schedule = lower(changed, "h100-8")
    assert races(schedule) == []
    results = umm.run(schedule, executor="numpy", operands=operands, replica=None, order="random").results
    for name, replicas in results.items():
        for replica in replicas:
            np.testing.assert_allclose(replica, expected[name], rtol=1e-9, atol=1e-9)


def test_at_128k_tokens_ulysses_beats_gathering_and_that_a_ring_and_sequence_parallel():
    """Attention of llama-3-8b on 8 H100: 32.8, 33.0, 34.0 and 35.0 ms; a ring merges the steps' results."""
    chain = umm.chain("attention", model="llama-3-8b", tokens=2**17, dtype="bfloat16")
    seconds = {x: umm.run(lower(CHANGES[x](chain).laid_out(None, 8), "h100-8")).makespan_s
               for x in ("ring", "gather", "ulysses")}  # fmt: skip
    seconds["sequence"] = umm.run(lower(chain.laid_out("sequence", 8), "h100-8")).makespan_s
    assert seconds["ulysses"] < seconds["gather"] < seconds["ring"] < seconds["sequence"] < 40e-3
    assert min(seconds.values()) > 26e-3


@times_only()
def test_the_command_answers_for_80_layers():
    asked = [
        "--chain",
        "mlp",
        "--hidden",
        "4K",
        "--ffn",
        "8K",
        "--tokens",
        "4K",
        "--dtype",
        "bf16",
        "--backward",
    ]
    output = good("simulate", *asked, "--layouts", "fsdp8", "--layers", "80", "--optimizer", "12")
    assert "a layer (steady)" in output
    result = record("simulate", *asked, "--layouts", "fsdp8", "--layers", "80")["predicted"]
    assert result["layers"] == 80
    assert result["makespan_s"] == pytest.approx(80 * result["layer_s"], rel=0.1)


DEEP = ("--chain", "mlp", "--hidden", "1K", "--ffn", "4K", "--tokens", "1K", "--dtype", "bf16", "--backward")


def test_text_and_json_say_the_same_of_all_layers():
    """Of 40 layers, 16 simulated: parts of the time, bytes between ranks, the range."""
    asked = ("simulate", *DEEP, "--ranks", 4, "--layouts", "sequence", "--layers", 40)
    text, result = " ".join(good(*asked).split()), record(*asked)["predicted"]
    assert "16 layers simulated, 24 extrapolated" in text
    assert result["simulated_layers"] == 16
    assert sum(result["breakdown"].values()) == pytest.approx(result["makespan_s"], rel=1e-9)
    for part, seconds in result["breakdown"].items():
        assert f"{100 * seconds / result['makespan_s']:.1f} % {part.replace('_', ' ')}" in text
    moved = ", ".join(f"{x} {format_bytes(result[f'{x}_bytes'])}" for x in ("get", "accumulate"))
    assert f"moved {moved}, all ranks together" in text
    low, high = result["makespan_range_s"]
    assert low < result["makespan_s"] < high
    assert f"({range_in_words(result['makespan_s'], (low, high))})" in text


@times_only()
def test_all_layers_move_what_as_many_schedules_of_one_move():
    """An MLP in `sequence` moves the same in each layer, whether 16 are simulated or all."""
    asked = ("simulate", *DEEP, "--ranks", 4, "--layouts", "sequence", "--layers")
    few, more = (record(*asked, layers)["predicted"] for layers in (10, 40))
    for kind in ("get_bytes", "accumulate_bytes", "put_bytes", "reduce_bytes"):
        assert more[kind] == 4 * few[kind], kind


@times_only()
def test_several_nodes_have_one_table_of_all_layers():
    """Time and memory of each number are those of --layers there; four times the devices, a quarter each."""
    asked = ("simulate", *DEEP, "--layouts", "sequence", "--layers", 24)
    rows = record(*asked, "--ranks", "2,8", "--price", 3.6)["scaling"]["rows"]
    for row in rows:
        alone = record(*asked, "--ranks", row["ranks"])["predicted"]
        assert row["makespan_s"] == alone["makespan_s"]
        assert row["memory_bytes"] == alone["memory_bytes"]
        assert row["dollars"] == pytest.approx(row["gpu_seconds"] / 1000)
    result = record("peers", *DEEP, "--layers", 4, "--ranks", "2,4")
    best = [min(x["makespan_s"] for x in record("peers", *DEEP, "--layers", 4, "--ranks", r)["rows"]
                if x["fits"]) for r in (2, 4)]  # fmt: skip
    assert [x["makespan_s"] for x in result["scaling"]["rows"]] == best
    assert "; does not fit" in good("simulate", *DEEP, "--layers", 40_000, "--ranks", "2,4")


def test_fsdp_shards_a_table_that_no_multiply_reads():
    """32,000 x 4096 in bfloat16, with its gradient, on 8 ranks: 2 x 250 MiB / 8."""
    outline = umm.chain("embedding", dtype="bfloat16", backward=True, hidden=4096, vocab=32000, tokens=1024)
    sharded = fully_sharded(outline).laid_out("fsdp", ranks=8)
    sizes = {x.name: x.nbytes_of_rank.max() for x in sharded.tensors}
    assert sizes["E"] == sizes["dE"] == 32000 * 4096 * 2 // 8


ANY = ("row", "col", "2d", "row@8", "row@2", "col@2:interleaved", "row@4", "2d:2x2@2", "cyclic:5x3:2x4")


@pytest.mark.parametrize("machine", ["h100-8", "a100-2x4"])
@pytest.mark.parametrize("seed", range(20))
def test_an_embedding_is_rows_of_its_table_and_its_gradient_their_sums(seed, machine):
    """In any layouts, of a few tokens or of many, exactly and without races."""
    random = np.random.default_rng(seed)
    tokens, vocab, hidden = (int(random.choice(x)) for x in ((1, 7, 33), (1, 16, 100), (1, 7, 24)))
    outline = umm.chain("embedding", hidden=hidden, vocab=vocab, tokens=tokens, backward=True)
    layouts = {x.name: str(random.choice(ANY)) for x in outline.tensors}
    chain = outline.with_layouts("any", layouts).laid_out("any", ranks=8)
    given = random.integers(0, vocab, (tokens, 1)).astype(np.float32)
    operands = {x.name: given if x.name == "T" else whole(x) for x in chain.tensors if x.is_input}
    schedule = umm.schedule(chain, machine)
    result, wanted = umm.run(schedule, executor="numpy", operands=operands), chain.reference(operands)
    assert wanted["Y"].tolist() == operands["E"][given[:, 0].astype(int)].tolist()
    for name in ("Y", "dE"):
        assert (result.results[name] == wanted[name]).all()
    assert not races(schedule)


def test_a_table_sharded_over_nodes_crosses_between_them_once_a_node():
    """32,000 x 4096 in bfloat16 over 4 nodes: each gathers and sums the 3/4 that it has not by 8 cards."""
    outline = umm.chain("embedding", dtype="bfloat16", backward=True, hidden=4096, vocab=32000, tokens=65536)
    machine = umm.machine("dgx-h100x4")
    trace = umm.run(umm.schedule(outline.laid_out("fsdp32", ranks=32), machine))
    cards = 2 * 0.75 * 32000 * 4096 * 2 / (8 * 50e9)
    assert cards < trace.makespan_s < 3 * cards


def test_columns_of_a_table_are_gathered_before_each_node_looks_up_in_its_rows():
    """Beside copies on every node only the gather is more: 3/4 of the columns by each card, 0.6 ms."""
    outline = umm.chain("embedding", dtype="bfloat16", hidden=4096, vocab=32000, tokens=65536)
    result = {}
    for scheme in ("tp8-dp4", "fsdp4-tp8"):
        run = in_scheme(scheme, outline, 32)
        chain = run.laid_out(run.layouts_of(scheme, 32), ranks=32)
        result[scheme] = umm.run(umm.schedule(chain, "dgx-h100x4")).makespan_s
    gather = 0.75 * 32000 * 4096 * 2 / (8 * 50e9)
    assert result["tp8-dp4"] <= result["fsdp4-tp8"] < result["tp8-dp4"] + 2 * gather


@pytest.mark.parametrize("scheme", ["fsdp2-tp4", "fsdp4-sp2", "fsdp2-sp4"])
def test_a_gathered_table_gives_the_same_rows(scheme):
    outline = umm.chain("embedding", hidden=24, vocab=100, tokens=33, backward=True)
    run = in_scheme(scheme, outline, 8)
    chain = run.laid_out(run.layouts_of(scheme, 8), ranks=8)
    given = np.random.default_rng(1).integers(0, 100, (33, 1)).astype(np.float32)
    operands = {x.name: given if x.name == "T" else whole(x) for x in chain.tensors if x.is_input}
    schedule = umm.schedule(chain, "a100-2x4")
    result, wanted = umm.run(schedule, executor="numpy", operands=operands), chain.reference(operands)
    assert all((result.results[name] == wanted[name]).all() for name in ("Y", "dE"))
    assert not races(schedule)


def whole(tensor):
    return np.random.default_rng(2).integers(-3, 4, tensor.shape).astype(np.float32)


@times_only()
def test_as_many_layers_fit_as_it_says():
    """80 layers of llama-3-70b with 12 B of optimizer for each element are too many for 8 H100."""
    asked = ("--chain", "transformer-layer", "--model", "llama-3-70b", "--tokens", "8K", "--dtype", "bf16")
    asked += ("--layouts", "sequence", "--optimizer", "12", "--layers")
    for many in ("34", "80") if WHOLE else ("34",):
        assert "33 layers fit" in " ".join(good("simulate", *asked, many, "--backward").split())
    assert "fit" not in good("simulate", *asked, "33", "--backward").partition("memory")[2]


@times_only()
def test_what_whole_logits_take_is_named_where_layers_do_not_fit():
    """64K tokens on each GPU: 64K x 128,256 logits and their gradients in bf16 are 31.3 GiB on each."""
    asked = ("--machine", "h100-8", "--ranks", "2", "--chain", "transformer-layer", "--model", "llama-3-8b")
    asked += ("--tokens", "128K", "--sequences", "16", "--dtype", "bf16", "--backward", "--layouts", "fsdp")
    asked += ("--layers", "32", "--recompute", "all", "--optimizer", "adam")
    out = " ".join(good("simulate", *asked).split())
    assert "the head's logits and their gradients are 31.3 GiB of it" in out
    few, more = re.search(
        r"where (\d+) layers? fit .* chunks of tokens up to (\d+) layers? fit", out
    ).groups()
    assert int(few) < int(more)


def test_no_part_of_a_layer_in_the_middle_is_negative():
    """A layer more takes 10 s: 8 s of compute, 3 s exposed, and 1 s less idle; so 2 s are exposed."""
    fewer, more = (
        SimpleNamespace(
            makespan_s=sum(seconds),
            breakdown=lambda seconds=seconds: SimpleNamespace(mean=dict(zip(PARTS, seconds, strict=True))),
        )
        for seconds in ((16.0, 0.0, 5.0, 2.0), (24.0, 0.0, 8.0, 1.0))
    )
    result = added_parts(fewer, more)
    assert result == {"compute": 8.0, "reduce": 0.0, "exposed_communication": 2.0, "idle": 0.0}


def takes(seconds):
    """Return a stand-in for a trace of so many seconds."""
    parts = dict.fromkeys(PARTS, seconds / len(PARTS))
    return SimpleNamespace(makespan_s=seconds, breakdown=lambda: SimpleNamespace(mean=parts))


@pytest.mark.parametrize(
    ("makespans", "inner", "expected"),
    [
        ({1: 10.0, 2: 22.0}, 10.0, 12.0),
        ({1: 10.0, 2: 21.0, 4: 45.0}, 10.0, 11.0),
        ({1: 10.0, 2: 21.0, 4: 45.0}, 11.5, 11.5),
        ({1: 10.0, 2: 21.0, 4: 45.0}, 12.5, 35 / 3),
        ({1: 10.0, 2: 21.0, 4: 45.0}, None, 35 / 3),
        ({1: 10.0, 2: 22.0, 4: 46.0}, 10.0, 12.0),
    ],
)
def test_layers_whose_ranks_drift_apart_take_no_longer_than_one_of_the_middle(makespans, inner, expected):
    """The first takes 10 s, the second 11, two more 12 each: ranks that wait take 11, or the exposed part.

    Two layers show no drift, nor do those that stay at 12. All that are simulated take what they take.
    """
    traces = {depth: takes(seconds) for depth, seconds in makespans.items()}
    seconds, parts, waits = middle(traces, inner and (lambda: takes(inner)))
    assert seconds == pytest.approx(expected)
    assert sum(parts.values()) == pytest.approx(expected)
    assert waits == (expected in (11.0, 11.5))


@pytest.mark.parametrize("recompute", ["none", "all"])
@times_only()
def test_a_layer_in_the_middle_gathers_its_weights_twice_and_takes_what_that_takes(recompute):
    """A communication-bound MLP on two nodes: 6.65 ms a layer; one alone gathers its last weight once, 5.74.

    Its cards carry two gathers and a sum of 939.5 MB, half of each through 8 cards of 50 GB/s: 3.52 ms.
    """
    asked = ("simulate", "--machine", "h100-8", "--nodes", 2, "--chain", "mlp", "--hidden", "8K")
    asked += ("--ffn", "28K", "--tokens", "8K", "--backward", "--dtype", "bf16", "--layouts", "fsdp16")
    asked += ("--recompute", recompute, "--layers")
    alone, few, more = (record(*asked, layers)["predicted"] for layers in (1, 16, 17))
    assert more["simulated_layers"] < more["layers"]
    assert more["layer_s"] == pytest.approx(few["layer_s"], rel=5e-3)
    assert more["layer_s"] > 1.1 * alone["layer_s"]
    assert more["get_bytes"] - few["get_bytes"] == pytest.approx(few["get_bytes"] / 16, rel=0.03)


def test_a_layer_that_others_follow_gathers_for_its_backward_part_too():
    """Of two weights a layer alone gathers three times, one of the middle four times."""
    sharded = fully_sharded(umm.chain("mlp", hidden=8, ffn=16, tokens=8, backward=True))
    for recompute in ("none", "all"):
        copies = [
            sum(x.kind == "copy" for x in repeated(sharded, 1, recompute, inner).statements)
            for inner in (False, True)
        ]
        assert copies == [3, 4]


@times_only()
def test_only_what_is_trained_speaks_of_recompute_and_of_optimizer_states():
    asked = ("--chain", "transformer-layer", "--model", "llama-3-8b", "--dtype", "bf16", "--layers", "32")
    decoded = good("simulate", *asked, "--decode", "--context", "1K")
    assert "recompute" not in decoded
    assert "optimizer" not in decoded
    trained = (*asked, "--tokens", "1K", "--backward")
    assert "recompute none" in good("simulate", *trained)
    assert "without an optimizer's states" in good("simulate", *trained)
    assert "without an optimizer" not in good("simulate", *trained, "--optimizer", "12")


@times_only()
def test_a_known_vocabulary_adds_an_embedding_and_a_head():
    """llama-3-8b on 8 ranks: two weights of 128,256 x 4096 in bfloat16 are 250 MiB a rank."""
    asked = ("--chain", "transformer-layer", "--tokens", "4K", "--dtype", "bf16", "--layers", "32")
    result = record("simulate", *asked, "--model", "llama-3-8b")["predicted"]
    assert list(result["ends"]) == ["embedding", "head"]
    ends = sum(result["ends"].values())
    assert result["makespan_s"] - ends == pytest.approx(32 * result["layer_s"], rel=0.02)
    sizes = ("--hidden", "4K", "--ffn", "14336", "--heads", "32", "--kv-heads", "8")
    without = record("simulate", *asked, *sizes)["predicted"]
    assert without["ends"] == {}
    assert result["memory_bytes"] - without["memory_bytes"] > 2 * 128256 * 4096 * 2 / 8
    output = " ".join(good("simulate", *asked, "--model", "llama-3-8b", "--layouts", "fsdp8").split())
    assert "(of each sequence's last token), added to the layers' time" in output


@pytest.mark.parametrize(
    ("layers", "recompute", "why"),
    [(0, "none", "layers"), (2, "some", "recompute 'some' is unknown"), (2, "attention", "has no attention")],
)
def test_what_cannot_be_repeated_is_refused(layers, recompute, why):
    chain = umm.chain("mlp", hidden=8, ffn=16, tokens=4, backward=True)
    with pytest.raises(InputError, match=why):
        repeated(chain, layers, recompute)


WEIGHTS_STAY = dict.fromkeys(
    ("Q", "K", "V", "R", "H1", "H3", "Y", "dG", "dN2", "dO", "dN1"), "B"
) | dict.fromkeys(("dW1", "dW2", "dW3", "dWq", "dWk", "dWv", "dWo"), "C")
"""The stationary matrix of each multiply of a layer under tensor and sequence parallelism."""


def of_70b(movement, tokens, sequences, backward):
    """Return the seconds of a layer of llama-3-70b on 8 H100, whose weights stay where they are."""
    sizes = {"model": "llama-3-70b", "tokens": tokens, "sequences": sequences, "backward": backward}
    outline = umm.chain("transformer-layer", dtype="bfloat16", **sizes)
    stays = {x: y for x, y in WEIGHTS_STAY.items() if backward or not x.startswith("d")}
    schedule = lower(outline.laid_out("sequence", 8), "h100-8", movement=movement, stationary=stays)
    return umm.run(schedule).makespan_s


def test_chunks_gain_in_a_layer_what_asynctp_gains():
    """Forward twice, for all is computed again, and backward: 16 sequences of 8192 tokens save 26.7 ms.

    Measured: 597.3 to 652.4 tokens/s a GPU on 256 H100, TP 8: 29 ms a layer. Source: torchtitan,
    benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md.
    """
    tokens, sequences = 16 * 8192, 16
    full, parts = (
        sum(of_70b(movement, tokens, sequences, backward) for backward in (False, True))
        for movement in ("gathered", "chunks")
    )
    published = (1 / 597.3 - 1 / 652.4) / 8 / 80 * tokens
    assert 1 / 1.5 < (full - parts) / published < 1.5


@pytest.mark.parametrize("backward", [False, True])
def test_chunks_gain_in_a_layer_of_8k_tokens_too(backward):
    """4.15 to 3.68 ms forward, 11.2 to 10.5 ms with the backward part."""
    assert of_70b("chunks", 8192, 1, backward) < 0.96 * of_70b("gathered", 8192, 1, backward)


@times_only()
def test_a_decoded_layer_in_the_middle_takes_as_long_as_one_alone():
    """Its multiplies write their results anew: no pass sets the layer before's results to zero."""
    asked = ("--chain", "transformer-layer", "--model", "llama-3-8b", "--decode", "--context", "1K")
    alone = record("simulate", *asked, "--dtype", "bf16")["predicted"]["makespan_s"]
    result = record("simulate", *asked, "--dtype", "bf16", "--layers", "32")["predicted"]
    assert result["layer_s"] == pytest.approx(alone, rel=1e-3)


def test_weights_gathered_to_compute_again_are_there_for_the_gradients():
    """Two layers of three weights: six gathers forward, five backward as the last one's is there still."""
    sharded = fully_sharded(umm.chain("gated-mlp", hidden=8, ffn=16, tokens=8, backward=True))
    gathers = {
        again: sum(x.kind == "copy" for x in repeated(sharded, 2, again).statements)
        for again in ("none", "all")
    }
    assert gathers == {"none": 11, "all": 11}


@pytest.mark.parametrize(("name", "products"), [("gated-mlp", 2), ("attention", 3)])
def test_gradients_of_a_cut_tensor_are_added_up_before_they_move(name, products):
    """On 4 ranks each adds up two or three products for each tile of dX, and moves three of these tiles."""
    sizes = {"hidden": 64, "tokens": 64, "dtype": "float64"}
    sizes |= {"ffn": 96} if name == "gated-mlp" else {"heads": 8, "kv_heads": 4}
    chain = umm.chain(name, **sizes, backward=True).laid_out("sequence", 4)
    schedule = lower(chain, "h100-8")
    gradient = schedule.operand_tensors(0) == [x.name for x in chain.tensors].index("dX")
    assert np.count_nonzero(gradient & (schedule.kind == GEMM)) == products * 16
    assert np.count_nonzero(gradient & (schedule.src != schedule.dst)) == 12
    assert races(schedule) == []
    operands = random_inputs(chain)
    for order in ("rows", "random"):
        trace = umm.run(schedule, executor="numpy", operands=operands, replica=None, order=order)
        assert_right(chain, operands, trace.results)


def test_what_is_gathered_for_queries_serves_keys_that_ranks_share():
    """Two of 4 ranks share a head of keys, each by half of X's columns: X moves once, 3/4 of it to each."""
    sizes = {"hidden": 64, "tokens": 32, "heads": 8, "kv_heads": 2, "dtype": "float64"}
    chain = umm.chain("attention", **sizes).laid_out("sequence", 4)
    schedule = lower(chain, NODES_OF_TWO)
    of_x = (schedule.operand_tensors(0) == 0) & (schedule.src != schedule.dst)
    assert schedule.payload[of_x].sum() == 4 * 3 / 4 * 32 * 64 * 8
    assert races(schedule) == []
    operands = random_inputs(chain)
    trace = umm.run(schedule, executor="numpy", operands=operands, replica=None, order="random")
    assert_right(chain, operands, trace.results)


def test_gradients_of_one_tensor_are_added_up_before_their_replicas_are_summed():
    """Megatron's layer has four sums: R, Y, and dN2 and dN1, which are of two and of three products."""
    sizes = {"hidden": 64, "ffn": 96, "tokens": 32, "heads": 4, "dtype": "float64"}
    chain = umm.chain("transformer-layer", **sizes, backward=True).laid_out("megatron", 4)
    schedule = lower(chain, "h100-8", movement="flat")
    assert np.count_nonzero(schedule.kind == BARRIER) == 4
    assert races(schedule) == []
    operands = random_inputs(chain)
    trace = umm.run(schedule, executor="numpy", operands=operands, replica=None)
    assert_right(chain, operands, trace.results)


def test_a_forward_part_keeps_no_layers_input():
    """Of 64 layers' outputs of 4 MiB two are there at a time; a backward part reads all of them."""
    tensors = {"hidden": 1024, "ffn": 1024, "tokens": 1024, "dtype": "float32"}
    layers = {x: umm.chain("mlp", **tensors, backward=x) for x in (False, True)}
    machine = umm.machine("h100-8")
    memory = {x: steady(layer, {}, 1, machine, 64).memory_bytes for x, layer in layers.items()}
    weights = 64 * 2 * 4 * 2**20
    assert memory[False] == weights + (1 + 2 + 2) * 4 * 2**20  # X, two outputs, H and G
    assert memory[True] > 2 * weights + 64 * 4 * 2**20

"""Training steps: parts add up, bounds hold, more costs more, and searches return the best."""

import json
from dataclasses import replace
from itertools import pairwise, product
from math import prod

import pytest
from click.testing import CliRunner
from command import record
from command import umm as umm_
from hypothesis import given, settings
from hypothesis import strategies as st

import umm
from umm.cli.main import main
from umm.errors import InfeasibleError, InputError, ProblemError
from umm.figures.steps import thinned
from umm.machines.settings import with_settings
from umm.profiles.kernel import COLLECTIVES, MULTIPLY
from umm.program.models import PUBLIC, find_model
from umm.program.models.layers import Attention, Layer, Mamba
from umm.step.kernels import layer_kernels, step_kernels
from umm.step.layers import Shape, layer_parts
from umm.step.parallel import PRECISIONS, Parallel
from umm.step.peers import step_peers
from umm.step.pipeline import SCHEDULES
from umm.step.rates import Rates
from umm.step.search import configurations, search, usable_memory
from umm.step.stacks import find_stack, stack_names
from umm.step.step import (
    cut,
    host_bytes,
    least_seconds,
    memory_bytes,
    model_flop,
    predict,
    question,
    rates_of,
    with_prediction,
)

NODE = umm.machine("h100-8")
SMALL = find_model("llama-3-8b")
SMALL_WEIGHTS = 2 * SMALL.vocab * SMALL.hidden + sum(
    x.elements for layer in SMALL.layers for x in layer.weights(SMALL.hidden)
)
PARTS = {"layers", "bubble", "communication", "loss", "optimizer", "host"}


def step(model=SMALL, machine=NODE, precision="bf16", stack="megatron", **sizes):
    sizes = {"ranks": 8, "batch": 64, "length": 8192} | sizes
    return predict(
        question(model, Parallel(precision=precision, **sizes), rates_of(machine, precision, stack))
    )


@st.composite
def spreads(draw):
    """A way to spread 8 ranks, with a schedule and the modules computed again."""
    tp, pp = draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (2, 2), (4, 2), (1, 4), (8, 1)]))
    schedule = draw(st.sampled_from(SCHEDULES))
    return {
        "tp": tp, "pp": pp, "vp": 2 if schedule == "interleaved" and pp > 1 else 1, "schedule": schedule,
        "recompute": draw(st.sampled_from(["none", "attention", "selective", "full", "every:2"])),
        "zero": draw(st.sampled_from([0, 1, 2, 3])), "micro_batch": draw(st.sampled_from([1, 2])),
        "precision": draw(st.sampled_from(PRECISIONS[:4])), "stack": draw(st.sampled_from(stack_names())),
    }  # fmt: skip


@settings(max_examples=40)
@given(spreads())
def test_the_parts_of_a_step_add_up_and_its_range_holds_it(spread):
    result = step(**spread)
    assert set(result.parts) == PARTS
    assert sum(result.parts.values()) == pytest.approx(result.seconds)
    assert min(result.parts.values()) > -1e-9 * result.seconds
    assert 0 < result.lowest <= result.seconds <= result.highest
    assert 0 < result.mfu < 1


@settings(max_examples=25)
@given(spreads())
def test_a_search_bounds_seconds_from_below_and_knows_memory(spread):
    precision, stack = spread.pop("precision"), spread.pop("stack")
    parallel = Parallel(ranks=8, batch=64, length=4096, precision=precision, **spread)
    asked = question(SMALL, parallel, rates_of(NODE, precision, stack))
    result = predict(asked)
    assert least_seconds(asked) <= result.seconds * (1 + 1e-12)
    assert memory_bytes(asked) == result.memory_bytes
    copied = 1.0 + asked.stack.graph_share
    activations = [x["activations"] / copied for x in result.by_stage]
    assert activations == pytest.approx(result.pipeline.peak, rel=1e-9)


def test_more_work_takes_longer_and_faster_clocks_less():
    alone = step()
    assert step(batch=128).seconds > alone.seconds
    assert step(length=16384).seconds > 2 * alone.seconds
    assert step(recompute="full").seconds > alone.seconds
    assert step(recompute="full").memory_bytes < alone.memory_bytes
    assert step(precision="fp8").seconds < alone.seconds
    assert NODE.load.limited(350.0).clock == pytest.approx(NODE.load.clock * 0.5 ** (1 / 3))
    assert NODE.load.limited(900.0) == NODE.load == NODE.load.limited(0.0)


def test_memory_of_a_replicated_model_is_18_bytes_a_weight():
    """Two of bfloat16, four of gradients, twelve of Adam: zero 1 splits the twelve over eight ranks."""
    weights = SMALL_WEIGHTS
    full, split = (step(zero=x, stack="megatron-plain").memory for x in (0, 1))
    assert full["weights"] == pytest.approx(2 * weights, rel=1e-3)
    assert full["gradients"] == pytest.approx(4 * weights, rel=1e-3)
    assert full["optimizer"] == pytest.approx(12 * weights, rel=1e-3)
    assert split["optimizer"] == pytest.approx(1.5 * weights, rel=1e-3)


def test_layers_that_stages_cannot_share_evenly_are_cut_by_time():
    assert cut([1.0, 2.0, 2.0, 2.0, 3.0], 3) == [range(2), range(2, 4), range(4, 5)]
    with pytest.raises(ProblemError, match="cannot be split into 9 chunks"):
        cut([1.0] * 8, 9)


def test_a_search_is_no_slower_than_any_configuration_that_it_tries():
    """llama-3-8b with 4 layers on 4 ranks: every configuration that fits is simulated here."""
    model = replace(SMALL, layers=SMALL.layers[:4])
    given_sizes = {"ranks": 4, "batch": 16, "length": 4096, "precision": "bf16"}
    rates = rates_of(NODE, "bf16")
    result = search(model, rates, given_sizes, NODE.memory)
    steps = [predict(question(model, x, rates)) for x in configurations(model, given_sizes, 8, rates.stack)]
    fitting = [x for x in steps if x.memory_bytes <= NODE.memory]
    assert result.proven
    assert result.priced == len(steps)
    assert result.top[0].seconds == min(x.seconds for x in fitting)
    assert [x.seconds for x in result.top] == sorted(x.seconds for x in fitting)[: len(result.top)]


def test_a_search_tries_every_size_of_a_micro_batch_that_divides_the_batch():
    """24 sequences on 8 ranks: 3 a rank at a time are faster than 1, 2, 4 and 8."""
    model = replace(SMALL, layers=SMALL.layers[:4])
    given_sizes = {"ranks": 8, "batch": 24, "length": 1024}
    result = search(model, rates_of(NODE, "bf16"), given_sizes, NODE.memory, 1)
    assert result.proven
    assert result.top[0].parallel.micro_batch == 3


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_memory_is_that_of_the_simulated_pipeline(schedule):
    """llama-3-8b in 4 stages; zero-bubble ones keep most only once weights' gradients begin."""
    rates = rates_of(NODE, "bf16")
    for vp, batch in product((1, 2, 4), (8, 16, 40)):
        if vp > 1 and schedule in ("1f1b", "dualpipe-v"):
            continue
        sizes = {"vp": vp, "schedule": schedule}
        one = question(SMALL, Parallel(ranks=8, batch=batch, length=4096, pp=4, **sizes), rates)
        result = predict(one)
        assert memory_bytes(one) == result.memory_bytes
        assert [x["activations"] for x in result.by_stage] == pytest.approx(one.pipeline.peak, rel=1e-12)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_search_gives_each_schedule_the_chunks_that_it_has(schedule):
    """1F1B with one chunk a stage alone; every way to spread a step is listed once."""
    result = search(SMALL, rates_of(NODE, "bf16"), {"ranks": 8, "batch": 32, "length": 4096, "pp": 4,
                    "schedule": schedule}, NODE.memory, top=10)  # fmt: skip
    assert (max(x.parallel.vp for x in result.top) > 1) == (schedule in ("interleaved", "zero-bubble"))


def test_chunks_that_a_schedule_has_may_be_given():
    """DualPipeV has two a stage, whether the question says so or not."""
    sizes = {"pp": 4, "schedule": "dualpipe-v"}
    assert step(vp=2, **sizes).seconds == step(**sizes).seconds


def test_what_was_given_to_a_search_stays():
    given_sizes = {"ranks": 8, "batch": 16, "length": 4096, "tp": 2, "recompute": "full"}
    result = search(SMALL, rates_of(NODE, "bf16"), given_sizes, NODE.memory)
    assert {(x.parallel.tp, x.parallel.recompute) for x in result.top} == {(2, "full")}


def test_a_model_that_fits_nowhere_is_refused_with_what_it_needs():
    with pytest.raises(InfeasibleError, match=r"the nearest needs .* GiB"):
        search(find_model("llama-3-405b"), rates_of(NODE, "bf16"), {"ranks": 8, "batch": 8, "length": 4096},
               NODE.memory)  # fmt: skip


def test_a_search_simulates_only_what_fits(monkeypatch):
    """Zero-bubble pipelines of llama-3-8b, of which the four fastest take 57.8 GiB, not 57."""
    monkeypatch.setattr("umm.step.search.MAX_SIMULATED", 1)
    sizes = {"ranks": 8, "batch": 32, "length": 4096, "pp": 4, "schedule": "zero-bubble"}
    result = search(SMALL, rates_of(NODE, "bf16"), sizes, 57 * 2**30)
    assert result.simulated == len(result.top) == 1
    assert result.top[0].memory_bytes <= 57 * 2**30
    assert not result.proven
    with pytest.raises(
        InfeasibleError, match=r"none of \d+ configurations fits .* the nearest needs 18.5 GiB"
    ):
        search(SMALL, rates_of(NODE, "bf16"), sizes, 18 * 2**30)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"tp": 3}, "8 ranks cannot be split into TP 3"),
        ({"ranks": 6, "batch": 12, "tp": 3}, "--tp 3 does not divide the 32 heads of llama-3-8b"),
        ({"batch": 63}, "take a multiple of 8"),
        ({"ep": 3}, "--ep 3 does not divide the 8 ranks of a pipeline stage; choose from 1, 2, 4, 8"),
        ({"ep": 2}, "--ep 2 splits experts, and llama-3-8b has none"),
        ({"vp": 2}, "give --pp of at least 2"),
        ({"recompute": "every:0"}, "choose from none, attention, selective, full, every:N"),
        ({"recompute": "moe_act,norm"}, "or modules: core_attn, layernorm, moe_act"),
        ({"offload": "weights"}, "choose from none, activations, optimizer"),
        ({"fsdp": 1, "zero": 3}, "--zero 3 splits weights over all .* --fsdp 1 over none; leave one out"),
        ({"keep_bf16": "last:2,norm"}, "choose from attention, latent, mtp, last:N"),
        ({"pp": 8, "vp": 2, "batch": 4, "schedule": "interleaved"}, "take micro-batches by 8"),
        ({"pp": 4, "chunk_layers": 11}, "in 4 chunks needs 33 layers at least; llama-3-8b has 32"),
        ({"ranks": 16, "batch": 64}, "16 ranks need as many devices; h100-8 has 8: give --nodes"),
    ],
)  # fmt: skip
def test_sizes_that_do_not_fit_are_refused_in_a_line(sizes, message):
    with pytest.raises(InputError, match=message):
        step(**sizes)


def test_more_passes_than_can_be_simulated_are_refused_with_what_works():
    """A million sequences through 8 stages are 16 million passes, of which two million are simulated."""
    sizes = {"ranks": 8, "batch": 2**20, "length": 8192, "pp": 8}
    refused = (
        "1,048,576 micro-batches through 8 chunks are too many to simulate; take a --batch of at most 131072"
    )
    with pytest.raises(ProblemError, match=refused):
        step(**sizes)
    with pytest.raises(ProblemError, match=refused):
        search(SMALL, rates_of(NODE, "bf16"), sizes | {"micro_batch": 1, "vp": 1}, float("inf"))


def test_a_search_is_not_proven_beyond_pipelines_that_are_too_long(monkeypatch):
    """Micro-batches of 8 alone are few enough to simulate: the others might be faster."""
    sizes = {"ranks": 8, "batch": 64, "length": 1024, "tp": 1, "pp": 8, "vp": 1, "recompute": "none"}
    every = search(SMALL, rates_of(NODE, "bf16"), sizes, float("inf"))
    assert every.proven
    assert every.top[0].parallel.micro_batch < 8
    monkeypatch.setattr("umm.step.step.MAX_PASSES", 128)
    monkeypatch.setattr("umm.step.search.MAX_PASSES", 128)
    result = search(SMALL, rates_of(NODE, "bf16"), sizes, float("inf"))
    assert {x.parallel.micro_batch for x in result.top} == {8}
    assert result.gap > 0.0
    assert result.top[0].seconds / (1 + result.gap) <= every.top[0].seconds


def test_devices_that_differ_and_stages_beyond_the_layers_are_refused():
    slow = with_settings(NODE, {"device.1.peak": "x0.5"})
    with pytest.raises(InputError, match="devices that differ"):
        step(machine=slow)
    sizes = {"ranks": 8, "batch": 8, "length": 4096, "pp": 8}
    with pytest.raises(ProblemError, match="the 4 layers of llama-3-8b cannot be split"):
        search(replace(SMALL, layers=SMALL.layers[:4]), rates_of(NODE, "bf16"), sizes, NODE.memory)


def test_experts_are_spread_and_their_exchange_is_counted():
    """qwen3-30b-a3b: with 8 expert ranks each keeps an eighth of the experts, and sends tokens."""
    model = find_model("qwen3-30b-a3b")
    spread, full = (step(model, ep=ep, length=4096) for ep in (8, 1))
    assert spread.memory["weights"] < 0.3 * full.memory["weights"]
    assert spread.parts["communication"] > 0


def test_modules_computed_again_take_their_time_and_free_their_bytes():
    """Every module of Megatron-LM's costs seconds and saves bytes; all of a layer's save most."""
    model = find_model("deepseek-v3")
    model = replace(model, layers=model.layers[2:6])
    plain = step(model, ep=8, length=4096)
    for module in ("core_attn", "layernorm", "moe_act", "mla_up_proj", "moe", "mlp"):
        again = step(model, ep=8, length=4096, recompute=module)
        assert again.seconds > plain.seconds
        assert again.memory["activations"] < plain.memory["activations"]
    both = step(model, ep=8, length=4096, recompute="moe_act,mla_up_proj")
    full = step(model, ep=8, length=4096, recompute="full")
    assert full.memory["activations"] < both.memory["activations"] < plain.memory["activations"]


@pytest.mark.parametrize("tp", [1, 8])
@pytest.mark.parametrize(
    ("again", "kept"),
    [("none", 32), ("attention", 30), ("core_attn", 30), ("selective", 12), ("mlp", 16), ("full", 2)],
)
def test_a_layer_keeps_what_megatrons_formula_says(tp, again, kept):
    """34 s·b·h / t of sequence parallelism, less two masks of dropout, and attention's sum for each head.

    Korthikanti et al. (2022), Reducing activation recomputation, table 2; MLP: 2 + 8 + 8 of these.
    """
    model = find_model("gpt-3-175b")
    parallel = Parallel(8, 8, 2048, tp=tp, recompute=again)
    cost = question(model, parallel, rates_of(NODE, "bf16")).layer_costs[0]
    sums = 0 if again in ("attention", "core_attn", "selective", "full") else 4 * 96 * 2048
    assert cost.kept == pytest.approx((kept * 2048 * 12288 + sums) / tp)


def test_what_waits_in_the_hosts_memory_is_copied_there_and_back():
    """Activations of 4 layers take half the bytes of 8, but for those on their way; a slow link shows."""
    model = replace(SMALL, layers=SMALL.layers[:8])
    none, half, full = (
        step(model, offload=x, micro_batch=8) for x in ("none", "activations:4", "activations")
    )
    assert none.memory["activations"] > half.memory["activations"] > full.memory["activations"]
    assert none.seconds <= half.seconds <= full.seconds
    states = step(model, offload="optimizer")
    assert states.memory["optimizer"] == 0.0
    assert states.parts["optimizer"] > step(model).parts["optimizer"]


def test_multi_token_prediction_adds_layers_heads_and_losses():
    """A depth of llama-3-8b is a layer, a joint projection, a head and a loss: its flop count says so."""
    one, two = (step(with_prediction(SMALL, depths)) for depths in (1, 2))
    plain = step()
    added = one.model_flop - plain.model_flop
    assert two.model_flop - one.model_flop == pytest.approx(added)
    layer = plain.model_flop / (len(SMALL.layers) + 2)
    assert layer < added < 4 * layer
    assert one.seconds > plain.seconds
    assert [x.mixer is not None for x in with_prediction(find_model("nemotron-3-nano"), 1).mtp] == [
        True,
        False,
    ]


def test_the_curve_of_a_stage_rises_to_its_peak_and_ends_empty():
    """Four stages: the first keeps most, and every byte that was kept is freed at the end."""
    result = step(pp=4)
    fixed = [sum(parts.values()) - parts["activations"] for parts in result.by_stage]
    peaks = [max(nbytes for _, nbytes in curve) for curve in result.pipeline.curves]
    assert max(a + b for a, b in zip(fixed, peaks, strict=True)) == pytest.approx(result.memory_bytes)
    assert peaks[0] == max(peaks)
    for curve in result.pipeline.curves:
        assert [at for at, _ in curve] == sorted(at for at, _ in curve)
        assert curve[-1][1] == pytest.approx(0.0, abs=1.0)
    times, nbytes = list(range(5000)), [float(x == 4321) for x in range(5000)]
    assert len(thinned(times, nbytes)[0]) <= 1000
    assert max(thinned(times, nbytes)[1]) == 1.0


def test_only_stages_in_different_nodes_send_through_the_network():
    """16 ranks of two nodes in 8 stages: ranks 6 and 8 are in different nodes, 0 and 2 in one."""
    machine = umm.machine("h100-8", nodes=2)
    result = step(machine=machine, ranks=16, batch=2, pp=8, stack="megatron-plain")
    ends = [(begin, end) for stage in result.pipeline.passes for _, begin, end in stage[:1]]
    sends = [after[0] - before[1] for before, after in pairwise(ends)]
    rates = rates_of(machine, "bf16")
    near, far = (rates.send(*x, 8192 * SMALL.hidden * 2) for x in ((0, 2), (6, 8)))
    assert sends == pytest.approx([near, near, near, far, near, near, near])
    assert far > 5 * near
    turn = step(ranks=8, batch=16, pp=8, schedule="dualpipe-v").pipeline.passes[-1]
    assert turn[0][2] == turn[1][1]  # at the last stage nothing is sent to the next chunk


def moved(kind, stack="megatron-plain", **sizes):
    """Return the bytes of all collectives of a kind in a step of eight data parallel ranks."""
    parallel = Parallel(ranks=8, batch=64, length=4096, **sizes)
    kernels = step_kernels(question(SMALL, parallel, rates_of(NODE, parallel.precision, stack)))
    return sum(x.calls * x.nbytes for x in kernels if x.kind == kind)


@pytest.mark.parametrize("name", PUBLIC)
def test_multiplies_are_six_for_each_active_weight_and_token(name):
    """Of all layers, the head and the router, whose experts each get the next whole number of rows."""
    model = find_model(name)
    asked = question(model, Parallel(ranks=8, batch=16, length=4096), rates_of(NODE, "bf16"))
    flop = sum(2 * prod(x.shape) * x.calls for x in step_kernels(asked) if x.kind == MULTIPLY)
    weights = [x for layer in model.layers for x in layer.weights(model.hidden) if x.linear]
    weights += [x for x in model.ends() if x.linear or model.tied]
    routers = sum(x.experts.experts * model.hidden for x in model.layers if x.experts)
    active = sum(x.active for x in weights) + routers
    assert 8 * flop / (6 * 16 * 4096) == pytest.approx(active, rel=6e-3)


def test_a_layer_that_takes_the_choice_of_another_has_no_indexer():
    """Of glm-5: 32 heads of 128 columns from 2,048, a key and 32 weights from 6,144; and no scores."""
    model = find_model("glm-5")
    layer, mixer = model.layers[0], model.layers[0].mixer
    shared = replace(layer, mixer=replace(mixer, indexer=replace(mixer.indexer, shared=True)))
    model = replace(model, layers=(layer, shared))
    asked = question(model, Parallel(ranks=1, batch=1, length=4096), rates_of(NODE, "bf16"))
    kernels = [list(layer_kernels(asked, x, False, False)) for x in model.layers]
    flop = [sum(2 * prod(x.shape) * x.calls for x in some if x.kind == MULTIPLY) for some in kernels]
    attention = [sum(x.seconds for x in some if x.kind == "attention") for some in kernels]
    assert flop[0] - flop[1] == 6 * 4096 * (2048 * 32 * 128 + 6144 * (128 + 32))
    assert attention[1] < attention[0]


@pytest.mark.parametrize("name", ["llama-3-8b", "deepseek-v3", "nemotron-3-nano"])
@pytest.mark.parametrize(
    "sizes",
    [{"tp": 8}, {"recompute": "full"}, {"tp": 2, "precision": "fp8", "zero": 1, "keep_bf16": "last:2"}],
)
def test_the_kernels_of_a_step_take_as_long_as_its_parts(name, sizes):
    """Of layers, the loss and the optimizer; collectives are communication alone."""
    sizes = {"ranks": 8, "batch": 16, "length": 512, "precision": "bf16", "zero": 0} | sizes
    rates = rates_of(NODE, sizes["precision"])
    asked = question(with_prediction(find_model(name), 1), Parallel(**sizes), rates)
    parts = predict(asked).parts
    took = sum(x.seconds * x.calls for x in step_kernels(asked) if x.kind not in COLLECTIVES)
    ends = [x for part in asked.end_parts[1] for x in part.kernels if x.kind not in COLLECTIVES]
    heads = 2 * asked.parallel.micro_batches  # the model's, and that of a depth of prediction
    assert parts["loss"] == pytest.approx(heads * sum(x.seconds * x.calls for x in ends))
    assert took == pytest.approx(parts["layers"] + parts["loss"] + parts["optimizer"])


def test_prices_that_questions_share_are_of_their_own_sizes():
    """Layers of 4,096 columns and of 2,048, and sums of each micro-batch or of all."""
    rates = rates_of(NODE, "bf16")
    asked = [
        question(model, Parallel(8, 64, 4096, zero=zero), rates)
        for model, zero in ((SMALL, 1), (SMALL, 2), (replace(SMALL, hidden=2048), 1))
    ]
    alone = [question(x.model, x.parallel, rates_of(NODE, "bf16")) for x in asked]
    assert [x.layer_costs for x in asked] == [x.layer_costs for x in alone]


def test_split_weights_are_gathered_twice_and_their_gradients_summed_for_each_micro_batch():
    """Of all weights of llama-3-8b, the table and the head among them, with eight micro-batches a rank."""
    weights = SMALL_WEIGHTS
    sums = [moved("reduce-scatter", zero=x) / (4 * weights) for x in (0, 1, 2, 3)]
    gathers = [moved("all-gather", zero=x) / (2 * weights) for x in (0, 1, 2, 3)]
    assert sums == pytest.approx([0, 1, 8, 8], rel=1e-3)
    assert gathers == pytest.approx([0, 1, 1, 16], rel=1e-3)
    assert moved("all-reduce", zero=0) == pytest.approx(4 * weights, rel=1e-3)
    assert step(zero=1).seconds < step(zero=2).seconds


@pytest.mark.parametrize(("keep_bf16", "more"), [("", 0), ("attention", 32 * 4096 * 10240)])
def test_split_weights_of_8_bits_are_gathered_in_these(keep_bf16, more):
    """A byte for each primary weight of Megatron-LM, two in table, head, norms and others in bfloat16."""
    linear = sum(x.elements for layer in SMALL.layers for x in layer.weights(4096) if x.linear)
    weights = 2 * SMALL_WEIGHTS - linear + more
    sizes = {"precision": "fp8", "keep_bf16": keep_bf16}
    gathered = [moved("all-gather", "megatron", zero=x, **sizes) for x in (1, 3)]
    assert gathered == pytest.approx([weights, 16 * weights], rel=1e-6)
    assert moved("all-gather", zero=3, **sizes) == pytest.approx(16 * 2 * SMALL_WEIGHTS, rel=1e-6)


@pytest.mark.parametrize(("zero", "weight", "gathered"), [(0, 4.06, 0), (1, 2.06, 2), (3, 2.06, 16 * 1.03)])
def test_mxfp8_keeps_and_gathers_weights_as_megatron_does(zero, weight, gathered):
    """Beside bfloat16 without a distributed optimizer; with one through its gradients' buffer in bfloat16."""
    linear = sum(x.elements for layer in SMALL.layers for x in layer.weights(4096) if x.linear)
    ends = SMALL_WEIGHTS - linear
    parallel = Parallel(ranks=8, batch=64, length=4096, precision="mxfp8", zero=zero)
    asked = question(SMALL, parallel, rates_of(umm.machine("b200-8"), "mxfp8"))
    nbytes = sum(x.calls * x.nbytes for x in step_kernels(asked) if x.kind == "all-gather")
    passes = {0: 0, 1: 1, 3: 16}[zero]
    assert nbytes == pytest.approx(gathered * linear + 2 * passes * ends, rel=1e-6)
    if zero < 3:
        assert predict(asked).memory["weights"] == pytest.approx(weight * linear + 2 * ends)


def test_attention_that_stays_in_bfloat16_has_weights_of_two_bytes():
    """Of llama-3-8b 10,240 x 4,096 a layer; in MXFP8 others have 2.06 bytes, and no copy in bfloat16."""
    machine, weights = umm.machine("b200-8"), 32 * 4096 * 10240
    few, kept = (step(SMALL, machine, "mxfp8", keep_bf16=x) for x in ("", "attention"))
    assert few.memory["weights"] - kept.memory["weights"] == pytest.approx(0.06 * weights)
    few, kept = (step(SMALL, machine, "nvfp4", keep_bf16=x) for x in ("", "attention"))
    assert few.memory["weights"] - kept.memory["weights"] == pytest.approx(1.125 * weights)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_ranks_that_share_weights_share_gradients_and_states_too(zero):
    """16 ranks, eight of which share: an eighth of 4 and 12 bytes a weight, whatever ``--zero`` says."""
    parts = step(
        machine=umm.machine("h100-8", nodes=2), ranks=16, fsdp=8, zero=zero, stack="torchtitan"
    ).memory
    weights = sum(x.elements for layer in SMALL.layers for x in layer.weights(SMALL.hidden))
    weights += 2 * SMALL.vocab * SMALL.hidden
    assert parts["optimizer"] == pytest.approx(12 * weights / 8, rel=1e-3)
    assert parts["gradients"] == pytest.approx(4 * weights / 8, rel=1e-3)


def test_the_table_and_the_head_stay_in_bfloat16():
    """Of NVFP4's 3.125 bytes a weight and two, tables, norms and kept layers have two."""
    ends = 2 * SMALL.vocab * SMALL.hidden + 32 * 2 * 4096
    node = umm.machine("b200-8")
    narrow, half, wide = (
        step(machine=node, precision="nvfp4", keep_bf16=x).memory["weights"]
        for x in ("", "last:16", "last:32")
    )
    assert narrow == pytest.approx(3.125 * (SMALL_WEIGHTS - ends) + 2 * ends)
    assert wide == pytest.approx(2 * SMALL_WEIGHTS)
    assert half == pytest.approx((narrow + wide) / 2)


def test_nvfp4_keeps_as_much_as_was_allocated():
    """The first stage of llama-3-405b on GB300 had 206.2 GiB as it ran out (Megatron-Bridge, issue 2221)."""
    sizes = {"ranks": 256, "batch": 1536, "tp": 4, "pp": 8, "vp": 4, "schedule": "interleaved"}
    one = step(find_model("llama-3-405b"), umm.machine("gb300-nvl72", nodes=4), "nvfp4", **sizes)
    assert sum(one.by_stage[0].values()) / 2**30 == pytest.approx(206.2, rel=0.01)


def test_the_table_is_summed_over_its_ranks_and_its_gradient_is_as_large_as_it():
    """Two tensor parallel ranks of 512 tokens: the gradient moves 12 bytes for each of its elements."""
    sizes = {"ranks": 2, "batch": 2, "length": 512, "tp": 2, "precision": "bf16"}
    first = question(SMALL, Parallel(**sizes), rates_of(NODE, "bf16", "megatron-plain")).ends[0]
    table = SMALL.vocab * SMALL.hidden / 2
    assert first.data > 12 * table / NODE.pass_bandwidth > 10 * first.forward
    assert first.sent > 0.0 < first.returned


def core_of(name, length, **changes):
    """Return the seconds of attention in a model's first layer with another mixer, and its bytes kept."""
    mixer = replace(find_model(name).layers[0].mixer, **changes)
    shape = Shape(1024, Parallel(ranks=8, batch=8, length=length), rates_of(NODE, "bf16"))
    core = next(x for x in layer_parts(Layer(mixer), shape) if x.name == "attention")
    return core.forward + core.data, core.kept


def test_chunked_attention_takes_as_long_as_sequences_of_its_chunks():
    """Llama 4 sees 8,192 tokens: 32K are four of these, where a sliding window sees more."""
    chunk, chunks, uneven = (core_of("llama-4-scout", x) for x in (8192, 32768, 40000))
    sliding = core_of("llama-4-scout", 32768, chunked=False)
    assert chunks[0] == pytest.approx(4 * chunk[0], rel=0.05)
    assert chunks[0] < uneven[0] < 5 * chunk[0]
    assert sliding[0] > 1.5 * chunks[0]
    model = find_model("llama-4-scout")
    model = replace(model, layers=model.layers[:1], tied=False)
    flops = [model_flop(model, Parallel(8, 8 * x, 8192 * 4 // x)) for x in (1, 4)]
    assert flops[0] == pytest.approx(flops[1])


def test_values_that_are_keys_are_multiplied_once_and_kept_and_sent_apart():
    """Of 4,096 tokens 2 heads of 128 columns: without their product, attention keeps and sends as much."""
    mixer = Attention(16, 2, 128, 128, norms=256)
    parallel = Parallel(ranks=2, batch=2, length=8192, cp=2)
    shape = Shape(2048, parallel, rates_of(NODE, "bf16"))
    apart, shared = (layer_parts(Layer(replace(mixer, keys_only=x)), shape) for x in (False, True))
    columns = [sum(x.kernels[0].shape[1] for x in parts if x.weight) for parts in (apart, shared)]
    assert columns[0] - columns[1] == 2 * 128
    assert sum(x.kept for x in apart) == sum(x.kept for x in shared)
    sent = [
        sum(y.nbytes for x in parts for y in x.kernels if y.kind == "all-gather" and y.seconds)
        for parts in (apart, shared)
    ]
    assert sent[0] == sent[1] == 2 * 8192 * 512 * 2


def test_sparse_latent_attention_sees_the_keys_that_it_chooses():
    """glm-5 attends to 2,048: 64K tokens take less than all keys do; it keeps its values' 256 columns."""
    sparse, full = core_of("glm-5", 65536), core_of("glm-5", 65536, indexer=None)
    assert sparse[0] < full[0] / 2
    assert sparse[1] == full[1] == 65536 * 64 * (256 * 2 + 4)


def test_a_layer_may_have_neither_a_mixer_nor_an_mlp():
    """As pruned models have: it takes no time."""
    assert step(replace(SMALL, layers=(Layer(None), *SMALL.layers[:3]))).seconds == pytest.approx(
        step(replace(SMALL, layers=SMALL.layers[:3])).seconds, rel=1e-3
    )


def test_a_search_splits_heads_of_every_mixer():
    """Six heads of Mamba's: two ranks share them, four do not, whatever attention has."""
    model = find_model("nemotron-3-nano")
    layers = [
        replace(x, mixer=replace(x.mixer, heads=6)) if isinstance(x.mixer, Mamba) else x for x in model.layers
    ]
    given_sizes = {"ranks": 8, "batch": 8, "length": 2048, "ep": 1}
    tried = configurations(replace(model, layers=tuple(layers)), given_sizes, 8, find_stack("megatron"))
    assert {x.tp for x in tried} == {1, 2}


def test_a_tied_table_of_two_stages_has_its_gradients_summed():
    """The first and the last of four stages; DualPipeV has both ends, and one table, in the first."""
    model = replace(SMALL, tied=True)
    tied, apart = (step(x, pp=4, batch=32, stack="megatron-plain") for x in (model, SMALL))
    both = rates_of(NODE, "bf16", "megatron-plain")
    summed = both.collective("all-reduce", (0, 6), SMALL.vocab * SMALL.hidden * 4.0)
    assert tied.seconds - apart.seconds == pytest.approx(summed)
    assert tied.by_stage == apart.by_stage
    tied, apart = (step(x, pp=4, batch=32, schedule="dualpipe-v") for x in (model, SMALL))
    assert tied.seconds <= apart.seconds
    table = 2 * SMALL.vocab * SMALL.hidden
    assert apart.by_stage[0]["weights"] - tied.by_stage[0]["weights"] == pytest.approx(table)


def test_faster_links_make_no_step_that_waits_for_its_host_slower():
    """A gather of weights was hidden behind the exchange of tokens, not behind the wait that it became."""
    slow, machine = umm.machine("b200-8", nodes=4), {"fabric.bandwidth": "x2"}
    sizes = {"ranks": 32, "batch": 16, "length": 512, "tp": 2, "ep": 8, "offload": "optimizer"}
    one, other = (
        step(find_model("qwen3-30b-a3b"), x, "fp8", "megatron-hybridep", keep_bf16="attention", **sizes)
        for x in (with_settings(slow, machine), slow)
    )
    assert one.seconds <= other.seconds


def test_experts_that_no_other_rank_holds_are_not_gathered():
    """mixtral-8x7b's experts, one a rank of 8; of the rest an eighth, and two of 32 layers' gathered."""
    model = find_model("mixtral-8x7b")
    experts = 3 * 14336 * 4096 * len(model.layers)
    rest = sum(x.elements for layer in model.layers for x in layer.weights(4096)) - 8 * experts
    rest += 2 * model.vocab * model.hidden
    weights = step(model, ep=8, zero=3).memory["weights"] / 2
    assert weights == pytest.approx(experts + rest * (1 / 8 + 2 / 32))


def test_stages_without_offloaded_layers_have_no_buffers_for_them():
    none, some = (step(pp=2, offload=x).by_stage for x in ("none", "activations:3"))
    assert some[1]["buffers"] == none[1]["buffers"]
    assert some[0]["buffers"] > none[0]["buffers"]


def test_recipes_are_no_faster_than_the_best_of_all():
    """llama-3-8b on 8 ranks: each recipe's sizes stay, and one that cannot fit states its need."""
    rates = rates_of(NODE, "bf16")
    rows = step_peers(SMALL, rates, {"ranks": 8, "batch": 16, "length": 4096}, NODE.memory)
    named = {row.name: row for row in rows}
    assert list(named)[-1] == "best"
    assert named["TP8"].step.parallel.tp == 8
    assert named["FSDP2"].step.parallel.zero == 3
    assert named["DDP"].step is None
    assert "the nearest needs" in named["DDP"].why
    assert named["best"].step.seconds == min(row.step.seconds for row in rows if row.step)


def test_peers_with_step_are_the_peers_of_a_step():
    """Both spellings give the same rows; a missing flag is step's."""
    asked = ["--model", "llama-3-8b", "--ranks", 2, "--batch", 4, "--length", "2K", "--memory", "none"]
    assert record("peers", "--step", *asked) == record("step", "--peers", *asked)
    assert "--model" in umm_("peers", "--step").stderr


def test_a_search_takes_what_megatron_can_run():
    """Layers wait in the host's memory beside split weights alone; Mamba's models have no chunks."""
    given_sizes = {"ranks": 8, "batch": 32, "length": 2048, "precision": "bf16"}
    tried = {
        (name, stack): list(configurations(find_model(name), given_sizes, 8, find_stack(stack)))
        for name in ("llama-3-8b", "nemotron-3-nano")
        for stack in ("megatron", "megatron-hybridep")
    }
    away = {x.offload: (x.pp, x.zero, x.recompute) for x in tried["llama-3-8b", "megatron"]}
    assert {y for x, y in away.items() if x != "none"} == {(1, 3, "none")}
    assert sorted(away) == ["activations:16", "activations:24", "activations:8", "none"]
    assert {x.offload for x in tried["llama-3-8b", "megatron-hybridep"]} == {"none"}
    assert max(x.vp for x in tried["llama-3-8b", "megatron"]) > 1
    assert {x.vp for x in tried["nemotron-3-nano", "megatron"]} == {1}
    model, stack = find_model("qwen3-30b-a3b"), find_stack("megatron-26.06")
    assert {(x.pp > 1, x.vp > 1) for x in configurations(model, given_sizes, 8, stack)} == {
        (False, False),
        (True, True),
    }


def test_a_head_in_few_bits_multiplies_faster_in_their_type_alone():
    """Multiplies of llama-3-8b's head take half as long in MXFP8, less casts; in bfloat16 the same."""
    names = ("megatron-26.06", "megatron-26.06-head")
    machine = umm.machine("b200-8")
    wide, few = (step(machine=machine, precision="mxfp8", stack=x).parts["loss"] for x in names)
    assert 0.5 * wide < few < 0.8 * wide
    plain, same = (step(machine=machine, stack=x).seconds for x in names)
    assert plain == same


def test_a_search_leaves_no_more_in_the_hosts_memory_than_it_has():
    """Offloaded layers of llama-3-8b take more than 1 MiB of the host's; with 1 TiB there they wait."""
    given_sizes = {"ranks": 8, "batch": 16, "length": 8192, "zero": 3, "offload": "activations:16"}
    large, small = (
        Rates(NODE, find_stack("megatron"), replace(NODE.load, host_capacity=x), "bf16")
        for x in (2**40, 2**20)
    )
    best = search(SMALL, large, given_sizes, NODE.memory, 1).top[0]
    assert best.parallel.offload == "activations:16"
    with pytest.raises(InfeasibleError, match=r"host's memory takes .* at least of a device's 1.0 MiB"):
        search(SMALL, small, given_sizes, NODE.memory, 1)


@pytest.mark.parametrize(("schedule", "vp"), [("1f1b", 1), ("interleaved", 2), ("zero-bubble", 2)])
def test_as_many_bytes_wait_in_the_hosts_memory_as_a_device_would_keep(schedule, vp):
    """Of the first of two stages, with two chunks of layers or one."""
    sizes = {"ranks": 2, "batch": 16, "length": 2048, "pp": 2, "vp": vp, "schedule": schedule}
    kept, waiting = (
        question(SMALL, Parallel(**sizes, offload=x), rates_of(NODE, "bf16")) for x in ("none", "activations")
    )
    assert host_bytes(waiting) == pytest.approx(kept.pipeline.peak[0])


def test_graphs_of_parts_keep_more_than_activations():
    """Of activations 0.22 more where Megatron-Bridge's recipes have them; the same weights and time."""
    graphs, none = (step(stack=x, micro_batch=1, tp=2, ep=1) for x in ("megatron-hybridep", "megatron"))
    assert graphs.memory["activations"] == pytest.approx(1.22 * none.memory["activations"])
    assert graphs.memory["weights"] == none.memory["weights"]


def test_a_backward_pass_needs_the_widest_gradient_and_one_of_each_shape_of_weights():
    """The MLP's 2 x 14,336 columns, or the logits of the head; casts and recomputed parts add."""
    rows, wide, vocab, shapes = 4096, 28672, SMALL.vocab, 6144 + 4096 + 28672 + 14336
    sizes = {"ranks": 2, "batch": 2, "length": rows, "micro_batch": 1, "stack": "megatron"}
    first, last = (x["buffers"] for x in step(pp=2, **sizes).by_stage)
    placeholders = 2.0 * 4096 * shapes
    assert first == pytest.approx(2.0 * rows * wide + placeholders)
    assert last == pytest.approx(2.0 * rows * vocab + placeholders)
    narrow = step(pp=2, precision="fp8", **sizes).by_stage[0]["buffers"]
    assert narrow == pytest.approx(4.0 * rows * wide + placeholders)
    pair = step(pp=1, tp=2, **sizes).by_stage[0]["buffers"]
    assert pair == pytest.approx((2.0 * rows * vocab + placeholders) / 2 + 20.0 * rows * 4096)
    again = step(pp=2, recompute="full", **sizes).by_stage[0]["buffers"]
    assert again > first + 2.0 * rows * wide
    plain = step(pp=2, **sizes | {"stack": "torchtitan"}).by_stage[0]["buffers"]
    assert plain == pytest.approx(2.0 * rows * wide)


def test_tokens_in_the_second_dimension_are_copied_beside_each_collective():
    """torchtitan reads and writes all tokens once more for a gather, twice backward; one rank moves none."""
    stack = find_stack("torchtitan")
    alone, plain, copied = (
        Shape(4096, Parallel(ranks=8, batch=8, length=4096, tp=tp), Rates(NODE, prices, NODE.load, "bf16"))
        for tp, prices in ((1, stack), (8, replace(stack, reorders=False)), (8, stack))
    )
    assert alone.gather(4096).forward == plain.gather(4096).forward == 0.0
    seconds = copied.rates.passes(2.0 * 4096 * 4096 * 2)
    assert copied.gather(4096).forward == pytest.approx(seconds)
    assert copied.gather(4096).data == pytest.approx(2 * seconds)
    assert copied.gather(4096).sent == plain.gather(4096).sent > 0.0


def test_kernels_beside_hidden_gathers_are_longer_by_the_devices_contention():
    """H100's kernels lose 0.7 of the collectives' seconds, A100's 0.43, another chip's as H100's."""
    assert [umm.machine(x).load.contention for x in ("h100-8", "a100-8", "b200-8")] == [0.7, 0.43, 0.7]
    parallel = Parallel(ranks=8, batch=64, length=8192, zero=3)
    less, more = (
        question(
            SMALL, parallel, Rates(NODE, find_stack("megatron"), replace(NODE.load, contention=x), "bf16")
        )
        for x in (0.1, 0.7)
    )
    collectives = sum(x.seconds for x in more.gathers(more.layer_costs[0]))
    lost = more.layer_costs[0].seconds - less.layer_costs[0].seconds
    assert lost == pytest.approx(0.6 * collectives)


def test_a_search_leaves_room_for_what_programs_take_besides():
    """14 GiB of nvidia-smi's figure on H100, or 3 % where a file does not say it."""
    assert usable_memory(NODE) == (81559 - 14 * 1024) * 2**20
    assert usable_memory(umm.machine("pvc-12")) == pytest.approx(0.97 * umm.machine("pvc-12").memory)


def test_tokens_go_once_to_a_rank_or_a_node_with_hybridep():
    """Eight experts a token: 16 ranks on two nodes get 2 copies across, so the exchange is shorter."""
    model, machine = find_model("qwen3-30b-a3b"), umm.machine("b200-8", nodes=2)
    sizes = {"ranks": 16, "ep": 16, "length": 4096, "zero": 0}
    rates = [Rates(machine, find_stack(x), machine.load, "bf16") for x in ("megatron", "megatron-hybridep")]
    sent = [
        sum(part.sent for part in layer_parts(model.layers[0], Shape(2048, Parallel(batch=64, **sizes), x)))
        for x in rates
    ]
    assert 0 < sent[1] < 0.6 * sent[0]


def test_chunks_have_the_layers_that_are_given_and_the_last_one_the_rest():
    """NVIDIA's layout of deepseek-v3 is Et*4|(t*4|)*14tmL: after 60 layers one, a prediction, the head."""
    model = with_prediction(find_model("deepseek-v3"), 1)
    sizes = {"ranks": 8, "batch": 64, "length": 4096, "pp": 4, "vp": 4, "ep": 2, "schedule": "interleaved"}
    prices = rates_of(NODE, "bf16")
    chunks = [
        question(model, Parallel(**sizes, chunk_layers=x), prices).split([1.0] * 62 + [5.0] * 2)
        for x in (4, 0)
    ]
    assert [len(x) for x in chunks[0]] == [5] + [4] * 14 + [3]
    assert len(chunks[1][-1]) < 3


def test_a_slow_host_leaves_the_device_waiting_where_it_reads_experts_rows():
    """128 experts on one rank: 288 kernels of 25 us forward are slower than the device with few tokens."""
    model = find_model("qwen3-30b-a3b")
    model = replace(model, layers=model.layers[:2])
    waits, ahead = (step(model, length=512, stack=x).parts["host"] for x in ("megatron", "megatron-26.06"))
    assert waits > ahead >= 0.0


def test_casts_read_again_for_scales_and_transforms():
    """A cast to MXFP8 reads once, to fp8 twice, to NVFP4 three times; the last writes fewer bits."""
    machine = umm.machine("b200-8")
    casts = {
        x: Rates(machine, find_stack("megatron"), machine.load, x).casts(1e9)
        for x in ("mxfp8", "fp8", "nvfp4")
    }
    assert casts["mxfp8"] < casts["fp8"] < casts["nvfp4"]
    assert casts["nvfp4"] * machine.pass_bandwidth == pytest.approx(1e9 * (6 + 2 * 0.5625), rel=0.01)


def test_layers_kept_in_bfloat16_take_longer_the_more_there_are():
    plain, few, many = (step(precision="fp8", keep_bf16=x) for x in ("", "last:4", "attention,last:16"))
    assert plain.seconds < few.seconds < many.seconds < step(precision="bf16").seconds * 1.05


def test_every_stack_states_its_source():
    assert all(len(find_stack(name).source) > 20 for name in stack_names())
    with pytest.raises(ProblemError, match="--stack 'megatrn' is unknown; did you mean 'megatron'"):
        find_stack("megatrn")


COMMAND = ["step", "--model", "llama-3-8b", "--batch", "64", "--length", "8K"]


def test_the_command_prints_parts_memory_and_assumptions():
    result = CliRunner().invoke(main, [*COMMAND, "--tp", "2", "--pp", "2"])
    assert result.exit_code == 0
    assert max(map(len, result.output.splitlines())) <= 80
    for word in ("step", "tokens/s a device", "layers", "activations", "stack megatron"):
        assert word in result.output


def test_json_has_the_step_and_with_search_the_top():
    result = CliRunner().invoke(main, [*COMMAND, "--search", "--json"])
    record = json.loads(result.stdout)
    assert record["command"] == "step"
    assert set(record["breakdown"]) == PARTS
    assert all(x["breakdown"]["bubble"] >= 0.0 for x in record["top"])
    assert record["range_s"][0] <= record["step_s"] <= record["range_s"][1]
    assert sum(record["memory_parts"].values()) == pytest.approx(record["memory_bytes"], rel=1e-6)
    assert record["configuration"] == record["top"][0]["configuration"]
    assert len(record["top"]) == 5


@pytest.mark.parametrize(("flags", "message"), [
    (["--power", "500 gallons"], "is no power; write it like 500W"),
    (["--power", "50W"], "--power 50W is no limit of these devices; take one from 175W to 700W"),
    (["--power", "5000W"], "take one from 175W to 700W"),
    (["--chunk-layers", "4"], "--chunk-layers cuts pipeline stages; give --pp of at least 2"),
    (["--keep-bf16", "last:100"], "--keep-bf16 last:100 is of more layers than the 32 of llama-3-8b"),
    (["--offload", "activations:999"], "more layers than the 32 of llama-3-8b"),
    (["--schedule", "zero-bubble"], "--schedule zero-bubble orders pipeline stages; give --pp of at least 2"),
    (["--pp", "2", "--vp", "2", "--schedule", "1f1b"], "1f1b has 1 chunk of layers a stage, not 2"),
    (["--search", "--vp", "3", "--schedule", "dualpipe-v"], "dualpipe-v has 2 chunks of layers a stage"),
    (["--memory", "10GiB"], "--memory limits a search"),
    (["--top", "3"], "--top is of a search; add --search, or leave it out"),
    (["--peers", "--top", "3"], "--top is of a search; add --search, or leave it out"),
    (["--search", "--memory", "-1GiB"], "'-1GiB' is no limit; write it like 60GiB, or none"),
    (["--search", "--pp", "0"], "--pp 0 must be at least 1"),
    (["--search", "--micro-batch", "0"], "--micro-batch 0 must be at least 1"),
    (["--search", "--tp", "3"], "8 ranks cannot be split into TP 3 x CP 1 x PP 1; take a multiple of 3"),
    (["--emit", "megatron", "--json"], "--emit prints a configuration alone; leave out --html and --json"),
    (["--ranks", "16"], "give --nodes"),
])  # fmt: skip
def test_bad_flags_end_in_one_line(flags, message):
    result = CliRunner().invoke(main, [*COMMAND, *flags])
    assert result.exit_code == 2
    assert message in result.output.replace("\n", " ")


def test_a_search_names_the_modules_that_its_column_calls_so():
    """The table has room for the word alone."""
    sizes = ["--tp", "1", "--pp", "2", "--ep", "8", "--micro-batch", "1", "--recompute", "layernorm,moe_act"]
    step = ["step", "--model", "gpt-oss-120b", "--nodes", "2", "--batch", "16", "--length", "4K"]
    result = CliRunner().invoke(main, [*step, "--search", "--memory", "none", *sizes])
    assert "modules   layernorm, moe_act\n" in result.output


@pytest.mark.parametrize(("zero", "offload"), [(3, ""), (1, "activations")])
def test_launches_that_are_faster_make_no_step_with_gathers_or_copies_slower(zero, offload):
    """Both were hidden behind kernels, and not behind the wait for the host which grew as these got short."""
    fast = with_settings(NODE, {"launch": "x0.1"})
    sizes = {"batch": 16, "length": 1024, "precision": "fp8", "stack": "megatron-hybridep", "zero": zero}
    sizes |= {"offload": offload} if offload else {}
    one, other = (step(find_model("mixtral-8x7b"), x, tp=4, **sizes) for x in (NODE, fast))
    assert one.parts["host"] < other.parts["host"]
    assert other.seconds <= one.seconds

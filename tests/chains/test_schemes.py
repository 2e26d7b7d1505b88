"""Schemes by name: the layouts each gives, and their order on four nodes as an expert estimates it."""

import re

import numpy as np
import pytest

import umm
from umm.checks import random_inputs
from umm.errors import ProblemError
from umm.machines.settings import with_settings
from umm.program.outline import Outline
from umm.program.schemes import on_nodes
from umm.program.systems import choices_left, in_scheme
from umm.schedules.races import races


def gated_mlp(tokens):
    sizes = {"hidden": 8192, "ffn": 28672, "tokens": tokens}
    return umm.chain("gated-mlp", backward=True, dtype="bfloat16", **sizes)


def milliseconds(tokens, name):
    chain = gated_mlp(tokens).laid_out(name, ranks=32)
    return umm.run(umm.schedule(chain, "dgx-h100x4")).makespan_s * 1e3


@pytest.mark.parametrize(
    ("name", "x", "h", "w1", "w2"),
    [
        ("tp8-dp4", "row@4x8:r-", "2d@4x8:rc", "col@4x8:-c", "row@4x8:-r"),
        ("sp8-dp4", "row", "2d@4x8:rc", "col@4x8:-c", "row@4x8:-r"),
        ("fsdp32", "row", "row", "row", "row"),
        ("hsdp8x4", "row", "row", "row@4x8:-r", "row@4x8:-r"),
        ("fsdp4-tp8", "row@4x8:r-", "2d@4x8:rc", "2d@4x8:rc", "2d@4x8:cr"),
        ("2d8x4", "2d@8x4:rc", "2d@8x4:rc", "2d@8x4:rc", "2d@8x4:rc"),
        ("tp16x2", "2d@2x16:rc", "2d@2x16:cr", "2d@2x16:cr", "2d@2x16:rc"),
        ("tp32", "row@32", "col", "col", "row"),
        ("dp32", "row", "row", "row@32", "row@32"),
    ],
)
def test_a_scheme_lays_tokens_and_weights_over_its_mesh(name, x, h, w1, w2):
    """The last axis is in the node; a gradient has the layout of its tensor."""
    laid = {t.name: t.layout for t in gated_mlp(64).laid_out(name, ranks=32).tensors}
    for tensor, text in (("X", x), ("H1", h), ("W1", w1), ("dW1", w1), ("W2", w2)):
        assert laid[tensor] == umm.Layout.parse(text, laid[tensor].shape, 32), tensor


@pytest.mark.parametrize("name", [*on_nodes(2, 8), "tp8x2", "tp4x4"])
def test_every_scheme_computes_the_chain(name):
    """Sixteen ranks in two nodes, whole numbers: results equal the reference, in every replica."""
    chain = umm.chain("mlp", hidden=16, ffn=32, tokens=16, backward=True).laid_out(name, ranks=16)
    rng = np.random.default_rng(1)
    operands = {x.name: rng.integers(-2, 3, x.shape).astype(float) for x in chain.tensors if x.is_input}
    made = umm.schedule(chain, "dgx-h100x4")
    trace = umm.run(made, executor="numpy", operands=operands, replica=None, order="random", seed=1)
    expected = chain.reference(operands)
    for output in chain.outputs:
        for replica in trace.results[output]:
            assert np.allclose(replica, expected[output], rtol=1e-5, atol=1e-3), output


def assert_computes(schedule, layer):
    """A schedule has no race, and each replica of each output equals the layer computed on one rank."""
    assert races(schedule) == []
    operands = random_inputs(schedule.program)
    trace = umm.run(schedule, executor="numpy", operands=operands, replica=None, order="random", seed=1)
    expected = layer.laid_out(ranks=1).reference(operands)
    for output in schedule.program.outputs:
        for replica in trace.results[output]:
            np.testing.assert_allclose(replica, expected[output], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", ["ring2-ulysses4", "ring4-ulysses2", "ring8-ulysses1"])
@pytest.mark.parametrize("machine", ["h100-8", "a100-2x4"])
def test_rings_of_groups_by_heads_compute_the_layer(name, machine):
    """USP: eight ranks share a causal sequence, with gradients, without races; results are merged."""
    layer = umm.chain("transformer-layer", hidden=32, ffn=16, heads=8, kv_heads=8, tokens=48,
                      backward=True, dtype="float64")  # fmt: skip
    changed = in_scheme(name, layer, 8)
    chain = changed.laid_out(changed.layouts_of(name, 8), 8)
    made = umm.schedule(chain, umm.machine(machine))
    assert_computes(made, layer)


def test_rings_of_fewer_groups_merge_less_and_are_faster():
    """One sequence of 32K tokens on 8 H200: the more ranks share heads, the fewer steps are merged."""
    layer, machine, seconds = (
        umm.chain("attention", model="llama-3-8b", tokens=2**15, dtype="bfloat16"), umm.machine("h200-8"), []
    )  # fmt: skip
    for name in ("ring2-ulysses4", "ring4-ulysses2", "ring"):
        changed = in_scheme(name, layer, 8)
        chain = changed.laid_out(changed.layouts_of(name, 8), 8)
        seconds.append(umm.run(umm.schedule(chain, machine)).makespan_s)
    assert seconds == sorted(seconds)


@pytest.mark.parametrize("name", ["fsdp2-ulysses4", "fsdp1-ulysses8", "fsdp8-ulysses1"])
@pytest.mark.parametrize("topology", ["h100-8", "a100-2x4"])
def test_fsdp_with_attention_by_heads_computes_the_layer(name, topology):
    """Eight ranks, two sequences, with gradients, without races; a weight's share is an eighth."""
    layer = umm.chain("transformer-layer", hidden=32, ffn=16, heads=8, kv_heads=8, tokens=32, sequences=2,
                      backward=True, dtype="float64")  # fmt: skip
    machine = umm.machine(topology)
    changed = in_scheme(name, layer, 8)
    chain = changed.laid_out(changed.layouts_of(name, 8), 8)
    shares = {x.name: x.nbytes_of_rank.max() / x.nbytes_of_rank.sum() for x in chain.tensors}
    assert shares["W1"] == shares["dWq"] == 1 / 8
    rng = np.random.default_rng(1)
    operands = {x.name: rng.standard_normal(x.shape) for x in chain.tensors if x.is_input}
    made = umm.schedule(
        chain, machine, **choices_left(chain, {"stationary": "auto", "movement": "auto"}, name)
    )
    assert races(made) == []
    trace = umm.run(made, executor="numpy", operands=operands, replica=None, order="random", seed=1)
    expected = layer.laid_out(ranks=1).reference(operands)
    for output in chain.outputs:
        for replica in trace.results[output]:
            np.testing.assert_allclose(replica, expected[output], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    "name", ["sp4-dp2-zigzag", "2d4x2-zigzag", "fsdp2-sp4-zigzag", "fsdp2-ulysses4-zigzag"]
)
@pytest.mark.parametrize("sequences", [1, 3])
def test_exchanging_tokens_front_and_back_before_attention_computes_the_layer(name, sequences):
    """Eight ranks of two nodes, with gradients, without races; every rank has as many scores as any other."""
    sizes = {"hidden": 32, "ffn": 16, "heads": 8, "kv_heads": 8, "tokens": 48, "dtype": "float64"}
    layer = umm.chain("transformer-layer", **sizes, sequences=sequences, backward=True)
    machine = umm.machine("a100-2x4")
    changed = in_scheme(name, layer, 8)
    chain = changed.laid_out(changed.layouts_of(name, 8), 8)
    made = umm.schedule(
        chain, machine, **choices_left(chain, {"stationary": "auto", "movement": "auto"}, name)
    )
    assert_computes(made, layer)


def test_balanced_attention_makes_sequence_parallelism_of_one_long_sequence_faster():
    """256K tokens on four nodes: in order, the last group of ranks has 1.75 times the mean work."""
    layer = umm.chain("attention", model="llama-3-70b", tokens=2**18, dtype="bfloat16")
    seconds = {}
    for name in ("sp8-dp4", "sp8-dp4-zigzag"):
        changed = in_scheme(name, layer, 32)
        chain = changed.laid_out(changed.layouts_of(name, 32), 32)
        seconds[name] = umm.run(umm.schedule(chain, "dgx-h100x4")).makespan_s
    assert seconds["sp8-dp4-zigzag"] < 0.7 * seconds["sp8-dp4"]


@pytest.mark.parametrize(
    ("chain", "name", "why"),
    [
        ("mlp", "sp4-dp2-zigzag", "chain mlp has no causal fused attention to balance; use sp4-dp2"),
        ("attention", "fsdp8-zigzag", "fsdp8 balances attention as it is; leave out -zigzag"),
        ("attention", "sp8-zigzag", "sp8 balances attention as it is; leave out -zigzag"),
    ],
)
def test_a_scheme_with_nothing_to_balance_is_refused(chain, name, why):
    sizes = {"hidden": 32, "tokens": 32} | ({"ffn": 32} if chain == "mlp" else {"heads": 8})
    with pytest.raises(ProblemError, match=why):
        in_scheme(name, umm.chain(chain, **sizes), 8)


def test_groups_by_heads_exchange_less_over_network_cards_than_all_ranks_do():
    """On two nodes of 8: queries, keys and values of a group stay in its node."""
    layer = umm.chain("attention", model="llama-3-8b", tokens=2**16, sequences=2, dtype="bfloat16")
    machine, seconds = with_settings(umm.machine("h100-8"), {"nodes": "2"}), {}
    for name in ("fsdp2-ulysses8", "fsdp1-ulysses16"):
        changed = in_scheme(name, layer, 16)
        chain = changed.laid_out(changed.layouts_of(name, 16), 16)
        seconds[name] = umm.run(umm.schedule(chain, machine, movement="library")).makespan_s
    assert seconds["fsdp2-ulysses8"] < 0.9 * seconds["fsdp1-ulysses16"]


@pytest.mark.parametrize(
    ("name", "why"), [("tp8-dp2", "tp8-dp2 is for 16 ranks (2 x 8), not for 32"), ("tp8-dp4x", "no layouts")]
)
def test_a_scheme_for_other_ranks_is_refused(name, why):
    with pytest.raises(ProblemError, match=re.escape(why)):
        gated_mlp(64).laid_out(name, ranks=32)


def test_rings_of_groups_without_a_shared_sequence_are_refused():
    layer = umm.chain("attention", hidden=32, heads=8, tokens=32, sequences=8)
    with pytest.raises(ProblemError, match="ring2-ulysses4 is of causal sequences that 2 groups share"):
        in_scheme("ring2-ulysses4", layer, 8)


def test_fsdp_with_attention_by_heads_for_other_ranks_is_refused():
    why = re.escape("fsdp2-ulysses4 is for 8 ranks (2 x 4), not for 32; change its numbers")
    with pytest.raises(ProblemError, match=why):
        in_scheme("fsdp2-ulysses4", gated_mlp(64), 32)


def test_a_chain_whose_tensors_have_no_kinds_is_told_what_it_lacks():
    outline = gated_mlp(64)
    bare = Outline("bare", outline.tensors, outline.statements)
    with pytest.raises(ProblemError, match="fsdp32 needs the layouts megatron, sequence, data of chain bare"):
        bare.laid_out("fsdp32", ranks=32)


DEGENERATE = {
    "fsdp8": ("fsdp8-tp1", "fsdp8-sp1", "hsdp8x1"),
    "dp8": ("tp1-dp8", "sp1-dp8", "hsdp1x8"),
    "tp8": ("tp8-dp1", "fsdp1-tp8"),
    "sp8": ("sp8-dp1", "fsdp1-sp8", "tp1x8"),
    "ep8": ("ep8-tp1", "ep8-dp1", "ep8-fsdp1", "ep8-tp1-dp1", "ep8/1"),
    "fsdp16": ("fsdp16-tp1", "fsdp16-sp1", "hsdp16x1"),
    "tp16": ("tp16-dp1", "fsdp1-tp16"),
}


@pytest.mark.parametrize(
    ("one_axis", "mesh"), [(name, mesh) for name, meshes in DEGENERATE.items() for mesh in meshes]
)
def test_a_mesh_with_an_axis_of_one_is_the_scheme_of_the_other(one_axis, mesh):
    """On 8 ranks and on 16: the same statements, layouts and choices, so the same schedule."""
    sizes = {"hidden": 64, "ffn": 128, "tokens": 64, "heads": 16, "kv_heads": 16, "backward": True}
    ranks = 16 if "16" in one_axis else 8
    layer = umm.chain("transformer-layer", **sizes)
    if one_axis == "ep8":
        layer = umm.chain("moe-layer", experts=8, top_k=2, **sizes)
    result = []
    for name in (one_axis, mesh):
        changed = in_scheme(name, layer, ranks)
        chain = changed.laid_out(changed.layouts_of(name, ranks), ranks)
        layouts = [(x.name, x.layout) for x in chain.tensors]
        result.append(
            (chain.statements, layouts, choices_left(chain, {"stationary": "auto", "movement": "auto"}))
        )
    assert result[0] == result[1]


@pytest.mark.parametrize("name", ["tp8x1", "2d8x1", "2d1x8"])
def test_a_mesh_of_one_axis_that_is_no_scheme_is_refused(name):
    with pytest.raises(ProblemError, match=f"^{name} is a mesh of one axis; write tp8, sp8 or fsdp8$"):
        gated_mlp(64).laid_out(name, ranks=8)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("pp8", "pipelines of layers are not simulated"),
        ("ep8-tp1", "ep8-tp1 needs experts, as moe-layer has"),
    ],
)
def test_a_scheme_of_something_else_is_refused_with_the_reason(name, why):
    with pytest.raises(ProblemError, match=why):
        gated_mlp(64).laid_out(name, ranks=8)


def test_sequence_takes_about_what_megatron_takes_on_four_nodes():
    """8,192 tokens: an all-gather and a reduce-scatter move as much as one all-reduce."""
    assert milliseconds(8192, "sequence") <= 1.1 * milliseconds(8192, "megatron")


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("tp8-dp4", 7.5, 10), ("sp8-dp4", 7.5, 10), ("fsdp32", 9, 14)],
)
def test_with_32k_tokens_schemes_are_in_the_bands_an_expert_reckons(name, least, most):
    """Milliseconds of the gated MLP of llama-3-70b, forward and backward, on 32 H100 in four nodes."""
    assert least <= milliseconds(32768, name) <= most


def test_weights_cut_both_ways_are_fastest_on_many_nodes():
    """256 ranks: a rank's bytes fall with the length of rows and columns of ranks."""
    machine = with_settings(umm.machine("dgx-h100x4"), {"nodes": "32"})
    chain = umm.chain("gated-mlp", hidden=8192, ffn=28672, tokens=8192, dtype="bfloat16")
    took = {
        name: umm.run(umm.schedule(chain.laid_out(name, ranks=256), machine)).makespan_s
        for name in ("tp16x16", "megatron")
    }
    assert took["tp16x16"] < 0.9 * took["megatron"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("ep4", "ep4 is for 4 ranks, not for 8; write ep8, ep4-tp2 or ep4-dp2"),
        ("ep3-tp2", "ep3-tp2 is for 6 ranks, not for 8; write ep8"),
    ],
)
def test_a_scheme_of_experts_for_other_ranks_is_answered_with_those_for_them(name, why):
    outline = umm.chain("moe", tokens=8, hidden=8, ffn=8, experts=8, top_k=2)
    with pytest.raises(ProblemError, match=f"{re.escape(why)}$"):
        outline.laid_out(name, ranks=8)

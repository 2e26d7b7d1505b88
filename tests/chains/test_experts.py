"""Mixtures of experts: exact for any routing and layout; a token travels once to a rank with two of its."""

import math
from dataclasses import replace

import numpy as np
import pytest
from command import record, times_only
from conformance.executor_suite import MACHINE, laws
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from performed import assert_performed, assert_right, result_slope
from strategies import layout_texts

import umm
from umm.checks import random_inputs
from umm.cost import grouped_seconds
from umm.errors import InputError
from umm.executor import executor, run
from umm.plans.lower import lower
from umm.plans.statements import experts
from umm.program import Chain, Grouped, Outline
from umm.program.mixture import each_by_itself, in_8_bits, in_parts, with_copies
from umm.program.models.layers import Experts, Layer, Model
from umm.program.routing import Routing
from umm.program.systems import of_experts
from umm.schedules.races import races
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import GEMM, GET, LOCAL, PUT
from umm.space.assignments import Assignments
from umm.space.pricing.assignments import AssignmentPricer
from umm_hw.mpi.executor import MpiExecutor


@st.composite
def rules(draw, tokens, experts, top_k):
    """A rule: drawn, balanced, or counts with empty experts and one that gets every token."""
    most = [tokens] * top_k + [0] * (experts - top_k)
    given_ = "counts:" + "-".join(map(str, draw(st.permutations(most))))
    return draw(st.sampled_from(("uniform", "zipf:2.5", "balanced", given_)))


def data_groups(draw, ranks):
    """A scheme with data groups on so many ranks: of experts, perhaps cut, perhaps with copies."""
    groups = draw(st.sampled_from([x for x in range(1, ranks + 1) if ranks % x == 0]))
    cuts = draw(st.sampled_from([x for x in range(1, groups + 1) if groups % x == 0]))
    spare = draw(st.sampled_from(("", "+2")))
    return f"ep{groups // cuts}-tp{cuts}-{draw(st.sampled_from(('dp', 'fsdp')))}{ranks // groups}{spare}"


@st.composite
def mixtures(draw):
    """A mixture, perhaps its gradients, on some ranks: experts over ranks, within them, both, or anyhow."""
    ranks, experts = draw(st.integers(1, 6)), draw(st.integers(1, 7))
    top_k, tokens = draw(st.integers(1, min(3, experts))), draw(st.integers(1, 11))
    sizes = {"hidden": draw(st.integers(1, 5)), "ffn": draw(st.integers(1, 5)), "tokens": tokens}
    outline = umm.chain(
        "moe", dtype="float64", backward=draw(st.booleans()), experts=experts, top_k=top_k,
        routing=draw(rules(tokens, experts, top_k)), routing_seed=draw(st.integers(0, 9)), **sizes,
    )  # fmt: skip
    parts = draw(st.sampled_from((1, 0, 2, 3)))
    outline = in_parts(outline, parts) if parts else each_by_itself(outline)
    parts = [x for x in range(1, ranks + 1) if ranks % x == 0]
    name = draw(st.sampled_from([*outline.layouts, "data", "cut", "any"]))
    if name == "data":
        name = data_groups(draw, ranks)
        return of_experts(name, outline, ranks).laid_out(name, ranks)
    if name in outline.layouts:
        return outline.laid_out(name, ranks)
    texts = {
        x.name: f"experts/{draw(st.sampled_from(parts))}"
        if x.experts and name == "cut"
        else draw(layout_texts((x.rows, x.cols), ranks))
        for x in outline.tensors
    }
    return outline.laid_out(texts, ranks)


@settings(laws, max_examples=examples(30))
@given(mixtures(), st.integers(0, 99))
def test_a_mixture_is_exact_for_any_routing_and_layout_and_never_races(chain, seed):
    """Empty experts, one that gets all, more ranks than experts: as plain products expert by expert."""
    assert_performed(chain, seed)


@pytest.mark.parametrize("seed", range(12))
def test_many_copies_of_an_expert_all_have_the_sum_of_their_gradients(seed):
    """Up to 3 experts and 8 more copies on 6 ranks, of one node or of three."""
    random = np.random.default_rng(seed)
    experts, spare = int(random.integers(1, 4)), int(random.integers(3, 9))
    sizes = {"hidden": 5, "ffn": 3, "tokens": 13, "experts": experts, "top_k": 1}
    outline = umm.chain("moe", dtype="float64", backward=True, routing="zipf:2.5", routing_seed=seed, **sizes)
    name = f"ep6+{spare}"
    assert_performed(of_experts(name, outline, 6).laid_out(name, 6), seed)


@pytest.mark.parametrize("name", ["ep4-dp2", "ep4-fsdp2", "ep2-tp2-dp2", "ep2-fsdp4"])
def test_data_groups_give_what_all_ranks_together_give(name):
    """8 ranks: the same outputs and gradients of the same weights as experts over all ranks give."""
    sizes = {"hidden": 6, "ffn": 8, "tokens": 37, "experts": 4, "top_k": 2, "shared": 1}
    outline = umm.chain("moe", dtype="float64", backward=True, routing="zipf:1", **sizes)
    together, chain = outline.laid_out("expert", 8), of_experts(name, outline, 8).laid_out(name, 8)
    operands = random_inputs(chain, 4)
    expected = together.reference(operands)
    run = umm.run(lower(chain, "a100-2x4"), executor="numpy", operands=operands, order="random", seed=4)
    for output, value in run.results.items():
        assert np.allclose(value, expected[output], rtol=1e-11, atol=1e-11), output


@pytest.mark.parametrize(("tokens", "sequences"), [(32, 1), (29, 1), (24, 3), (32, 8)])
def test_tokens_of_a_shared_sequence_stay_in_their_data_group(tokens, sequences):
    """Front and back of sequences for the causal mask: forward nothing is put to the other four ranks."""
    sizes = {"hidden": 16, "ffn": 8, "heads": 4, "experts": 4, "top_k": 2, "dtype": "float64"}
    for backward in (True, False):
        layer = umm.chain("moe-layer", tokens=tokens, sequences=sequences, backward=backward, **sizes)
        chain = of_experts("ep4-dp2", layer, 8).laid_out("ep4-dp2", ranks=8)
        assert str(chain.tensors[0].layout).startswith("row" if sequences == 8 else "zigzag")
        assert_performed(chain, tokens)
    made = lower(chain, umm.machine("h100-8"))
    puts = made.kind == PUT
    assert puts.any()
    assert (made.src[puts] // 4 == made.dst[puts] // 4).all()


@pytest.mark.parametrize(("name", "halves"), [("ep4-dp2", 6), ("ep4-fsdp2", 8)], ids=["dp", "fsdp"])
def test_between_nodes_data_groups_move_weights_and_their_gradients_alone(name, halves):
    """2 nodes of 4 ranks, 2 of 8 experts of 16x8 each, 3 weights, 8 bytes: 6,144 bytes a rank of each node.

    Gradients are reduce-scattered and gathered, so half of each crosses twice. Sharded weights are gathered
    forward and backward, but one that is there, gradients reduce-scattered: eight halves. No token crosses.
    """
    sizes = {"hidden": 16, "ffn": 8, "tokens": 512, "experts": 8, "top_k": 2}
    outline = umm.chain("moe", dtype="float64", backward=True, routing="balanced", **sizes)
    schedule = lower(of_experts(name, outline, 8).laid_out(name, 8), "a100-2x4")
    crossed = schedule.src // 4 != schedule.dst // 4
    names = np.array([x.name.partition(".")[0] for x in schedule.tensors])[schedule.operand_tensors(0)]
    dense = np.isin(names, ["Wg", "dWg"])
    assert {*names[crossed & ~dense]} <= {"W1", "W2", "W3", "dW1", "dW2", "dW3"}
    assert schedule.payload[crossed & ~dense].sum() == halves * 8 * 16 * 8 * 8


def test_between_nodes_each_node_sends_the_gradient_of_a_copied_expert_once():
    """2 nodes of 4 ranks, 8 experts with a copy each: over cards half a gradient of 1 KiB, and half back.

    Ranks of a node first add up what copies there have; so it is as much as without copies.
    """
    sizes = {"hidden": 16, "ffn": 8, "tokens": 512, "experts": 8, "top_k": 2}
    outline = umm.chain("moe", dtype="float64", backward=True, routing="balanced", **sizes)
    chain = of_experts("ep4-dp2+8", outline, 8).laid_out("ep4-dp2+8", 8)
    schedule = lower(chain, "a100-2x4")
    crossed = schedule.src // 4 != schedule.dst // 4
    names = np.array([x.name.partition(".")[0] for x in schedule.tensors])[schedule.operand_tensors(0)]
    moved = crossed & np.isin(names, ["dW1", "dW2", "dW3"])
    assert schedule.payload[moved].sum() == 2 * 2 * 8 * 3 * (16 * 8 * 8 // 2)
    result = "dW2, dW1, dW3 summed over copies and data groups at once by level"
    assert schedule.options["moved_by"] == result
    assert not {*names[crossed]} - {"dW1", "dW2", "dW3", "Wg", "dWg"}
    assert_performed(chain, 3, machine="a100-2x4")


def test_weights_of_data_groups_are_copies_or_shards():
    """32 experts' weights of 1 MiB each on 8 ranks: 8 MiB a weight in 2 groups of 4, 4 MiB sharded."""
    outline = umm.chain("moe", hidden=1024, ffn=256, tokens=64, experts=32, top_k=2, dtype="float32")
    sizes = {}
    for name in ("ep4-dp2", "ep4-fsdp2"):
        chain = of_experts(name, outline, 8).laid_out(name, 8)
        sizes[name] = {x.name: x.nbytes_of_rank.max() / 2**20 for x in chain.tensors}
    assert [sizes["ep4-dp2"]["W1"], sizes["ep4-fsdp2"]["W1"], sizes["ep4-fsdp2"]["W1.whole"]] == [8, 4, 8]


def test_ranks_without_an_expert_are_said_and_what_gives_them_some():
    """8 experts on 16 ranks; with copies, cut or in data groups all ranks have some."""
    outline = umm.chain("moe", hidden=8, ffn=8, tokens=64, experts=8, top_k=2)
    result = dict(outline.laid_out("expert", 16).facts(""))["experts"]
    assert result == (
        "8 of 16 ranks have no row of an expert; ep8-tp2 cuts experts, ep16+8 copies them, "
        "ep8-dp2 gives every 8 ranks all experts"
    )
    for name in ("ep16+8", "ep8-dp2", "ep8-fsdp2"):
        assert "experts" not in dict(of_experts(name, outline, 16).laid_out(name, 16).facts(""))


def test_fewer_parts_than_asked_for_are_said():
    """Parts are whole experts: 8 experts on 8 ranks move at once, on 4 ranks in 2 parts of 4."""
    outline = umm.chain("moe", hidden=8, ffn=8, tokens=64, experts=8, top_k=2)
    result = {
        name: dict(of_experts(name, outline, ranks).laid_out(name, ranks).facts("")).get("parts")
        for name, ranks in (("ep8/2", 8), ("ep4/4", 4), ("ep4/2", 4))
    }
    assert result == {
        "ep8/2": "1 of the 2 asked for: parts are whole experts, of which no rank has more than 1",
        "ep4/4": "2 of the 4 asked for: parts are whole experts, of which no rank has more than 2",
        "ep4/2": None,
    }


@times_only()
def test_json_has_the_remarks_of_the_text():
    sizes = ("--tokens", "64", "--hidden", "8", "--ffn", "8", "--experts", "8", "--top-k", "2")
    result = record(
        "simulate", "--machine", "h100-8", "--nodes", "2", "--chain", "moe", "--layouts", "expert", *sizes
    )
    assert result["problem"]["experts"].startswith("8 of 16 ranks have no row of an expert")
    assert "parts" not in result["problem"]


def test_gradients_of_whole_experts_leave_by_all_cards_alike():
    """Rows of an expert are at 4 or 5 of 32 ranks; all 8 cards of their node carry a share of its sum."""
    outline = umm.chain("moe", hidden=256, ffn=512, tokens=2048, experts=8, top_k=2, backward=True)
    made = lower(outline.laid_out("whole", 32), umm.machine("h100-8", nodes=4))
    gradients = [i for i, x in enumerate(made.tensors) if x.name in ("dW1", "dW2", "dW3")]
    crosses = (made.src // 8 != made.dst // 8) & np.isin(made.moved_tensors, gradients) & (made.kind == GET)
    sent = np.bincount(made.src[crosses], made.nbytes[crosses], 32)
    assert sent.max() <= 1.01 * sent.min()


@pytest.mark.parametrize(("nodes", "routing"), [(2, "balanced"), (4, "uniform")])
def test_data_groups_take_what_one_does_and_the_sums_of_gradients_over_their_cards(nodes, routing):
    """Each rank has 2 of 16 experts in every node: its card sends and gets 2 (n - 1) / n of 25 MB at 50 GB/s.

    With 8 tokens in a node most experts get none, and what crosses is rows rather than gradients.
    """
    sizes = {"hidden": 1024, "ffn": 2048, "experts": 16, "top_k": 2, "routing": routing}
    name, machine = f"ep8-dp{nodes}", umm.machine("h100-8", nodes=nodes)
    sums_s = 2 * (nodes - 1) / nodes * (3 * 2 * 1024 * 2048 * 2) / 50e9
    for tokens in (16384, 8):
        of_one, of_all = (
            umm.chain("moe", tokens=x, dtype="bf16", backward=True, **sizes) for x in (tokens, nodes * tokens)
        )
        one_s = run(lower(of_one.laid_out("ep8", 8), umm.machine("h100-8"))).makespan_s
        all_s = run(lower(of_experts(name, of_all, 8 * nodes).laid_out(name, 8 * nodes), machine)).makespan_s
        assert all_s <= 1.05 * (one_s + sums_s)


@pytest.mark.parametrize(("name", "routing"), [("ep8-dp4", "uniform"), ("ep4-dp8", "balanced")])
def test_data_groups_take_no_less_time_for_more_tokens(name, routing):
    """4 nodes of 8 ranks: few tokens' rows go to every group, of many only sums of gradients do."""
    sizes = {"hidden": 1024, "ffn": 1024, "experts": 32, "top_k": 4, "routing": routing}
    machine, took = umm.machine("h100-8", nodes=4), []
    for tokens in (4096, 8192, 16384):
        outline = umm.chain("moe", tokens=tokens, dtype="bf16", backward=True, **sizes)
        took.append(run(lower(of_experts(name, outline, 32).laid_out(name, 32), machine)).makespan_s)
    assert took == sorted(took)


@pytest.mark.parametrize("name", ["expert", "ep2-dp2"])
def test_gradients_cut_across_experts_are_exact(name):
    """Tiles of dW1 end within experts of 5 rows: some products are whole in one, others move, groups add."""
    sizes = {"hidden": 5, "ffn": 5, "tokens": 40, "experts": 7, "top_k": 2}
    outline = umm.chain("moe", dtype="float64", backward=True, routing="balanced", **sizes)
    chain, ranks = (outline, 2) if name == "expert" else (of_experts(name, outline, 4), 4)
    cut = {"dW1": f"edges:0-5-17-23-35x0-4-5:{ranks // 2}x2", "R": f"2d:1x1@{ranks}"}
    texts = {x.name: "row" for x in chain.tensors} | cut | {"dH1": f"edges:0-80x0-2-5:1x{ranks}"}
    assert_performed(chain.laid_out(texts, ranks), 0)


def test_several_products_of_one_routed_row_are_summed_in_room_for_all():
    """Each rank has two products of the gradient U of two rows: of parts of the columns of W1 and of dH3."""
    sizes = {"hidden": 4, "latent": 3, "ffn": 13, "tokens": 2, "experts": 2, "top_k": 1}
    outline = umm.chain("moe", dtype="float64", backward=True, **sizes)
    cut = {"W1": "col", "dH3": "2d@2x2:rc", "U": "col"}
    texts = {x.name: "row" for x in outline.tensors} | cut
    assert_performed(outline.laid_out(texts, 4), 0, machine="h100-8")


@pytest.mark.parametrize("seed", range(4))
def test_a_group_without_a_row_for_an_expert_gets_its_gradient_too(seed):
    """4 nodes of 4 ranks, a data group each: some of 6 experts get no row in some of them."""
    sizes = {"hidden": 3, "ffn": 2, "tokens": 200, "experts": 6, "top_k": 1}
    outline = umm.chain("moe", dtype="float64", backward=True, routing="zipf:3", routing_seed=seed, **sizes)
    chain = of_experts("ep4-dp4", outline, 16).laid_out("ep4-dp4", 16)
    routed = next(x.routed for x in chain.statements if isinstance(x, Grouped))
    assert (np.diff(routed.edges) == 0).any()
    assert_performed(chain, seed, machine=umm.machine("a100-2x4", nodes=4))


@pytest.mark.parametrize("machine", ["h100-8", "a100-2x4"])
@pytest.mark.parametrize("layouts", ["tensor", "whole"])
def test_what_many_ranks_hold_is_multiplied_once_and_summed_by_level(layouts, machine):
    """8 ranks, also of two nodes, with gradients: no flop is done twice, and the results are right."""
    outline = umm.chain(
        "moe", hidden=64, ffn=96, tokens=512, experts=4, top_k=2, dtype="float64", backward=True
    )
    chain = outline.laid_out(layouts, 8)
    schedule = lower(chain, machine)
    assert schedule.flop.sum() == chain.flop
    assert_performed(chain, 7, machine=machine)


def test_ranks_that_share_experts_add_up_a_tokens_rows_before_these_move():
    """8 ranks, 64 tokens: `tensor` reduce-scatters tokens x hidden, 7/8 of it a rank; else sums go to owners.

    In ep4-tp2 a rank sends a row for each token with any of its two experts, but those of its own 8 tokens.
    """
    sizes = {"hidden": 64, "ffn": 1024, "experts": 8, "top_k": 6}
    outline = umm.chain("moe", tokens=64, dtype="float64", backward=True, **sizes)
    rows = {}
    for layouts in ("tensor", "ep4-tp2"):
        chain = outline.laid_out(layouts, 8)
        schedule = lower(chain, "h100-8")
        sums = np.isin(schedule.moved_tensors, [i for i, x in enumerate(chain.tensors) if x.name in "ZY"])
        rows[layouts] = schedule.payload[sums & (schedule.src != schedule.dst)].sum() / (64 * 8)
        assert_performed(chain, 3)
    known = chain.statements[2].routed
    rows_of = np.stack([known.token_of, known.expert_of // 2 * 2], axis=1).tolist()
    sent = {(token, first + half) for token, first in rows_of for half in (0, 1)}
    assert rows == {"tensor": 8 * 7 / 8 * 64, "ep4-tp2": len([1 for t, rank in sent if t // 8 != rank])}


@pytest.mark.parametrize("machine", ["h100-8", "a100-2x4"])
def test_a_decoded_tokens_experts_and_those_that_all_take_are_summed_at_once(machine):
    """One all-reduce of Y, which the product of the shared experts adds to, on one node and on two."""
    sizes = {"hidden": 64, "ffn": 32, "experts": 4, "top_k": 2, "heads": 8, "kv_heads": 4, "shared": 1}
    chain = umm.chain("moe-layer", decode=True, batch=4, context=6, dtype="float64", **sizes)
    chain = chain.laid_out("tensor", 8)
    assert "Y all-reduced with the next product" in lower(chain, machine).options["moved_by"]
    assert_performed(chain, 3, machine=machine)


@pytest.mark.mpi
@settings(laws, max_examples=examples(5))
@given(chain=mixtures(), seed=st.integers(0, 99))
def test_a_mixture_is_exact_on_processes(mpi, chain, seed):
    assert_performed(chain, seed, mpi)


@pytest.fixture(scope="module")
def mpi(lent):
    return MpiExecutor(job=lent(6), replica=None)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize(
    ("layouts", "backward", "moved"), [("expert", True, 1), ("ep8-tp2", False, 1), ("ep8-tp2", True, 2)]
)
def test_between_nodes_a_token_travels_once_and_the_result_is_the_same(
    monkeypatch, parts, layouts, backward, moved
):
    """2 nodes of 8 ranks: as many tokens cross as go to the other node, each once, in any number of parts.

    Where each rank's two experts are served in two parts, each once for either part: odd experts or even.
    """

    def gain(relays, *_):
        relays.parts = parts
        return 1.0

    monkeypatch.setattr(experts._Relays, "_gain", gain)
    outline = umm.chain(
        "moe", hidden=3, ffn=2, tokens=32, experts=16, top_k=3, dtype="float64", backward=backward
    )
    chain = in_parts(outline, moved).laid_out(layouts, 16)
    schedule = lower(chain, umm.machine("h100-8", nodes=2))
    assert races(schedule) == []
    operands = random_inputs(chain, 1)
    run = umm.run(schedule, executor="numpy", operands=operands, replica=None, order="random", seed=1)
    assert_right(chain, operands, run.results)
    known = chain.statements[2].routed
    x = [t.name for t in schedule.tensors].index("X")
    crossed = (schedule.src // 8 != schedule.dst // 8) & (schedule.operand_tensors(0) == x)
    rows = zip(known.token_of.tolist(), known.expert_of.tolist(), strict=True)
    visits = {(t, e // 8, e % moved) for t, e in rows}
    across = [t for t, node, _ in visits if t // 16 != node]
    assert schedule.payload[crossed].sum() == len(across) * 3 * 8


def test_ranks_of_a_node_begin_with_different_ranks_of_the_next(monkeypatch):
    """2 nodes of 8, no relays, 16 MiB a rank: a card of 50 GB/s carries 8 MiB each way, in 0.34 ms.

    Were all eight to begin with the same rank, its card would have 64 MiB to carry while others carry none.
    """
    monkeypatch.setattr(experts._Relays, "_gain", lambda *_: 0.0)
    sizes = {"hidden": 4096, "ffn": 16, "tokens": 2**15, "experts": 16, "top_k": 1}
    outline = umm.chain("moe", routing="balanced", dtype="bf16", **sizes)
    schedule = lower(outline.laid_out("expert", 16), umm.machine("h100-8", nodes=2))
    far = schedule.src // 8 != schedule.dst // 8
    carried = schedule.nbytes[far].sum() / 16 / 50e9
    assert umm.run(schedule).makespan_s < 1.9 * carried


@pytest.mark.parametrize(("moved", "forward", "both"), [(lambda x: x, 69, 115), (each_by_itself, 40, 80)])
def test_moving_rows_starts_an_exchange_and_before_it_one_of_counts(moved, forward, both):
    """us of a rank of h100-8: 23 for counts, rows there, rows back; of gradients rows alone; 20 by choice."""
    sizes = {"hidden": 64, "ffn": 32, "tokens": 64, "experts": 8, "top_k": 2, "dtype": "bf16"}
    result = []
    for backward in (False, True):
        outline = moved(umm.chain("moe", routing="balanced", backward=backward, **sizes))
        schedule = lower(outline.laid_out("expert", 8), umm.machine("h100-8"))
        started = (schedule.kind == LOCAL) & (schedule.rank == 0)
        starts = schedule.seconds[started & (schedule.seconds > 19e-6)]
        result.append(round(1e6 * starts.sum()))
    assert result[0] == forward
    assert result[1] == both


def test_parts_behind_multiplies_cross_the_network_once_each():
    """Two parts of qwen3-235b's experts on 2 nodes: at most 1.25 times the time of all at once, not 3."""
    machine = umm.machine("h100-8", nodes=2)
    outline = umm.chain("moe", model="qwen3-235b-a22b", tokens=2**15, dtype="bf16")
    full, parts = (
        umm.run(lower(x.laid_out("expert", 16), machine)).makespan_s for x in (outline, in_parts(outline, 2))
    )
    assert 0.9 * full < parts < 1.25 * full


def test_faster_links_inside_a_node_move_rows_no_slower():
    """A mesh of 7 links of 48 GB/s a device passes on the relays' rows at 336 GB/s, a card gets 50 GB/s."""
    outline = umm.chain("moe", model="qwen3-235b-a22b", tokens=2**14, dtype="bf16")
    took = []
    for times in ("x1", "x1.2", "x1.5", "x8"):
        machine = umm.machine("mi300x-8", {"fabric.inside.bandwidth": times}, nodes=2)
        schedule = lower(outline.laid_out("expert", 16), machine)
        took.append(umm.run(schedule).makespan_s)
    assert took == sorted(took, reverse=True)
    assert took[0] < 1.5 * took[-1]


def test_a_layer_with_shared_experts_and_wide_heads_is_exact():
    """Attention with heads of 6 columns of 8 hidden, two experts of five, one that all tokens take."""
    sizes = {"hidden": 8, "ffn": 6, "tokens": 12, "heads": 2, "kv_heads": 1, "head_dim": 6, "shared": 1}
    outline = umm.chain("moe-layer", dtype="float64", backward=True, experts=5, top_k=2, **sizes)
    for layouts in ("expert", "tensor", "whole", "ep2-tp2"):
        chain = outline.laid_out(layouts, 4)
        operands = random_inputs(chain, 1)
        run = umm.run(lower(chain, MACHINE), executor="numpy", operands=operands, replica=None)
        assert_right(chain, operands, run.results)


def test_every_expert_on_every_rank_is_among_the_layouts_a_search_compares():
    outline = umm.chain("moe", hidden=4, ffn=3, tokens=8, experts=4, top_k=2)
    full = outline.laid_out("whole", 4)
    texts = {x.name: "experts/whole" for x in outline.tensors if x.experts}
    asked = outline.laid_out(dict(outline.layouts["expert"]) | texts, 4)
    choices = Assignments(outline, 4).choices
    assert any("experts/whole" in layouts for layouts in choices)
    assert [x.layout for x in asked.tensors] == [x.layout for x in full.tensors]


@settings(laws, max_examples=examples(10))
@given(mixtures(), st.floats(0.2, 2.0))
def test_dropped_rows_are_the_last_of_experts_that_are_full(chain, capacity):
    """An expert keeps its first rows, at most so many times the mean; the others are as they were."""
    known = replace(next(x.routed for x in chain.statements if x.kind == "grouped"), spare=0)
    full = replace(known, capacity=round(capacity, 3))
    most = math.ceil(full.capacity * known.tokens * known.top_k / known.experts)
    for expert in range(known.experts):
        kept = full.token_of[slice(*full.rows_of(expert))]
        assert kept.tolist() == known.token_of[slice(*known.rows_of(expert))][:most].tolist()
    assert str(Routing.parse(str(full))) == str(full)


@pytest.mark.parametrize("backward", [False, True])
def test_a_mixture_that_drops_tokens_is_exact(backward):
    """Capacity 0.5 of Zipf's law: some tokens lose all their experts, and get 0."""
    outline = umm.chain(
        "moe", hidden=3, ffn=2, tokens=17, experts=5, top_k=2, dtype="float64", routing="zipf:1.5",
        capacity=0.5, backward=backward,
    )  # fmt: skip
    for layouts in ("expert", "ep2-tp2", "whole"):
        chain = outline.laid_out(layouts, 4)
        operands = random_inputs(chain, 1)
        results = umm.run(lower(chain, MACHINE), executor="numpy", operands=operands, replica=None).results
        assert_right(chain, operands, results)
        assert (results["Y"][0] == 0).all(axis=1).any()


@settings(laws, max_examples=examples(8))
@given(
    st.integers(1, 6), st.integers(0, 5), st.sampled_from(("expert", "ep2-tp2", "tensor", "whole")),
    st.booleans(),
)  # fmt: skip
def test_copies_of_hot_experts_change_no_result(spare, seed, layouts, backward):
    """The same weights in every copy give the result of one expert each, and each has the whole gradient."""
    outline = umm.chain(
        "moe", hidden=3, ffn=2, tokens=17, experts=5, top_k=2, dtype="float64", routing="zipf:1.5",
        routing_seed=seed, backward=backward,
    )  # fmt: skip
    base, chain = outline.laid_out(layouts, 4), with_copies(outline, spare, 2).laid_out(layouts, 4)
    known, before = (next(x.routed for x in each.statements if x.kind == "grouped") for each in (chain, base))
    expert = known.expert_of_place
    given_ = random_inputs(base, seed)
    operands = given_ | {x: given_[x].reshape(5, 3, 2)[expert].reshape(-1, 2) for x in ("W1", "W2", "W3")}
    schedule, expected = lower(chain, MACHINE), base.reference(given_)
    assert races(schedule) == []
    results = umm.run(schedule, executor="numpy", operands=operands, replica=None, order="random").results
    for name, replicas in results.items():
        by_slot = name in ("dW1", "dW2", "dW3")
        want = expected[name].reshape(5, 3, 2)[expert].reshape(-1, 2) if by_slot else expected[name]
        assert np.allclose(replicas, want, rtol=1e-10, atol=1e-11), name
    assert np.diff(known.edges).max() <= np.diff(before.edges).max()


def test_few_rows_of_many_experts_wait_for_their_weights():
    """DeepGEMM on H800, masked: 1,024 rows of one expert, or 256 of each of four, 1,233 and 932 Tflop/s."""
    machine = umm.machine("h800-8")
    for groups, published in ((1, 1233), (4, 932)):
        rows = np.full(groups, 1024 // groups)
        took = grouped_seconds(machine, "float8_e4m3", rows, 4096, 7168, 2).sum()
        assert 2e-12 * 1024 * 4096 * 7168 / took == pytest.approx(published, rel=0.1)


@given(st.integers(1, 40), st.integers(1, 9), st.data())
def test_every_token_goes_to_different_experts_and_rows_are_sorted(tokens, experts, data):
    top_k = data.draw(st.integers(1, experts))
    known = Routing(tokens, experts, top_k, data.draw(rules(tokens, experts, top_k)), 3)
    pairs = set(zip(known.token_of.tolist(), known.expert_of.tolist(), strict=True))
    assert len(pairs) == known.rows == tokens * top_k
    assert (np.bincount(known.token_of, minlength=tokens) == top_k).all()
    assert (np.diff(known.expert_of) >= 0).all()
    assert str(Routing.parse(str(known))) == str(known)


def test_forward_is_what_a_token_gets_from_its_two_experts():
    """Token by token in plain NumPy, without any of the statements."""
    outline = umm.chain("moe", hidden=4, ffn=3, tokens=5, experts=3, top_k=2, dtype="float64")
    chain = outline.laid_out("expert", 2)
    x = random_inputs(chain, 1)
    routed = chain.statements[2].routed
    for token, row in enumerate(x["X"]):
        chosen = routed.expert_of[routed.token_of == token]
        share = np.exp((row @ x["Wg"])[chosen])
        share /= share.sum()
        expected = np.zeros(4)
        for expert, part in zip(chosen, share, strict=True):
            w1, w3, w2 = (x[name].reshape(3, 4, 3)[expert] for name in ("W1", "W3", "W2"))
            gate = row @ w1
            expected += part * (gate / (1 + np.exp(-gate)) * (row @ w3)) @ w2.T
        assert np.allclose(chain.reference(x)["Y"][token], expected, rtol=1e-12)


@pytest.mark.parametrize(("latent", "gated"), [(0, True), (3, False)])
def test_gradients_are_those_of_differences(latent, gated):
    """By weights and X against central differences of sum(Y · dY); also of shorter tokens, without a gate."""
    sizes = {"hidden": 3, "ffn": 2, "experts": 3, "top_k": 2, "shared": 1, "latent": latent}
    model = Model("m", 3, 0, (Layer(None, (Experts(3, 2, 2, 2, gated, latent=latent),)),))
    outline = umm.chain("moe", model=model, tokens=4, dtype="float64", backward=True, **sizes)
    chain = outline.laid_out("expert", 1)
    x = random_inputs(chain, 2)
    result = chain.reference(x)
    for name in ("Wg", "X", "W2", "W1", "W3" if gated else "Wu", "Ws2", *(("Wd",) if latent else ())):
        for place in ((0, 0), (1, 1)):
            expected = result_slope(chain, x, name, place)
            assert result[f"d{name}"][place] == pytest.approx(expected, rel=1e-5, abs=1e-7)


def test_a_token_travels_once_to_a_rank_that_has_both_of_its_experts():
    """8 tokens, each to experts 0 and 1, both at rank 0: 4 rows of 6 numbers come from rank 1, not 8."""
    outline = umm.chain(
        "moe", hidden=6, ffn=2, tokens=8, experts=4, top_k=2, routing="counts:8-8-0-0", dtype="float64"
    )
    schedule = lower(outline.laid_out("expert", 2), MACHINE)
    arriving = (schedule.src == 1) & (schedule.dst == 0)
    tensor = schedule.operand_tensors(0)
    names = [x.name for x in schedule.tensors]
    moved = schedule.payload[arriving & (tensor == names.index("X"))].sum()
    assert moved == 4 * 6 * 8


def test_rows_between_ranks_are_moved_by_a_kernel_where_the_machine_has_its_means():
    """Its blocks take of the device; a copy engine's would take less."""
    outline = umm.chain("moe", hidden=64, ffn=32, tokens=64, experts=4, top_k=2, routing="balanced")
    for machine, names in (("h100-8", {"collective"}), ("pvc-12", set())):
        schedule = lower(outline.laid_out("expert", 2), umm.machine(machine))
        rows = (schedule.src >= 0) & (schedule.src != schedule.dst) & (schedule.payload > 1024)
        means = schedule.means_of if schedule.means_of is not None else np.full(len(schedule), -1)
        assert rows.any()
        assert {schedule.means[x].name for x in means[rows].tolist() if x >= 0} == names


@pytest.mark.parametrize(
    ("moved", "times"), [(lambda x: x, 2), (lambda x: in_parts(x, 2), 4), (each_by_itself, 4)]
)
def test_a_token_travels_for_each_part_or_choice_of_its_experts(moved, times):
    """Two tokens of rank 0 go to both experts of rank 1: once each, or once for each expert, 8 B times 3."""
    routing = "choices:2.3-2.3-0.1-0.1"
    outline = umm.chain(
        "moe", hidden=3, ffn=2, tokens=4, experts=4, top_k=2, dtype="float64", routing=routing
    )
    schedule = lower(moved(outline).laid_out("expert", 2), MACHINE)
    sent = (schedule.src == 0) & (schedule.dst == 1)
    assert _rows_put(schedule, sent, "X", "R") == times * 3 * 8


def _rows_put(schedule, moved, *names):
    """Bytes of some tensors among some actions."""
    numbers = [i for i, x in enumerate(schedule.tensors) if x.name in names]
    return schedule.payload[moved & np.isin(schedule.operand_tensors(0), numbers)].sum()


@pytest.mark.parametrize(
    ("tokens", "experts", "top_k", "choices"), [(128, 256, 8, 917), (64, 16, 2, 116), (8, 16, 8, 57)]
)
def test_each_choice_of_a_token_travels_by_itself_there_and_back(tokens, experts, top_k, choices):
    """On 8 ranks with an eighth of the tokens and of the experts each: as many rows as choices are remote."""
    sizes = {"tokens": tokens, "experts": experts, "top_k": top_k, "routing": "uniform"}
    outline = each_by_itself(umm.chain("moe", hidden=6, ffn=2, dtype="float64", **sizes))
    chain = outline.laid_out("expert", 8)
    routed = next(x.routed for x in chain.statements if isinstance(x, Grouped))
    source, target = routed.token_of * 8 // tokens, routed.expert_of * 8 // experts
    assert (source != target).sum() == choices
    schedule = lower(chain, "h100-8")
    crosses = schedule.src != schedule.dst
    assert _rows_put(schedule, crosses, "X", "R") == _rows_put(schedule, crosses, "Z") == choices * 6 * 8
    if experts < 256:
        assert_performed(chain, 1)


def test_tokens_may_travel_in_8_bits_with_their_scales():
    """256 columns are 256 B and two scales of 4 B a token; the result is that of rounded tokens."""
    outline = umm.chain("moe", hidden=256, ffn=64, tokens=32, experts=8, top_k=2, dtype="float32")
    chain = in_8_bits(outline).laid_out("expert", 8)
    schedule, operands = lower(chain, umm.machine("h800-8")), random_inputs(chain, 1)
    named = [t.name for t in schedule.tensors].index("X.fp8")
    sent = (schedule.src != schedule.dst) & (schedule.operand_tensors(0) == named)
    assert (schedule.nbytes[sent] * 256 == schedule.payload[sent] * (256 + 2 * 4)).all()
    results = umm.run(schedule, executor="numpy", operands=operands, replica=None).results
    expected, plain = chain.reference(operands)["Y"], outline.laid_out("expert", 8).reference(operands)["Y"]
    assert np.abs(results["Y"][0] - expected).max() <= 1e-6 * np.abs(expected).max()
    assert np.abs(plain - expected).max() > 1e-3 * np.abs(expected).max()


def test_parts_of_rows_hide_behind_multiplies_and_low_latency_serves_few_tokens():
    """deepseek-v3 on 8 H800: 4K tokens a rank are faster in parts, each choice by itself far slower."""
    machine = umm.machine("h800-8")
    outline = umm.chain("moe", model="deepseek-v3", tokens=2**15, dtype="bf16")
    full, parts, each = (
        umm.run(lower(changed.laid_out("expert", 8), machine)).makespan_s
        for changed in (outline, in_parts(outline, 4), each_by_itself(outline))
    )
    assert 0.93 * full < parts < 0.97 * full
    assert each > 1.15 * full


LATENT = {"heads": 16, "head_dim": 16, "q_rank": 64, "kv_rank": 32, "rope_dim": 8}


@pytest.mark.parametrize(
    ("nodes", "chain", "more"),
    [
        (1, "moe", {"tokens": 1024, "backward": True}),
        (2, "moe", {"tokens": 1024}),
        (3, "moe-layer", {"tokens": 1536, "sequences": 48, **LATENT}),
        (3, "moe-layer", {"decode": True, "batch": 96, "context": 16, **LATENT}),
    ],
)
def test_no_assignment_of_a_mixture_beats_its_bound(nodes, chain, more):
    """Also where rows wait for relays or for attention, and where experts multiply at other ranks."""
    machine = umm.machine("h800-8", nodes=nodes)
    outline = umm.chain(
        chain, hidden=256, ffn=128, experts=16, top_k=2, shared=1, dtype="bf16", routing="zipf:0.5", **more
    )
    points = Assignments(outline, 8 * nodes, more={"Z": ("row",)} if nodes == 1 else {})
    pricer = AssignmentPricer(points, machine, executor("sim").makespan)
    for number in np.random.default_rng(0).integers(points.count, size=2).tolist():
        place = points.at(number)
        pricer.simulated(place, pricer.bound(place))
    assert pricer.respected


def test_few_rows_of_an_expert_cost_a_whole_tile():
    """Of 512 rows on h100-8 one expert is faster than 8, and 64 experts of 8 take 64 tiles of 64 rows."""
    machine = umm.machine("h100-8")
    took = {
        count: grouped_seconds(machine, "bfloat16", np.full(count, 512 // count), 4096, 4096, 2).sum()
        for count in (1, 8, 64)
    }
    assert took[1] < took[8] < took[64]
    weights = 64 * 4096 * 4096 * 2 / machine.work_bandwidth
    assert took[64] > weights


def test_a_saved_chain_is_the_same_one():
    outline = umm.chain("moe", hidden=4, ffn=3, tokens=5, experts=3, top_k=2, backward=True)
    again = Outline.from_dict(outline.to_dict())
    assert again == outline
    chain = outline.laid_out("expert", 3)
    assert Chain.from_dict(chain.to_dict()) == chain
    schedule = lower(chain, MACHINE)
    assert Schedule.from_json(schedule.to_json()).functions == schedule.functions


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"routing": "counts:9-1-0"}, "at most 5 an expert"),
        ({"routing": "zipf"}, "write it like"),
        ({"routing": "choices:0.0-1.2-0.1-0.2-1.2"}, "2 different experts below 3"),
        ({"top_k": 4}, "from 1 to experts"),
        ({"model": "llama-3-8b"}, "has no experts"),
    ],
)
def test_what_cannot_be_routed_is_refused_in_one_line(changed, why):
    with pytest.raises(InputError, match=why):
        umm.chain("moe", **{"hidden": 4, "ffn": 3, "tokens": 5, "experts": 3, "top_k": 2} | changed)
    with pytest.raises(InputError, match="chain moe"):
        umm.chain("gated-mlp", model="mixtral-8x7b", tokens=8)


def test_layouts_by_expert_are_for_rows_by_expert_alone():
    outline = umm.chain("moe", hidden=4, ffn=3, tokens=5, experts=3, top_k=2)
    with pytest.raises(InputError, match="rows of X are not sorted by expert"):
        outline.laid_out({"X": "experts"}, 2)
    with pytest.raises(InputError, match="for 4 ranks, not for 2"):
        outline.laid_out({"R": "experts:2x2"}, 2)
    assert str(replace(outline.tensors[5]).laid_out("experts:2x2", 4).layout).startswith("edges:")


def test_products_of_decoded_tokens_are_added_up_on_each_rank_and_then_over_ranks_once():
    """Four tokens for four experts, cut over 4 ranks: no row of an expert moves, but one all-reduce of Y."""
    sizes = {"hidden": 64, "ffn": 32, "experts": 4, "top_k": 2, "heads": 8, "kv_heads": 4}
    chain = umm.chain("moe-layer", decode=True, batch=4, context=6, dtype="float64", **sizes)
    chain = chain.laid_out("tensor", 4)
    assert all(x.layout.replicas == 4 for x in chain.tensors if x.name in ("X", "Y", "N1", "A", "N2", "P"))
    schedule = lower(chain, MACHINE)
    products = schedule.operand_tensors(0) == [x.name for x in chain.tensors].index("Z")
    assert np.count_nonzero(products & (schedule.kind == GEMM)) > 4
    assert np.count_nonzero(products & (schedule.src != schedule.dst)) == 0
    assert "Y all-reduced by " in schedule.options["moved_by"]
    assert races(schedule) == []
    operands = random_inputs(chain)
    trace = umm.run(schedule, executor="numpy", operands=operands, replica=None)
    assert_right(chain, operands, trace.results)

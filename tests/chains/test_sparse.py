"""The statement sparse_attention: exact in every layout, its choice as published, its work bounded by top."""

import numpy as np
import pytest
from conformance.executor_suite import laws
from examples import WHOLE, examples
from hypothesis import given, settings
from hypothesis import strategies as st
from performed import assert_performed, slope
from strategies import layout_texts

import umm
from umm.checks import random_inputs
from umm.cost import sparse_seconds
from umm.errors import ProblemError
from umm.interval import Interval
from umm.plans.lower import lower
from umm.program import Multiply, Outline, Shape
from umm.program.functions.attention import Heads
from umm.program.layers import repeated
from umm.program.statements.sparse import SparseAttention, SparseAttentionGrad

RANKS = 4


def outlined(
    *, queries, more, sequences, head, share, groups, value, index, indices, top, rotary, latent=False,
    backward=False,
):  # fmt: skip
    rows, keys = queries * sequences, (queries + more) * sequences
    count = share * groups
    value = head if latent else value
    shapes = {"Q": (rows, count * head), "K": (keys, groups * head), "V": (keys, groups * value)}
    shapes |= {"Iq": (rows, indices * index), "Ik": (keys, index), "Iw": (rows, indices)}
    turned = {"Qr": (rows, count * rotary), "Kr": (keys, rotary)} if rotary else {}
    shapes |= turned
    if latent:
        del shapes["V"]
    outs = {"O": (rows, count * value)} | ({f"d{x}": size for x, size in shapes.items()} if backward else {})
    shapes |= {"dO": (rows, count * value)} if backward else {}
    tensors = [Shape(x, *size, "float64", "input") for x, size in shapes.items()]
    tensors += [Shape(x, *size, "float64", "output") for x, size in outs.items()]
    reads = "Q", "K", "K" if latent else "V", "Iq", "Ik", "Iw"
    how = {
        "head": head, "index": index, "top": top, "share": share, "sequences": sequences,
        "rotary": tuple(turned), "value": 0 if value == head else value,
    }  # fmt: skip
    statements = [SparseAttention("O", *reads, **how)]
    if backward:
        grads = ("dK", "dIq", "dIk", "dIw", "" if latent else "dV", tuple(f"d{x}" for x in turned))
        statements.append(SparseAttentionGrad("dQ", *reads, "dO", *grads, **how))
    return Outline("sparse", tuple(tensors), tuple(statements))


@st.composite
def sizes(draw):
    names = ("queries", "sequences", "head", "share", "groups", "value", "index", "indices")
    return {x: draw(st.integers(1, 3)) for x in names} | {
        "queries": draw(st.integers(1, 7)), "more": draw(st.integers(0, 4)), "top": draw(st.integers(1, 8)),
        "rotary": draw(st.sampled_from([0, 0, 2])), "latent": draw(st.booleans()),
        "backward": draw(st.booleans()),
    }  # fmt: skip


@settings(laws, max_examples=500 if WHOLE else 30)
@given(st.data())
def test_sparse_attention_and_its_gradients_are_exact_in_any_layouts(data):
    outline = outlined(**data.draw(sizes()))
    texts = {x.name: data.draw(layout_texts((x.rows, x.cols), RANKS)) for x in outline.tensors}
    assert_performed(outline.laid_out(texts, RANKS), data.draw(st.integers(0, 99)))


SMALL = {
    "queries": 6, "more": 2, "sequences": 1, "head": 3, "share": 2, "groups": 1, "value": 2, "index": 2,
    "indices": 2, "top": 3, "rotary": 0,
}  # fmt: skip


def test_a_query_attends_to_the_keys_of_the_largest_scores():
    """DeepSeek-V3.2, equation 1: score(t, s) = Σ w·relu(q·k); the third query of 6 sees 5 of 8 keys."""
    chain = outlined(**SMALL).laid_out({}, 1)
    rng = np.random.default_rng(3)
    x = {y.name: rng.uniform(-1, 1, y.shape) for y in chain.tensors if y.is_input}
    out = chain.reference(x)["O"]
    scores = [
        sum(x["Iw"][2, j] * max(0, x["Iq"][2, 2 * j : 2 * j + 2] @ x["Ik"][s]) for j in range(2))
        for s in range(5)
    ]
    best = sorted(range(5), key=lambda s: -scores[s])[:3]
    for head in range(2):
        weights = np.exp(x["K"][best] @ x["Q"][2, 3 * head : 3 * head + 3] / 3**0.5)
        assert out[2, 2 * head : 2 * head + 2] == pytest.approx(weights @ x["V"][best] / weights.sum())


def test_its_flop_are_of_chosen_keys_and_of_all_scores():
    """6 queries see 3 to 8 keys, 33 in all, and attend to 3: 2 heads of 3 and 2, 2 index heads of 2."""
    assert outlined(**SMALL).laid_out({}, 1).flop == 2 * (3 + 2) * 18 * 2 + 2 * 2 * 2 * 33


def test_many_keys_take_less_time_than_all_of_them():
    sizes = {"hidden": 8192, "heads": 64, "tokens": 2**15, "dtype": "bfloat16"}
    seconds = []
    for more in ({}, {"index_heads": 4, "index_dim": 64, "top_keys": 512}):
        chain = umm.chain("attention", **sizes, **more).laid_out("data", 1)
        seconds.append(umm.run(umm.schedule(chain, umm.machine("h100-8"))).makespan_s)
    assert seconds[1] < seconds[0] / 2


def test_three_kernels_start_and_wait_for_arithmetic():
    """124 us on an H100 in float64, 9 of them starts of 3 us; the rest is twice as long at half the peak."""
    sizes = SMALL | {
        "queries": 2048,
        "more": 0,
        "head": 128,
        "share": 8,
        "value": 128,
        "index": 64,
        "top": 512,
    }
    chain = outlined(**sizes).laid_out({}, 1)
    plain, started, slow = (
        umm.run(umm.schedule(chain, umm.machine("h100-8", changed))).makespan_s
        for changed in ({}, {"launch": "13us"}, {"devices.peak.float64": "x0.5"})
    )
    assert started - plain == pytest.approx(3 * 10e-6)
    assert slow - 9e-6 == pytest.approx(2 * (plain - 9e-6))


DECODED, PROMPTS = {"decode": True, "batch": 4, "context": 6}, {"tokens": 12, "sequences": 2}
LATENT = {"kv_rank": 5, "rope_dim": 2, "q_rank": 4, "head_dim": 3}


@pytest.mark.parametrize("length", [DECODED, PROMPTS, PROMPTS | {"backward": True}])
@pytest.mark.parametrize("more", [{"kv_heads": 2}, LATENT | {"value_dim": 2}])
@pytest.mark.parametrize("scheme", ["megatron", "sequence", "data"])
def test_attention_with_an_indexer_is_exact_by_every_scheme(scheme, more, length):
    sizes = {"hidden": 16, "heads": 4, "index_heads": 2, "index_dim": 3, "top_keys": 4}
    outline = umm.chain("attention", dtype="float64", **sizes, **more, **length)
    assert_performed(outline.laid_out(scheme, RANKS), 1)


@pytest.mark.parametrize("more", [{"kv_heads": 2}, LATENT])
def test_recomputing_attention_drops_what_sparse_attention_reads_and_gives(more):
    sizes = {"hidden": 16, "ffn": 8, "heads": 4, "index_heads": 2, "index_dim": 3, "top_keys": 4}
    layer = umm.chain("transformer-layer", dtype="float64", backward=True, **PROMPTS, **sizes, **more)
    chains = [repeated(layer, 2, x).laid_out("data", 1) for x in ("none", "attention")]
    assert len(chains[1].statements) > len(chains[0].statements)
    operands = random_inputs(chains[0], 1)
    kept, again = (x.reference(operands) for x in chains)
    assert all(np.array_equal(kept[x], again[x]) for x in chains[0].outputs)


def mean_weights(x, asked):
    """The mean of all heads' weights by query and key: attention whose values are each key's own column."""
    rows, keys = x["Q"].shape[0], x["K"].shape[0]
    total, marked = np.zeros((rows, keys)), asked | {"value": 1, "latent": False, "backward": False}
    plain = outlined(**marked).laid_out({}, 1)
    for key in range(keys):
        values = np.zeros((keys, asked["groups"]))
        values[key] = 1
        total[:, key] = plain.reference({y: z for y, z in x.items() if y != "dO"} | {"V": values})["O"].mean(
            axis=1
        )
    return total


@settings(laws, max_examples=examples(40))
@given(sizes(), st.data())
def test_its_gradients_are_slopes_of_the_result_and_of_the_indexers_loss(asked, data):
    """dO·O by queries, keys and values; Σ KL(mean of heads' weights, softmax of scores) by the indexer."""
    chain = outlined(**asked | {"backward": True}).laid_out({}, 1)
    rng = np.random.default_rng(asked["top"])
    x = {y.name: rng.uniform(-1, 1, y.shape) for y in chain.tensors if y.is_input}
    grads = chain.reference(x)
    fixed = mean_weights(x, asked)

    def divergence(values):
        """The keys stay chosen, and the heads' weights are taken as given."""
        score = sum(
            values["Iw"][:, j : j + 1] * np.maximum(iq @ values["Ik"].T, 0)
            for j, iq in enumerate(np.split(values["Iq"], asked["indices"], axis=1))
        )
        total = np.log(np.where(fixed > 0, np.exp(score), 0).sum(axis=1, keepdims=True))
        return -(fixed * (score - total)).sum()

    names = [y for y in x if y != "dO"]
    for name in names:
        loss = (
            divergence if name in ("Iq", "Ik", "Iw") else lambda v: (chain.reference(v)["O"] * x["dO"]).sum()
        )
        at = tuple(data.draw(st.integers(0, size - 1)) for size in x[name].shape)
        assert grads[f"d{name}"][at] == pytest.approx(slope(loss, x, name, at), rel=1e-4, abs=1e-6)


@settings(laws, max_examples=examples(60))
@given(st.data())
def test_partial_products_of_a_batch_add_up_where_their_rows_are(data):
    """dW = dQᵀ·Q head by head, tokens cut over ranks and dW whole on each, or both cut by heads."""
    heads, wide, narrow, rows = (data.draw(st.integers(1, most)) for most in (3, 3, 3, 9))
    ranks, scheme = (
        data.draw(st.integers(1, 4)),
        data.draw(st.sampled_from(["row", "zigzag", "2d:2x2", "col"])),
    )
    ranks = 4 if scheme == "2d:2x2" else ranks
    of_weights = {
        "row": f"row@{ranks}",
        "zigzag": f"row@{ranks}",
        "2d:2x2": "col@2:interleaved",
        "col": "col",
    }[scheme]
    shapes = [
        Shape("A", rows, heads * wide, "float64", "input"),
        Shape("B", rows, heads * narrow, "float64", "input"),
    ]
    out = Shape("W", wide, heads * narrow, "float64", "output")
    one = Multiply("W", "A", "B", ("a",), batch=heads, batch_axes=(1, 1, 1))
    chain = Outline("batch", (*shapes, out), (one,)).laid_out(
        {"A": scheme, "B": scheme, "W": of_weights}, ranks
    )
    assert_performed(chain, data.draw(st.integers(0, 99)))


def test_partial_products_of_a_batch_move_no_factor():
    """4 ranks with 1,024 rows of factors of 2 MiB: just W's 8 KiB go from each rank to the three others."""
    shapes = [Shape(x, 4096, 64, "float64", "input") for x in "AB"]
    one = Multiply("W", "A", "B", ("a",), batch=4, batch_axes=(1, 1, 1))
    outline = Outline("batch", (*shapes, Shape("W", 16, 64, "float64", "output")), (one,))
    schedule = lower(outline.laid_out({"A": "row", "B": "row", "W": "row@4"}, 4), "h100-8")
    assert schedule.nbytes[schedule.src != schedule.dst].sum() <= 1.2 * 12 * 2**13


def test_shapes_that_do_not_fit_are_refused():
    tensors = [x for x in outlined(**SMALL).tensors if x.name != "Ik"]
    tensors.append(Shape("Ik", 8, 3, "float64", "input"))
    with pytest.raises(ProblemError, match="Ik is 8x3; it must be 8x2 beside Q"):
        Outline("sparse", tuple(tensors), outlined(**SMALL).statements)


def test_an_index_head_more_moves_its_columns_and_a_weight_of_every_query():
    machine, heads = umm.machine("h100-8"), Heads(128, 1, 64, 64, True)
    rows = Interval(0, 64)
    one, two = (
        sparse_seconds(machine, "bfloat16", heads, rows, 8, rows, (count, 32, 16), "bfloat16", False)
        for count in (1, 2)
    )
    assert (two - one) * machine.pass_bandwidth == pytest.approx(64 * (32 + 1) * 2)

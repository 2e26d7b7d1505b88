"""Fused attention: exact by every layout and way, balanced front and back, at the rate that was published."""

from dataclasses import replace

import numpy as np
import pytest
from conformance.executor_suite import laws
from drawn_attention import attentions
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from performed import assert_performed

import umm
from umm.cost import attention_seconds
from umm.errors import InputError
from umm.executor import executor
from umm.interval import Interval
from umm.plans.lower import lower
from umm.plans.statements.attention import Queries, _Forward, rings
from umm.program import Attention, Chain, Multiply, Outline
from umm.program.functions.attention import Heads
from umm.program.outline import Shape
from umm.program.systems import in_scheme, with_way
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import GET
from umm.schedules.writer.builder import Builder
from umm.traces.bottleneck import below_peak
from umm_hw.mpi.executor import MpiExecutor


@settings(laws, max_examples=examples(60))
@given(attentions(), st.integers(0, 99))
def test_attention_is_exact_by_every_layout_and_way_and_never_races(chain, seed):
    """Block by block, with the softmax going on from rank to rank, it is the plain one that stores scores."""
    assert_performed(chain, seed)


@pytest.mark.mpi
@settings(laws, max_examples=examples(10))
@given(chain=attentions(), seed=st.integers(0, 99))
def test_attention_is_exact_on_processes(mpi, chain, seed):
    assert_performed(chain, seed, mpi)


@pytest.fixture(scope="module")
def mpi(lent):
    return MpiExecutor(job=lent(6), replica=None)


def attention(tokens, layouts, way="auto", **more):
    outline = umm.chain("attention", model="llama-3-8b", tokens=tokens, dtype="bfloat16", **more)
    statements = tuple(replace(x, way=way) if hasattr(x, "way") else x for x in outline.statements)
    return lower(replace(outline, statements=statements).laid_out(layouts, 8), "h100-8")


def test_128k_tokens_take_what_fused_attention_takes_and_store_no_scores():
    """1.41e14 flop over 8 at 0.65 of 989 Tflop/s are 27 ms; with projections and gathers 33. No 129 GiB."""
    trace = umm.run(attention(2**17, "sequence"))
    assert 28e-3 < trace.makespan_s < 40e-3
    assert trace.memory_bytes < 2e9


def test_between_nodes_keys_are_gathered_by_level():
    """512K tokens on 4 nodes: 1 GB of keys, 3/4 of it by 8 cards, takes 5 ms of 426."""
    outline = umm.chain("attention", model="llama-3-8b", tokens=2**19, dtype="bfloat16", backward=True)
    seconds = {}
    for way in ("gather", "ring"):
        chain = with_way(outline, way)
        seconds[way] = umm.run(lower(chain.laid_out(way, 32), "dgx-h100x4")).makespan_s
    # A ring merges 31 times what it has of 512 MB of float32 results, and of gradients.
    assert 1.02 < seconds["ring"] / seconds["gather"] < 1.1


def test_a_ring_merges_each_steps_results_and_is_slower_than_heads():
    """8 ranks of two tiles: 7 steps after the first merge. 32K tokens, 64 heads on 4 of keys: 10 to 30 %.

    Ulysses moves more bytes, but runs one kernel; GLM-4.5-Air on H200 is measured 15 to 30 % slower by ring.
    """
    outline = umm.chain("attention", model="qwen3-235b-a22b", tokens=2**15, dtype="bfloat16", backward=True)
    seconds, plans = {}, {}
    for name in ("ring", "ulysses"):
        chain = in_scheme(name, outline, 8)
        schedule = lower(chain.laid_out(name, 8), "h200-8")
        seconds[name] = umm.run(schedule).makespan_s
        merged = [x.name == "attend_merge" for x in schedule.functions]
        plans[name] = int(np.take([*merged, False], schedule.details.fn).sum())
    assert plans["ulysses"] == 0
    assert plans["ring"] >= 8 * 7
    assert 1.1 < seconds["ring"] / seconds["ulysses"] < 1.3


@pytest.mark.parametrize("way", ["gather", "ring"])
@pytest.mark.parametrize(("sequences", "groups"), [(32, 1), (8, 4), (2, 16)])
def test_between_nodes_keys_of_other_sequences_stay_where_they_are(sequences, groups, way):
    """32 ranks on 4 nodes of 8: each its own sequence; 4 share one in a node; 16 share one over two nodes.

    Gathered by those who share, or round a ring of them: keys and values of a rank, 16x8 in float64.
    """
    sizes = {"hidden": 16, "heads": 2, "kv_heads": 2, "tokens": 512, "sequences": sequences}
    outline = umm.chain("attention", dtype="float64", backward=True, **sizes)
    chain = replace(with_way(outline, way), layouts=outline.layouts).laid_out("data", 32)
    schedule = lower(chain, "dgx-h100x4")
    names = np.array([x.name for x in schedule.tensors])[schedule.operand_tensors(0)]
    moved = (schedule.src != schedule.dst) & (schedule.dst >= 0)
    keys = moved & np.isin(names, ["K", "V"])
    apart = schedule.src // groups != schedule.dst // groups
    assert not (keys & apart).any()
    assert not (moved & apart & np.isin(names, ["dK", "dV"])).any()
    assert (schedule.payload[keys].sum() > 0) == (groups > 1)
    assert_performed(chain, 3, machine="dgx-h100x4")


def test_a_slot_with_many_pieces_is_waited_for_once():
    """64 ranks gather keys where others were: without a claim a get would wait for 218 actions."""
    outline = umm.chain("attention", model="llama-3-8b", tokens=2**16, dtype="bfloat16", backward=True)
    schedule = lower(with_way(outline, "gather").laid_out("gather", 64), umm.machine("h100-8", nodes=8))
    gets = np.diff(schedule.after_offsets)[schedule.kind == GET]
    assert gets.max() < 32
    assert any(x.endswith("claim.K") for x in schedule.lanes.names)


def test_one_ring_stands_for_those_like_it():
    """8 rings of 4 ranks on h100-8, each with two heads' keys: all take as long as one of them."""
    outline = umm.chain("attention", model="llama-3-8b", tokens=2**15, dtype="bfloat16")
    chain = outline.laid_out("tp8-dp4", 32)
    build = Builder("x", chain, umm.machine("h100-8", nodes=4))
    one = next(x for x in chain.statements if isinstance(x, Attention))
    writing = _Forward(build, one, set())
    ring = rings(build, one, writing.jobs, writing.heads)
    assert {len(x) for x in ring.ranks.values()} == {4}
    assert len(set(ring.ranks.values())) == 8
    assert ring.one_of_each(build, one.k, 2**15) == set(ring.ranks[0])


def test_front_and_back_balances_what_a_causal_mask_leaves():
    """In rows the last rank of 8 attends 1.9 times as long as the mean; front and back all do alike."""
    for layouts, ratio in (("data", 15 / 8), ("context", 1.0)):
        compute = umm.run(attention(2**16, layouts)).breakdown().compute
        assert compute.max() / compute.mean() == pytest.approx(ratio, rel=0.12), layouts


@pytest.mark.parametrize("backward", [False, True])
def test_a_ring_takes_no_less_than_the_kernels_of_a_rank(backward):
    """If these alone take longer than gathering, no ring is simulated."""
    outline = umm.chain("attention", model="llama-3-8b", tokens=8192, dtype="bfloat16", backward=backward)
    one = next(x for x in outline.statements if hasattr(x, "way") and hasattr(x, "dk") == backward)
    names = {*one.reads, *one.outs}
    tensors = [
        replace(x, role="output" if x.name in one.outs else "input")
        for x in outline.laid_out("context", 8).tensors
        if x.name in names
    ]
    machine = umm.machine("h100-8")
    build = Builder("ring", Chain("ring", tuple(tensors), (replace(one, way="ring"),), 8), machine)
    writing = Queries(build, replace(one, way="ring"), set())
    least = writing.least_seconds(writing.ring())
    seconds = executor("sim").makespan(lower(build.program, machine))
    assert least < seconds < 2 * least


@given(
    st.sampled_from([8, 12]), st.booleans(), st.sampled_from([0, 3]), st.lists(st.integers(0, 36), min_size=4)
)
def test_blocks_with_one_mask_have_one_price(tokens, causal, window, ends):
    """Moved along the diagonal, or further behind keys that are all seen: pairs and masked queries stay."""
    heads = Heads(64, 1, tokens, tokens, causal, window=window)
    rows, keys = Interval(*sorted(ends[:2])), Interval(*sorted(ends[2:4]))
    moved = heads.like(rows, keys)
    assert [x.size for x in moved] == [rows.size, keys.size]
    assert heads.pairs(*moved) == heads.pairs(rows, keys)
    assert heads.masked(*moved) == heads.masked(rows, keys)


def test_a_ring_holds_two_parts_of_the_keys_where_gathering_holds_all():
    """Of 128K tokens keys and values are 512 MiB, two eighths of them 128; a step's results 64.5."""
    pools = {way: int(attention(2**17, "context", way).pool_bytes.max()) for way in ("gather", "ring")}
    assert pools == {"gather": 512 * 2**20, "ring": 192.5 * 2**20}


@pytest.mark.parametrize(
    ("head", "causal", "tokens", "published"),
    [(128, False, 16384, 648), (128, True, 4096, 579), (64, True, 512, 197), (256, True, 8192, 628)],
)
def test_the_rate_is_that_of_flash_attention_3(head, causal, tokens, published):
    """Of its figure 5, H100 SXM5, 16K tokens in all and 2,048 columns, in Tflop/s, to 8 %."""
    heads = Heads(head, 1, tokens, tokens, causal)
    rate = umm.machine("h100-8").attention_rate("bfloat16", backward=False)
    share = rate.share(heads, Interval(0, 16384), 2048 // head, Interval(0, 16384))
    assert share * 989 == pytest.approx(published, rel=0.08)


@pytest.mark.parametrize(
    ("heads", "tokens", "backward", "micros"),
    [(4, 1024, False, 17.5), (8, 2048, False, 31.9), (8, 8192, False, 271), (16, 4096, False, 148),
     (4, 4096, True, 166), (8, 8192, True, 774), (16, 8192, True, 1383)],
)  # fmt: skip
def test_attention_of_few_heads_ends_with_its_longest_tiles(heads, tokens, backward, micros):
    """By cuDNN 9 on one H100, causal, to 10 %: all 128 tiles of 8 heads and 2K tokens wait for the last."""
    shape, rows = Heads(128, heads, tokens, tokens, True), Interval(0, tokens)
    share = umm.machine("h100-8").attention_rate("bfloat16", backward).share(shape, rows, heads, rows)
    flop = shape.flop(backward) * heads * shape.pairs(rows, rows)
    assert flop / (989e12 * share) == pytest.approx(micros * 1e-6, rel=0.1)


def test_latent_vectors_are_decoded_as_fast_as_flash_mla_does():
    """128 heads of 576 columns of keys and 512 of values, on H800: up to 660 Tflop/s (its README), to 8 %."""
    heads = Heads(512, 128, 1, 16384, False, rotary=64, scaled=192, alike=True)
    rows, keys = Interval(0, 128), Interval(0, 128 * 16384)
    seconds = attention_seconds(umm.machine("h800-8"), "bfloat16", heads, rows, 128, keys, backward=False)
    flop = 2 * (576 + 512) * 128 * keys.size
    assert flop / seconds / 1e12 == pytest.approx(660, rel=0.08)
    assert heads.moved(1, keys.size, 128) - heads.moved(1, 0, 128) == 576 * keys.size  # each key read once


def test_pairs_of_a_mask_are_counted_one_by_one():
    """Queries 3 to 9 of two sequences of 6, keys 2 to 10: as counted in a table."""
    for causal, window in ((True, 0), (False, 0), (True, 1), (True, 3), (True, 9)):
        heads = Heads(1, 1, 6, 6, causal, window=window)
        seen = [
            (q, k)
            for q in range(3, 9)
            for k in range(2, 10)
            if q // 6 == k // 6 and (not causal or k <= q) and (not window or k > q - window)
        ]
        assert heads.pairs(Interval(3, 9), Interval(2, 10)) == len(seen)
        assert heads.seen(Interval(8, 9)) == Interval(
            max(6, 9 - window) if window else 6, 9 if causal else 12
        )


@pytest.mark.parametrize("sequences", [1, 2])
def test_useful_flop_are_what_causal_attention_needs_fused_or_stored(sequences):
    """16 queries of 4 heads of 8 columns: two products forward, four backward, of each pair that is seen.

    The fused backward part computes scores again, a fifth product; stored ones are multiplied masked or not.
    """
    sizes = {"hidden": 32, "heads": 4, "tokens": 16, "sequences": sequences, "backward": True}
    fused, stored = (
        umm.chain(name, **sizes).laid_out("sequence", 2) for name in ("attention", "attention-stored")
    )
    length = 16 // sequences
    pairs, projections = sequences * 4 * length * (length + 1) // 2, 3 * 4 * 2 * 16 * 32 * 32
    assert fused.flop == stored.flop == projections + 6 * 2 * 8 * pairs
    assert sum(fused.flop_of_types.values()) == projections + 7 * 2 * 8 * pairs
    assert sum(stored.flop_of_types.values()) == projections + 6 * 2 * 8 * sequences * 4 * length**2


def test_scores_computed_again_are_time_and_no_part_of_the_peak():
    """128K tokens of llama-3-8b: 3.0 times the forward pass of attention is useful, 3.5 times is computed."""
    trace = umm.run(attention(2**17, "context", backward=True))
    forward = 4 * 128 * 32 * 2**17 * (2**17 + 1) // 2
    computed = sum(trace.schedule.program.flop_of_types.values())
    assert computed - trace.schedule.program.flop == forward // 2
    lost = below_peak(trace)
    share = forward / 2 / (trace.makespan_s * trace.schedule.peak)
    assert lost["repeated work"] == pytest.approx(share, rel=0.05)
    assert trace.fraction_of_peak + sum(lost.values()) == pytest.approx(1)


def test_attention_goes_into_files_and_comes_back():
    schedule = attention(64, "context", "ring")
    again = Schedule.from_json(schedule.to_json())
    assert umm.run(again).makespan_s == umm.run(schedule).makespan_s
    assert again.details.operands == 5  # a merge writes one and reads four


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"head": 3}, "4 columns of Q are not heads of 3"),
        ({"sequences": 3}, "4 rows of Q are not 3 equal sequences"),
        ({"way": "fast"}, "way 'fast' of O is unknown; choose from auto, gather, ring"),
        ({"cache": ("K",)}, "is not one of keys and one of values"),
    ],
)
def test_what_does_not_fit_is_refused(changes, why):
    shapes = [Shape(x, 4, 4, "float32", "input") for x in "QKV"]
    shapes += [Shape("O", 4, 4, "float32", "output"), Shape("L", 4, 2, "float32")]
    with pytest.raises(InputError, match=why):
        Outline("one", tuple(shapes), (Attention("O", "Q", "K", "V", "L", **{"head": 2} | changes),))


def test_stored_attention_stays_by_name():
    chain = umm.chain("attention-stored", hidden=16, heads=2, tokens=6)
    assert sum(isinstance(x, Multiply) and x.is_batch for x in chain.statements) == 2


@pytest.mark.parametrize(
    ("layouts", "ranks", "text"),
    [
        ("megatron", 4, "col"),
        ("megatron", 16, "col@4x4:c-"),
        ("tp8-dp2", 16, "zigzag@2x4x2:rc-"),
        ("data", 16, "row"),
    ],
)
def test_no_rank_has_a_part_of_a_head_of_keys(layouts, ranks, text):
    """4 heads of keys for 32 of queries: beyond 4 tensor ranks several have the same keys, as engines do."""
    sizes = {"hidden": 256, "ffn": 512, "heads": 32, "kv_heads": 4, "tokens": 16}
    chain = umm.chain("transformer-layer", dtype="float64", backward=True, **sizes).laid_out(layouts, ranks)
    assert str(next(x for x in chain.tensors if x.name == "K").layout) == text
    assert_performed(chain, 3)


@pytest.mark.parametrize("batch", [1, 3, 5, 8, 11])
@pytest.mark.parametrize("layouts", ["data", "tp2-dp4", "fsdp4-tp2", "sp2-dp4"])
def test_keys_of_a_sequence_are_where_its_token_is_decoded(batch, layouts):
    """Any number of sequences on 8 ranks: no rank gets a key or value of 6 earlier tokens from another."""
    sizes = {"hidden": 16, "heads": 4, "context": 6, "batch": batch}
    outline = umm.chain("attention", decode=True, dtype="float64", **sizes)
    assert Outline.from_dict(outline.to_dict()) == outline
    chain = outline.laid_out(layouts, 8)
    schedule = lower(chain, "h100-8")
    kept = [number for number, x in enumerate(schedule.tensors) if x.name.endswith(".cache")]
    moved = (schedule.src != schedule.dst) & np.isin(schedule.operand_tensors(0), kept)
    assert len(kept) == 2
    assert not moved.any()
    assert_performed(chain, batch)


def test_a_token_decoded_over_two_nodes_moves_no_keys():
    """llama-3-405b has 8 heads of keys; over 16 ranks a layer's cache stays where it is."""
    sizes = {"model": "llama-3-405b", "decode": True, "context": 8192, "batch": 32}
    chain = umm.chain("transformer-layer", dtype="bfloat16", **sizes).laid_out("megatron", 16)
    schedule = lower(chain, umm.machine("dgx-h100x4", nodes=2))
    names = [x.name for x in schedule.tensors]
    moved = (schedule.src != schedule.dst) & (schedule.operand_tensors(0) == names.index("K.cache"))
    assert not moved.any()


def test_gradients_are_added_between_nodes_only_where_each_rank_has_the_keys():
    """Values in two replicas come by themselves, and the first rank's queries see less than the others'."""
    outline = umm.chain("attention", backward=True, tokens=2, hidden=16, heads=4, kv_heads=1, dtype="float64")
    texts = {
        x.name: {"V": "row@2:interleaved", "dQ": "2d:balanced"}.get(x.name, "row") for x in outline.tensors
    }
    assert_performed(outline.laid_out(texts, 4), 1, machine=umm.machine("pvc-12"))

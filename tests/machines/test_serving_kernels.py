"""Attention and experts by an engine's kernels: bounds that hold of any shape, and measured numbers."""

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import umm
from umm.cost import (
    attention_seconds,
    decode_seconds,
    exchange_seconds,
    experts_seconds,
    grouped_seconds,
    prefill_seconds,
)  # fmt: skip
from umm.errors import MachineError
from umm.interval import Interval
from umm.machines.decode import Decode, decode_of, tokens, unshared_keys
from umm.machines.exchange import Exchange
from umm.machines.experts import FORMATS, Experts, drawn_rows, experts_of, load_of, rows_of_experts
from umm.machines.prefill import Prefill, causal, prefill_of, whole_waves
from umm.machines.settings import with_settings
from umm.program.functions.attention import Heads

MACHINES = ("a100-8", "h100-8", "b200-8")
ENGINES = ("vllm", "trtllm", "sglang")
RATES = {"memory": "2 TB/s", "source": "a test"}


shapes = st.tuples(
    st.integers(0, 11), st.integers(1, 14), st.sampled_from([1, 2, 8]), st.sampled_from([1, 4, 16])
)
named = st.tuples(st.sampled_from(MACHINES), st.sampled_from(ENGINES))


@given(named, shapes, st.sampled_from([64, 128]))
def test_decode_takes_longer_with_more_sequences_or_keys_and_no_less_than_memory_does(name, shape, head):
    machine, (batch, length, kv_heads, group) = umm.machine(name[0], kernels=name[1]), shape
    batch, length = 2**batch, 2**length

    def took(batch, length):
        heads = kv_heads * group
        return float(decode_seconds(machine, "bfloat16", batch, length, heads, kv_heads, head, head))

    def shape(batch, length):
        return tokens(batch, length, kv_heads * group, kv_heads, head, head)

    unshared = bool(unshared_keys(shape(batch, length), 132, 2))  # TensorRT-LLM has two kernels
    kernel = decode_of(machine.decode, "bfloat16", head, alone=group == 1, unshared=unshared)

    def waves(batch, length):
        """Waves of the parts that an engine's rule cuts keys into, and the keys of all of them."""
        parts, keys, _ = kernel.ways(shape(batch, length), np.float64(batch * kv_heads))[0]
        number = whole_waves(batch * kv_heads * parts, kernel.units * kernel.resident, kernel.tail)
        return np.array([number, number * keys])

    # Where one part alone adds up all heads of few keys, more keys or sequences save that.
    saved = bool(kernel.merge) * (kernel.split + kernel.merge * group * head) + 1e-12
    for more in ((batch + 1, length), (batch, 2 * length)):
        # An engine's rule may leave keys whole, or begin a wave, where with more of them it does not.
        rule = max(1.0, *(waves(batch, length) / waves(*more))) if kernel.cuts in ("flash3", "xqa") else 1.0
        if unshared_keys(shape(*more), 132, 2) == unshared:
            assert took(batch, length) <= rule * took(*more) + saved + (rule > 1) * kernel.split
    assert took(batch, length) >= batch * length * kv_heads * 2 * head * 2 / machine.memory_bandwidth


@given(named, shapes, st.sampled_from([64, 128]))
def test_prefill_takes_longer_with_more_prompts_or_queries_and_no_less_than_the_peak_does(name, shape, head):
    machine, (batch, length, kv_heads, group) = umm.machine(name[0], kernels=name[1]), shape
    kernel = prefill_of(machine.prefill, "bfloat16", "bfloat16", head)
    peak, heads = machine.peak("bfloat16"), kv_heads * group

    def took(batch, length, window=0):
        return float(kernel.seconds(causal(batch, length, heads, kv_heads, head, head, window), peak, 2.0))

    batch, length = 2**batch, 2**length
    assert took(batch, length) <= took(batch + 1, length)
    assert took(batch, length) <= took(batch, 2 * length)
    assert length < 1024 or took(batch, length, window=128) <= took(batch, length)
    assert took(batch, length) >= 4 * batch * heads * head * length * (length + 1) / 2 / peak


@given(named, st.integers(0, 13), st.sampled_from([1, 8]), st.sampled_from([0.0, 1.2]))
def test_experts_take_longer_with_twice_the_tokens_and_no_less_than_the_weights_that_are_hit(
    name, tokens, ep, skew
):
    machine, tokens = umm.machine(name[0], kernels=name[1]), 2**tokens
    took = [
        experts_seconds(machine, "bfloat16", x, 4096, 1536, 8, 128, ep=ep, skew=skew)
        for x in (tokens, 2 * tokens)
    ]
    if took[0] is None:
        return
    rows = rows_of_experts(tokens, 128, 8, ep, skew)
    assert skew or took[0] <= took[1]
    hit = np.count_nonzero(rows) / len(rows)
    assert took[0] >= hit * 3 * 4096 * 1536 * 2 / machine.memory_bandwidth
    assert took[0] >= 6 * rows.sum(axis=1).mean() * 4096 * 1536 / machine.peak("bfloat16")


@given(
    st.integers(1, 4096),
    st.sampled_from([8, 64, 256]),
    st.integers(1, 8),
    st.sampled_from([1, 8]),
    st.booleans(),
)
def test_the_busiest_rank_has_its_share_of_rows_at_least_and_no_expert_more_than_the_tokens(
    tokens, experts, top_k, ep, skewed
):
    rows = rows_of_experts(tokens, experts, top_k, ep, 1.2 if skewed else 0.0)
    assert rows.shape == (5 if skewed else 1, experts // ep)
    assert rows.max() <= tokens
    assert (rows.sum(axis=1) >= tokens * top_k / ep).all() or not skewed
    assert ep > 1 or (rows.sum(axis=1) == tokens * top_k).all()


def test_few_drawn_rows_go_to_one_rank_after_another():
    """A token's 8 rows on 16 ranks of 24 experts: 1 on the busiest, where chance would give it 2 or 3."""
    assert rows_of_experts(1, 384, 8, 16, 1.2).sum(axis=1).tolist() == [1.0] * 5


def test_few_drawn_rows_are_of_one_rank_where_the_emptiest_experts_of_all_get_them():
    """A token's 8 rows on 16 ranks of 24 experts: all on the busiest."""
    assert drawn_rows(1, 384, 8, 16, 1.2, parts=1).sum(axis=1).tolist() == [8.0] * 5


def test_tokens_that_take_turns_hit_as_many_experts_as_there_are_turns():
    """4 tokens of 8 experts each hit 32 of 256; on one of 8 ranks 4 of 32."""
    assert np.count_nonzero(rows_of_experts(4, 256, 8)) == 32
    assert np.count_nonzero(rows_of_experts(4, 256, 8, 8)) == 4


def test_a_file_with_the_old_name_of_decodings_parts_is_refused_with_the_new_one(tmp_path):
    path = tmp_path / "old.toml"
    path.write_text(umm.machine("h200-8").source_path.read_text().replace("\nkey_parts = ", "\nparts = "))
    with pytest.raises(MachineError, match=r"unknown key 'engines.*parts'; did you mean 'key_parts'"):
        umm.machine(path)


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("\nby_mean = ", "\nby_tokens = true\nby_mean = ", "both choose the tiles; state one of them"),
        ("\ntiles = [16, 64]", "\ntiles = [16]", "first and the last of tiles; state two or more"),
        ("\ntiles = [16, 64]", "\ntiles = [64, 16]", "the measured points must increase"),
        ("\nunaligned = 0.235", "\nunaligned = 0.0", "unaligned: input should be greater than 0, not 0.0"),
        ("\ntiles = [16, 64]", "\ntiles = [16, 64]\nreread = 2", "reread: input should be a valid boolean"),
        ("\ntiles = [16, 64]", '\ntiles = [16, 64]\nmodels = ["4096"]', "model; write them like 4096x14336"),
        ('\nbackend = "triton"', "", "usual says for which heads an engine takes a backend; state backend"),
        ("\nusual = ", '\nusual_heads = ["16"]\nusual = ', "'16' is not query heads and heads"),
        ("\nusual = [256]", '\nusual_heads = ["16/2"]', "heads than the usual ones are taken"),
    ],
)
def test_keys_of_kernels_that_say_nothing_alone_or_two_things_are_refused(tmp_path, before, after, why):
    path, shipped = tmp_path / "bad.toml", (umm.machine(x).source_path.read_text() for x in MACHINES)
    path.write_text(next(x.replace(before, after) for x in shipped if before in x))
    with pytest.raises(MachineError, match=re.escape(why)):
        umm.machine(path)


def test_a_window_ends_what_a_token_reads():
    """A sequence of 1 GB on one unit of 100 GB/s takes 10 ms; of a window of a thousandth 10 us."""
    kernel = Decode(
        cache="bfloat16", head=[128], start=["0 s"], feed=["100 GB/s"], units=1, resident=1.0, rows=8,
        chunk=64.0, ramp="0 s", tail=1.0, split="0 s", value=1.0, norm=64.0, l2="1 MB", cached="4 TB/s",
        sequence="0 s", token="0 s", **RATES,
    )  # fmt: skip
    keys = 10**9 // 512
    seconds = [
        float(kernel.seconds(tokens(1, keys, 1, 1, 128, 128, w), 1e15, 2.0)) for w in (0, keys // 1000)
    ]
    assert seconds == pytest.approx([0.01, 1e-5], rel=2e-3)


def tokens_kernel(**numbers):
    """A kernel of tokens on a device of 8 multiprocessors that reads 1 GB/s on each."""
    times = {"ramp": "0 s", "split": "0 s", "token": "0 s", "sequence": "0 s"}
    plain = {"cache": "bfloat16", "head": [128], "start": ["0 s"], "feed": ["1 GB/s"], "value": 1.0}
    sizes = {"units": 8, "resident": 1.0, "rows": 16, "chunk": 64.0, "tail": 1.0, "norm": 64.0, "l2": "1 MB"}
    rates = {"cached": "1 PB/s", "memory": "1 PB/s", "source": "a test"}
    return Decode(**plain | sizes | rates | times | numbers)


def test_a_part_of_few_keys_adds_up_all_heads_and_of_many_keys_each_part_some():
    """8 heads of 128 columns at 1 ns each are 1.024 us for one part; 8 sequences leave no units to cut."""
    plain, merging = (tokens_kernel(cuts="context", merge=x) for x in ("0 s", "1 ns"))
    added = [
        float(merging.seconds(x, 1e15, 2.0) - plain.seconds(x, 1e15, 2.0))
        for x in (tokens(b, n, 8, 1, 128, 128) for b, n in ((1, 64), (1, 512), (8, 64)))
    ]
    assert added == pytest.approx([1.024e-6, 1.024e-6 / 8, 0.0], abs=1e-12)


def test_keys_are_cut_into_segments_up_to_so_many_heads_and_not_above():
    """16 segments of 16 keys at 512 bytes each, of 128 heads in 256 waves; of a head more 256 keys in 17."""
    kernel = tokens_kernel(cuts="segments", chunk=16.0)
    took = [float(kernel.seconds(tokens(b, 256, 1, 1, 128, 128), 1e15, 2.0)) for b in (1, 128, 129)]
    assert took == pytest.approx([2 * 16 * 512e-9, 256 * 16 * 512e-9, 17 * 256 * 512e-9], rel=1e-6)


@pytest.mark.parametrize(
    ("sequences", "keys", "parts"), [(32, 8192, 3), (32, 16384, 4), (16, 8192, 6), (16, 16384, 7)]
)
def test_flash_attention_3_cuts_keys_by_blocks_of_112_over_an_equal_share_and_a_tenth(sequences, keys, parts):
    """147 blocks of 16,384 keys and 32 sequences are 4 parts of 37, 128 for 108 units: a second wave."""
    kernel = tokens_kernel(units=108, chunk=112.0, cuts="flash3", short=False)
    took = float(kernel.seconds(tokens(sequences, keys, 1, 1, 128, 128), 1e15, 2.0))
    waves, blocks = np.ceil(sequences * parts / 108), np.ceil(np.ceil(keys / 112) / parts)
    assert took == pytest.approx(waves * blocks * 112 * 512e-9, rel=1e-3)


def test_flash_attention_2_cuts_keys_into_the_fewest_parts_that_nearly_fill_a_wave():
    """128 sequences are 384 parts of 432 slots in two waves of 216, 89 %; 173 are not cut."""
    kernel = tokens_kernel(units=108, resident=2.0, chunk=128.0, cuts="flash2")
    took = [float(kernel.seconds(tokens(b, 6144, 2, 1, 128, 128), 1e15, 2.0)) for b in (128, 173)]
    assert took == pytest.approx([2 * 2048 * 512e-9, 6144 * 512e-9], rel=1e-3)


def cut(keys, sequences=1, window=0, **numbers):
    """The parts of a head of keys on 132 multiprocessors, and the keys of the longest."""
    some = tokens(sequences, keys, 4, 1, 128, 128, window)
    parts, each, _ = tokens_kernel(units=132, **numbers).ways(some, some.sequences)[0]
    return float(parts), float(each)


def test_flash_attention_3_cuts_no_four_blocks_and_one_head_into_as_many_parts_as_reach_85_percent():
    """64 blocks on 132 multiprocessors: 64 parts fill .485, 55 of them .417, 86 %, with 2 blocks at most."""
    flash = {"cuts": "flash3", "chunk": 128.0}
    assert cut(512, **flash) == (1, 512)
    assert cut(513, **flash) == (5, 128)
    assert cut(8192, **flash) == (55, 256)
    # A window that ended is cut as all keys are, where a CUDA graph has so many parts.
    assert cut(8192, window=128, **flash) == (1, 128)
    assert cut(8192, window=128, key_parts=32, **flash) == (32, 128)


def test_tensorrt_cuts_keys_by_the_root_of_their_parts_of_128_and_into_eight_waves():
    """512 parts of 65,536 keys are 64, the root of 8 * 512; 64 sequences of them 8 waves of 132, 16 each."""
    xqa = {"cuts": "xqa", "chunk": 64.0}
    assert cut(255, **xqa) == (1, 255)
    assert cut(512, **xqa) == (4, 128)
    assert cut(65536, **xqa) == (64, 1024)
    assert cut(65536, sequences=64, **xqa) == (16, 4096)


def test_blocks_by_head_are_as_many_as_sizes_of_heads():
    with pytest.raises(ValueError, match="chunk must be one number or as long as head"):
        tokens_kernel(chunk=[64.0, 128.0])
    with pytest.raises(ValueError, match="cuts"):
        tokens_kernel(cuts="flash4")


def test_vllm_copies_queries_of_several_sequences_and_heads_that_share_keys():
    plain, copying = tokens_kernel(), tokens_kernel(swap="6 us")
    added = [
        float(copying.seconds(x, 1e15, 2.0) - plain.seconds(x, 1e15, 2.0))
        for x in (tokens(*y, 128, 128) for y in ((2, 64, 8, 2), (1, 64, 8, 2), (2, 64, 8, 1), (2, 64, 2, 2)))
    ]
    assert added == pytest.approx([6e-6, 0, 0, 0], abs=1e-12)


def test_sglang_on_a100_has_a_kernel_of_its_own_up_to_256_keys():
    machine = umm.machine("a100-8", kernels="sglang")
    below, above = (
        float(decode_seconds(machine, "bfloat16", 4096, x, 4, 1, 128, 128, warm=True)) for x in (256, 272)
    )
    assert above > 1.25 * below
    assert decode_of(machine.decode, "bfloat16", 128, short=True).chunk == 64


def test_a_part_begins_and_ends_longer_with_more_columns():
    kernel = tokens_kernel(column="1 ns", feed=["1 PB/s"])
    wide, narrow = (float(kernel.seconds(tokens(8, 1, 1, 1, x, x), 1e15, 2.0)) for x in (256, 64))
    assert wide - narrow == pytest.approx(2 * (256 - 64) * 1e-9, rel=1e-3)


def test_layers_with_a_window_take_its_kernel_before_keys_are_outside_of_it():
    """TensorRT-LLM serves windows of 256 columns by FlashInfer, however few keys there are."""
    machine = umm.machine("b200-8", kernels="trtllm")
    with_window, without = (
        decode_seconds(machine, "bfloat16", 8, 512, 8, 4, 256, 256, window) for window in (1024, 0)
    )
    flashinfer = umm.machine("b200-8", kernels="trtllm+flashinfer")
    assert with_window == decode_seconds(flashinfer, "bfloat16", 8, 512, 8, 4, 256, 256, 1024) != without


def test_queries_of_heads_that_share_keys_fill_a_tile_together():
    """8 heads of 16 queries on one unit: 8 tiles apart, 1 packed, an eighth of the work."""
    numbers = {
        "dtype": "bfloat16", "cache": "bfloat16", "head": [64], "value": [1.0], "start": ["0 s"], "units": 1,
        "tile": 128, "keys": 16.0, "ramp": "0 s", "tail": 1.0, "split": "1 s", "norm": 64.0,
        "write": "4 TB/s", "token": "0 s", "sequence": "0 s",
    } | RATES  # fmt: skip
    apart, packed = (Prefill(packed=x, **numbers) for x in (False, True))
    prompts = causal(1, 16, 8, 1, 64, 64)
    seconds = [float(x.seconds(prompts, 1e9, 2.0, written=False)) for x in (apart, packed)]
    assert seconds[0] == pytest.approx(8 * 128 * 16 * 256 / 1e9)
    assert seconds[1] == pytest.approx(seconds[0] / 8)


def test_rows_of_an_expert_are_padded_to_tiles_and_weights_of_those_hit_are_read_once():
    """2 experts of 3 rows: 4 tiles of 8 rows for 256 columns, 16 KiB of weights each at 1 GB/s."""
    kernels = Experts(
        dtype="float8", tiles=[8], units=1, value=1.0, feed="1 PB/s", ramp="0 s", tail=1.0, norm=64.0,
        memory="1 GB/s", l2="1 MB", cached="4 TB/s", passes="1 PB/s", start="0 s", token="0 s", expert="0 s",
        source="a test",
    )  # fmt: skip
    load = load_of([3, 0, 3], 6, 1)
    assert float(kernels.multiply(load, 256, 64, 1e15)) == pytest.approx(
        (2 * 256 * 64 + 6 * (64 + 512)) / 1e9
    )
    assert float(kernels.multiply(load, 256, 64, 1e6)) == pytest.approx(4 * 8 * 128 * 64 * 2 / 1e6, rel=1e-3)


@pytest.mark.filterwarnings("error")
def test_experts_without_a_token_take_the_start_alone():
    """No rows, no tokens: a law that divided by them gave nan; a million tokens take no less than ten."""
    kernels = umm.machine("h100-8", kernels="vllm").experts[0]
    took = [
        float(kernels.seconds(load_of(np.full((1, 8), rows), rows * 8.0, 1), 4096, 1536, True, 1e15))
        for rows in (0, 1, 10, 10**6)
    ]
    assert 0.0 < took[0] < took[1] < took[2] < took[3]


def test_tiles_grow_with_what_passes_for_each_expert_of_a_rank_and_others_rows_count_where_computed():
    """64 tokens of 4 experts, 8 rows to a rank with 4 of 32: tiles of 64 rows, for 256 rows pass."""
    numbers = {
        "dtype": "float8", "tiles": [8, 64], "units": 1, "value": 1.0, "feed": "1 PB/s", "ramp": "0 s",
        "tail": 1.0, "norm": 64.0, "l2": "1 MB", "cached": "4 TB/s", "passes": "1 PB/s", "start": "0 s",
        "token": "0 s", "expert": "0 s",
    } | RATES  # fmt: skip
    load, tile = load_of([8, 0, 0, 0], 64, 4), 64 * 128 * 64 * 2 / 1e6
    forms = [{}, {"by_mean": 1.0}, {"by_mean": 1.0, "computed": True}, {"arrived": True, "by_mean": 1.0}]
    took = [float(Experts(**numbers, **x).multiply(load, 128, 64, 1e6)) for x in forms]
    # Of others' rows 248 are 4 tiles; 8 tokens have a row here, 8 of whose rows pass for each expert.
    assert took == pytest.approx([tile / 8, tile, 5 * tile, tile / 8], rel=1e-3)


def memory_bound(**numbers):
    """Kernels of experts on one unit that only reads memory, at 1 GB/s, beside a cache of 1 MB."""
    plain = {"dtype": "float8", "tiles": [8], "units": 1, "value": 1.0, "feed": "1 PB/s", "ramp": "0 s"}
    rates = {"memory": "1 GB/s", "l2": "1 MB", "cached": "4 TB/s", "passes": "1 PB/s", "source": "a test"}
    times = {"start": "0 s", "token": "0 s", "expert": "0 s", "tail": 1.0, "norm": 64.0}
    return Experts(**plain | rates | times | numbers)


def test_tiles_of_an_expert_read_weights_again_that_the_cache_does_not_hold():
    """24 rows are 3 tiles: 4 MB of weights are read once, and twice the 3 MB beyond the cache."""
    load, rows = load_of([24], 24, 1), 24 * (2048 + 2 * 2000)
    first, again = (float(memory_bound(reread=x).multiply(load, 2000, 2048, 1e18)) for x in (False, True))
    assert first == pytest.approx((2000 * 2048 + rows) / 1e9)
    assert again == pytest.approx(first + 2 * (2000 * 2048 - 1e6) / 1e9)


def test_weights_whose_rows_are_no_multiple_of_16_elements_multiply_at_a_share_of_the_rate():
    kernels, load = memory_bound(memory="1 PB/s", unaligned=0.25), load_of([8], 8, 1)
    aligned, other = (float(kernels.multiply(load, 128, k, 1e6)) for k in (64, 63))
    assert other == pytest.approx(4 * aligned * 63 / 64, rel=1e-6)


def test_tiles_grow_where_there_are_more_tokens_than_experts_of_the_rank():
    """1 row of each of 4 experts: 4 tiles of 16 rows for 4 tokens, of 64 for 5."""
    kernels = memory_bound(memory="1 PB/s", tiles=[16, 64], by_tokens=True)
    few, more = (float(kernels.multiply(load_of([1] * 4, x, 1), 128, 64, 1e6)) for x in (4, 5))
    assert more == pytest.approx(4 * few, rel=1e-6)


def test_the_first_tile_of_each_unit_reads_its_rows_before_it_multiplies():
    """3 tiles of 8 rows on 2 units: two read 8 x 64 bytes each at 1 MB/s, the third beside products."""
    load, numbers = load_of([24], 24, 1), {"memory": "1 PB/s", "units": 2}
    plain, first = (
        float(memory_bound(**numbers, **x).multiply(load, 128, 64, 1e9)) for x in ({}, {"first": "1 MB/s"})
    )
    assert first == pytest.approx(plain + 2 * 8 * 64 / 1e6, rel=1e-6)


def test_kernels_with_tuned_tiles_are_those_of_their_experts_and_columns_of_a_rank():
    plain, tuned = memory_bound(), memory_bound(shapes=["8x4096"])
    chosen = [experts_of([tuned, plain], "float8", 6144, 16384, False, x) for x in ("8x4096", "8x2048", "")]
    assert chosen == [tuned, plain, plain]


def prompts_kernel(**numbers):
    """A kernel of prompts on a device of 4 multiprocessors that does nothing but multiply."""
    times = {"ramp": "0 s", "split": "0 s", "token": "0 s", "sequence": "0 s"}
    plain = {"dtype": "bfloat16", "cache": "bfloat16", "head": [128], "value": [1.0], "start": ["0 s"]}
    sizes = {"units": 4, "tile": 64, "packed": False, "keys": 64.0, "tail": 1.0, "norm": 64.0}
    rates = {"write": "1 PB/s", "memory": "1 PB/s", "source": "a test"}
    return Prefill(**plain | sizes | rates | times | numbers)


def test_keys_outside_a_window_take_a_share_of_the_time_where_a_kernel_visits_them():
    some = causal(4, 8192, 1, 1, 128, 128, window=128)
    all_keys = float(prompts_kernel().seconds(causal(4, 8192, 1, 1, 128, 128), 1e15, 2))
    few, half, each = (float(prompts_kernel(skipped=x).seconds(some, 1e15, 2)) for x in (0.0, 0.5, 1.0))
    assert few < half < each
    assert few < 0.1 * all_keys
    assert half == pytest.approx((few + each) / 2)
    assert each == pytest.approx(all_keys, rel=0.05)


def test_an_engine_takes_a_backend_for_the_heads_it_names_and_for_others_if_asked():
    usual, other = prompts_kernel(head=[64, 256], value=[1, 1], start=["0 s", "0 s"]), {"backend": "triton"}
    triton = prompts_kernel(**other, head=[192, 256], value=[1, 1], start=["0 s", "0 s"], usual=[192])
    never = triton.model_copy(update={"usual": []})
    chosen = [prefill_of((triton, usual), "bfloat16", "bfloat16", x) for x in (192, 256)]
    assert chosen == [triton, usual]
    assert prefill_of((never, usual), "bfloat16", "bfloat16", 192) is usual
    assert prefill_of((never,), "bfloat16", "bfloat16", 192) is None


def test_an_engine_takes_a_backend_for_the_heads_of_models_that_it_names():
    """SGLang takes Triton on Blackwell for 16 heads of 256 columns on 2 of keys, not for 16 on 4."""
    default, triton = (umm.machine("b200-8", kernels=x) for x in ("sglang", "sglang+triton"))
    heads, keys = np.array([16, 16]), np.array([2, 4])
    for seconds, shape in ((decode_seconds, (8, 4096)), (prefill_seconds, ("bfloat16", 1, 4096))):
        *types, b, n = shape
        took, asked = (seconds(x, *types, "bfloat16", b, n, heads, keys, 256, 256) for x in (default, triton))
        assert took[0] == asked[0]
        assert took[1] < 0.9 * asked[1]


def test_attention_by_another_backend_is_an_engines_and_named():
    machine = umm.machine("b200-8", kernels="sglang+triton")
    assert machine.engine.name == "SGLang 0.5.14 with triton"
    shape = ("bfloat16", "bfloat16", 8, 4096, 16, 4, 256, 256)
    by_triton, by_default = (
        float(prefill_seconds(x, *shape)) for x in (machine, umm.machine("b200-8", kernels="sglang"))
    )
    assert by_triton > 1.3 * by_default
    for key, why in (("sglang+tritn", "did you mean 'triton'"), ("pytorch+triton", "leave out the backend")):
        with pytest.raises(MachineError, match=why):
            umm.machine("b200-8", kernels=key)


def test_tensorrt_reads_keys_once_a_query_head_where_they_have_few_parts_and_16_bits():
    machine = umm.machine("h100-8", kernels="trtllm")
    ratios = []
    for cache in ("bfloat16", "float8"):
        few, more = (
            float(decode_seconds(machine, cache, b, 1024, 128, 4, 256, 256, warm=True)) for b in (1, 2)
        )
        ratios.append(few / more)
    assert ratios[0] > 1.3 > 1.0 > ratios[1]
    heads = ((64, 2), (66, 2), (8, 8))
    assert [bool(unshared_keys(tokens(64, 512, *x, 128, 128), 132, 1)) for x in heads] == [False, True, True]


def test_a_prompt_of_one_token_is_computed_as_a_token_where_an_engine_does_so():
    vllm = umm.machine("b200-8", kernels="vllm")
    one = prefill_seconds(vllm, "bfloat16", "bfloat16", [8, 8], [1, 16], 32, 8, 128, 128)
    assert one[0] == decode_seconds(vllm, "bfloat16", 8, 1, 32, 8, 128, 128, warm=True)
    assert one[0] < 0.8 * one[1]


def test_narrow_tiles_of_latent_vectors_read_them_again_and_wide_ones_do_not():
    machine = umm.machine("gb200-nvl72", kernels="trtllm")
    took = [
        float(decode_seconds(machine, "bfloat16", 128, 32768, x, 1, 576, 512, latent=True))
        for x in (16, 32, 64)
    ]
    assert took[1] > 1.2 * took[0]
    assert took[2] < took[1]


def test_more_query_heads_fill_a_wide_tile_and_fewer_several_narrow_ones():
    """32 heads that share keys are two tiles of 16, 64 one of 64: keys are read twice, then once."""
    kernel = Decode(
        cache="bfloat16", head=[128], start=["0 s"], feed=["1 GB/s"], units=1, resident=1.0, rows=16, wide=64,
        chunk=64.0, ramp="0 s", tail=1.0, split="1 s", value=1.0, norm=64.0, l2="1 MB", cached="4 TB/s",
        sequence="0 s", token="0 s", **RATES,
    )  # fmt: skip
    took = [float(kernel.seconds(tokens(1, 4096, x, 1, 128, 128), 1e15, 2.0)) for x in (16, 32, 64)]
    assert took[1] / took[0] == pytest.approx(2, rel=1e-3)
    assert took[2] == pytest.approx(took[0], rel=1e-3)


def test_an_engine_prices_forward_attention_and_grouped_multiplies_and_the_file_the_rest():
    plain = umm.machine("h100-8")
    vllm = with_settings(plain, {"kernels": "vllm"})
    heads, rows = Heads(128, 4, 4096, 4096, causal=True), Interval(0, 4096)
    for backward in (False, True):
        took = [attention_seconds(x, "bfloat16", heads, rows, 32, rows, backward) for x in (plain, vllm)]
        assert (abs(took[1] - vllm.launch_s) != pytest.approx(took[0] - plain.launch_s)) == (not backward)
        assert 0.5 < took[1] / took[0] < 2
    grouped = [grouped_seconds(x, "bfloat16", np.full(8, 256), 4096, 4096, 2).sum() for x in (plain, vllm)]
    assert 0.5 < grouped[1] / grouped[0] < 2
    assert decode_seconds(plain, "bfloat16", 1, 64, 8, 8, 128, 128) is None
    assert experts_seconds(plain, "bfloat16", 64, 4096, 1536, 8, 128) is None


def test_every_format_of_experts_names_a_type_with_a_peak():
    b200 = umm.machine("b200-8")
    assert all(b200.peak(x.dtype) > 0 for x in FORMATS.values())


def test_more_sequences_wait_longer_for_their_caches():
    """Numbers that a reader sees: 8 KiB a key on one of 8 H100, 32 sequences of 4,096 keys are 537 MB."""
    vllm = umm.machine("h100-8", kernels="vllm")
    times = [float(decode_seconds(vllm, "bfloat16", b, 4096, 32, 8, 128, 128)) for b in (1, 32, 256)]
    assert all(a < b for a, b in pairwise(times))
    assert times[1] == pytest.approx(537e6 / 2.9e12, rel=0.25)


def test_many_tokens_go_once_to_each_rank_and_few_once_to_each_expert():
    """8 ranks, 8 experts each token: 8 x (1 - (7/8)^8) = 5.25 copies of many tokens, 8 of few."""
    times = dict.fromkeys(("start", "column", "expert", "token"), "0 s")
    many, few = (
        Exchange(
            direction="dispatch", low_latency=x, item=1.0, link=1.0, block="1 PB/s", blocks=24,
            source="a test", **times,
        )
        for x in (False, True)
    )  # fmt: skip
    seconds = [float(x.seconds(1000, 1000, 8, 256, 8, 1e9)) for x in (many, few)]
    assert seconds == pytest.approx([8 * (1 - (7 / 8) ** 8) * 7 / 8e3, 8 * 7 / 8e3])


@given(st.integers(0, 12), st.booleans(), st.sampled_from([1, 8]))
def test_an_exchange_takes_longer_with_more_tokens_and_no_less_than_its_links_do(log, low_latency, top_k):
    exchanging = umm.machine("h100-8", kernels="sglang")
    width = exchanging.hears(range(8))[0]
    took = [exchange_seconds(exchanging, 2**x, 4096, top_k, 256, 8, low_latency) for x in (log, log + 1)]
    copies = top_k if low_latency else 8 * (1 - (7 / 8) ** top_k)
    assert took[0] < took[1]
    assert took[0] > 3 * 2**log * copies * 4096 * 7 / 8 / width


def test_a_memory_half_as_fast_reads_a_cache_in_twice_the_time():
    plain, slow = (umm.machine(f"h100-8 kernels=vllm{x}") for x in ("", " memory_bandwidth=x0.5"))
    seconds = [float(decode_seconds(x, "bfloat16", 512, 8192, 32, 8, 128, 128)) for x in (plain, slow)]
    assert seconds[1] / seconds[0] == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize(
    ("heads", "count", "shape"),
    [
        (Heads(128, 4, 1, 1536, False), 4, (4, 1, 128, 128)),
        (Heads(512, 128, 1, 1536, False, rotary=64, scaled=192, alike=True), 16, (16, 1, 576, 512)),
    ],
)
def test_a_token_of_each_sequence_goes_by_the_engines_kernel_of_tokens_in_chains_too(heads, count, shape):
    """16 sequences of 1,536 keys took 304 us by the kernel of prompts: each a tile of 128 queries; now 18."""
    node, latent = umm.machine("h200-8", kernels="sglang"), heads.alike
    took = attention_seconds(
        node, "bfloat16", heads, Interval(0, 16), count, Interval(0, 16 * 1536), backward=False
    )
    law = decode_seconds(node, "bfloat16", 16, 1536, *shape, latent=latent)
    assert law is not None
    assert took == pytest.approx(float(law), rel=1e-6)
    assert took < 2e-5

"""The cost of an action: hand-computed numbers, and the laws of a roofline."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umm.cost import (
    accumulate_bytes,
    gemm_seconds,
    grouped_seconds,
    load_seconds,
    local_accumulate_seconds,
    local_copy_seconds,
    refill_seconds,
    transfer_bytes,
)
from umm.errors import MachineError
from umm.machines.curves import MessageSizes
from umm.machines.files import machine, shipped_folder

H100 = machine(shipped_folder() / "h100-8.toml")
SIZES = st.integers(1, 50_000)


def test_a_large_gemm_takes_its_flop_over_peak():
    """2 · 8192³ flop at 72 % of 67 Tflop/s is 22.79 ms, after a launch of 3 us."""
    reached = 0.72 * 67e12
    assert gemm_seconds(H100, "float32", 8192, 8192, 8192, 4) == pytest.approx(3e-6 + 2 * 8192**3 / reached)


def test_a_thin_gemm_takes_its_bytes_over_memory_bandwidth():
    """m=1: A and B are read (4 · (k + kn) bytes), C is read and written (8n), at 3.35 TB/s."""
    nbytes = 4 * (4096 + 4096 * 8192) + 8 * 8192
    assert gemm_seconds(H100, "float32", 1, 8192, 4096, 4) == pytest.approx(3e-6 + nbytes / 3.35e12)


def test_half_precision_reads_two_bytes_and_writes_four():
    """A library's kernel: no launch but a start of 4.07 us, memory at the 3.16 TB/s that kernels reach."""
    nbytes = 2 * (4096 + 4096 * 8192) + 4 * 8192
    assert gemm_seconds(H100, "bfloat16", 1, 8192, 4096, 4) == pytest.approx(4.07e-6 + nbytes / 3.16e12)


def test_shapes_are_priced_all_at_once():
    m, n, k = np.array([1, 64, 8192]), 8192, np.array([4096, 64, 8192])
    one_by_one = [float(gemm_seconds(H100, "float32", a, n, b, 4)) for a, b in zip(m, k, strict=True)]
    assert gemm_seconds(H100, "float32", m, n, k, 4).tolist() == one_by_one


@given(SIZES, SIZES, SIZES)
def test_a_gemm_never_beats_its_peak_nor_its_memory(m, n, k):
    seconds = gemm_seconds(H100, "float32", m, n, k, 4) - H100.launch_s
    assert seconds * 67e12 >= 2 * m * n * k * (1 - 1e-6) - 1e3
    assert seconds * 3.35e12 >= 4 * (m * k + k * n + 2 * m * n) * (1 - 1e-6) - 1e3


@given(SIZES, SIZES, SIZES)
def test_swapping_m_and_n_changes_nothing(m, n, k):
    """C transposed is Bᵀ Aᵀ: the same flop and the same bytes."""
    assert gemm_seconds(H100, "float32", m, n, k, 4) == pytest.approx(
        gemm_seconds(H100, "float32", n, m, k, 4)
    )


def test_a_dtype_without_a_peak_is_refused():
    turing = machine(shipped_folder() / "frontera-rtx.toml")
    with pytest.raises(
        MachineError, match="no peak for bfloat16; choose a dtype from float64, float32, float16"
    ):
        gemm_seconds(turing, "bfloat16", 64, 64, 64, 4)


def test_an_accumulate_is_charged_its_payload_over_its_efficiency():
    """80 % of the copy engine's bandwidth: 1000 bytes are charged as 1250."""
    assert transfer_bytes(H100, [0, 1000, 1003]).tolist() == [0, 1000, 1003]
    assert accumulate_bytes(H100, [0, 1000, 1003]).tolist() == [0, 1250, 1254]
    assert accumulate_bytes(H100, 1000).dtype == np.int64


def test_work_inside_a_device_moves_its_payload_two_or_three_times():
    assert local_copy_seconds(H100, 3.35e9) == pytest.approx(2e-3)
    assert local_accumulate_seconds(H100, 3.35e9) == pytest.approx(3e-3)


def test_an_accumulate_into_some_of_a_tile_s_columns_may_be_slower():
    """Half as fast: 1000 bytes are charged twice the 1250, and inside a device they take twice as long."""
    slow = replace(H100, strided_accumulates=0.5)
    assert accumulate_bytes(slow, [1000, 1000], [False, True]).tolist() == [1250, 2500]
    assert local_accumulate_seconds(slow, 3.35e9, [False, True]) == pytest.approx([3e-3, 6e-3])
    assert accumulate_bytes(H100, 1000, True) == 1250


def test_gemms_load_again_what_transfers_drove_out_of_the_caches():
    """Of rank 0's gemms, 500 bytes in the mean, no transfer drives out more; rank 1 has none."""
    rank, gemm_rank = np.array([0, 0, 1]), np.array([0, 0])
    host = replace(H100, refill=100.0)
    assert refill_seconds(host, [200, 9000, 9000], rank, gemm_rank, [400, 600]).tolist() == [2.0, 5.0, 0.0]
    assert refill_seconds(H100, [200, 9000, 9000], rank, gemm_rank, [400, 600]) == 0.0


def test_gemms_load_what_they_are_the_first_to_use():
    assert load_seconds(replace(H100, refill=100.0), [0, 200]).tolist() == [0.0, 2.0]
    assert load_seconds(H100, [0, 200]) == 0.0


def test_what_is_in_a_cache_goes_as_fast_as_the_fastest_smaller_message():
    """64 bytes reach 4 GB/s, 512 half of that where they come from memory; 16 never more than 1 GB/s."""
    sizes = MessageSizes(np.array([4.0, 6.0, 9.0]), np.array([1e9, 4e9, 2e9]), 4e9)
    host = replace(H100, message_sizes=sizes)
    assert transfer_bytes(host, [16, 64, 512]).tolist() == [64, 64, 1024]
    assert transfer_bytes(host, [16, 64, 512], True).tolist() == [64, 64, 512]
    assert transfer_bytes(H100, 512, True) == 512
    faster = replace(host, message_sizes=replace(sizes, link=8e9, cached=8e9))
    assert transfer_bytes(faster, [8, 64, 512], True).tolist() == [64, 64, 512]


def test_work_inside_a_device_may_have_an_overhead():
    """50 us on every accumulate and copy beside its bytes, also where there are none."""
    slow = replace(H100, local_overhead_s=50e-6)
    assert local_copy_seconds(slow, [0.0, 3.35e9]) == pytest.approx([50e-6, 2.05e-3])
    assert local_accumulate_seconds(slow, 3.35e9) == pytest.approx(3.05e-3)


def test_weights_with_a_scale_for_each_block_come_from_memory_by_columns():
    """8 rows on 8K × 8K weights on H100: 29 µs, 27.5 for 67 MB at 2.44 TB/s; one scale: B is transposed."""
    types = ("float8_e4m3:128", "float8_e4m3")
    blocks, one = (1e6 * float(gemm_seconds(H100, x, 8, 8192, 8192, 2)) for x in types)
    assert blocks == pytest.approx(1.93 + 8192 * 8192 / 2.44e6, rel=0.02)
    assert one > 35


@pytest.mark.parametrize(("stored", "nbytes"), [("int8", 1.0), ("int4", 0.515625), ("float4_e2m1", 0.5625)])
def test_few_rows_take_the_bytes_of_weights_that_kernels_expand(stored, nbytes):
    """16 rows, 8K x 8K, H100: 2 bytes a weight take 44 us of 46.7; of many rows the arithmetic decides."""
    few, many = (
        [float(gemm_seconds(H100, x, m, 8192, 8192, 2)) for x in ("bfloat16", f"bfloat16x{stored}")]
        for m in (16, 8192)
    )
    rate = 2 * 8192**2 / (few[0] - H100.gemm_start("bfloat16"))
    assert few[1] == pytest.approx(H100.gemm_start("bfloat16") + nbytes * 8192**2 / rate, rel=0.12)
    assert 0.98 * many[0] < many[1] <= many[0]
    grouped = [
        float(grouped_seconds(H100, x, np.full(32, 16), 4096, 4096, 2).sum())
        for x in ("bfloat16", f"bfloat16x{stored}")
    ]
    assert 0.5 * nbytes < grouped[1] / grouped[0] < 0.5 * nbytes + 0.1


def test_weights_of_4_bit_floats_multiply_as_such_where_the_device_can():
    """B200 has a rate for them, H100 has not."""
    shape = 16384, 16384, 16384, 2
    mixed, native, plain = (
        float(gemm_seconds(machine("b200-8"), x, *shape))
        for x in ("bfloat16xfloat4_e2m1", "float4_e2m1", "bfloat16")
    )
    assert mixed == native < 0.5 * plain
    assert H100.multiplied("bfloat16xfloat4_e2m1") == "bfloat16"
    engine = machine("b200-8", kernels="trtllm")
    casts = [float(gemm_seconds(engine, x, 4096, 4096, 4096, 2, scheduled=True))
             for x in ("bfloat16xfloat4_e2m1", "float4_e2m1")]  # fmt: skip
    assert casts[0] > casts[1]  # which rounds A before

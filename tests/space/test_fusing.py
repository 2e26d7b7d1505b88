"""Whether to fuse: signs and sizes of published pairs, laws, and refusals."""

import json

import pytest
from command import umm
from hypothesis import given, settings
from hypothesis import strategies as st

from umm.cost import gemm_seconds
from umm.errors import InputError
from umm.machines import machine
from umm.machines.files import shipped_folder
from umm.machines.settings import with_settings
from umm.space.fusing import _unsplit, fusing


def shipped(name):
    return machine(shipped_folder() / f"{name}.toml")


@pytest.mark.parametrize(
    ("rows", "k", "unfused", "chunks", "triton"),
    [(128, 4096, 142, 277, 195), (256, 16384, 953, 1333, 1217), (512, 4096, 514, 456, 455)],
)
def test_chunks_lose_below_512_rows_a_rank_on_8_h100(rows, k, unfused, chunks, triton):
    """kraken pull request 2, bfloat16, n 6656 a rank, in microseconds."""
    result = fusing(shipped("h100-8"), 8 * rows, 8 * 6656, k)
    plain = result.way("unfused").seconds
    assert (result.way("ring in chunks").seconds < plain) == (chunks < unfused)
    assert (result.way("fused by a compiler").seconds < plain) == (triton < unfused)


@pytest.mark.parametrize(
    ("name", "what", "n", "k", "milli"),
    [
        ("l20-8", "all-gather", 49152, 12288, 5.903),
        ("a800-8", "all-gather", 49152, 12288, 2.469),
        ("a800-8", "reduce-scatter", 12288, 49152, 2.508),
        ("h800-8", "all-gather", 49152, 12288, 0.957),
        ("h800-8", "reduce-scatter", 12288, 49152, 0.932),
    ],
)
def test_flux_comes_out_within_a_tenth(name, what, n, k, milli):
    """Flux's performance report, m 4096, bfloat16."""
    result = fusing(shipped(name), 4096, n, k, what)
    assert result.way("fused by hand").seconds * 1e3 == pytest.approx(milli, rel=0.1)


def test_a_host_between_chunks_makes_them_lose_at_decode_sizes():
    """8-bit GEMM and reduce-scatter, k 7168, n 16384, m 32 to 384: 3 times slower, at 0.25 ms throughout."""
    for m in (32, 128, 384):
        result = fusing(shipped("b200-8"), m, 16384, 7168, "reduce-scatter", "fp8")
        assert result.way("ring in chunks").seconds == pytest.approx(0.25e-3, rel=0.15)
        assert result.way("ring in chunks").seconds > 2.5 * result.way("unfused").seconds


@pytest.mark.parametrize(
    ("dtype", "plain", "fused", "within"), [("bfloat16", 597.3, 652.4, 1.5), ("fp8", 809.8, 942.4, 1.5)]
)
def test_asynctp_saves_what_torchtitan_measured_in_a_layer_of_llama_3_70b(dtype, plain, fused, within):
    """Tokens/s a GPU on 256 H100, TP 8, all activations recomputed, 16 sequences of 8192 tokens.

    Published, 8192 tokens save 1.81 ms a layer in bfloat16 and 2.22 ms in 8 bits (scaled by tensor); 2.62 and
    1.62 ms by the ring in chunks. Source: torchtitan, benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md.
    """
    tokens, hidden, ffn, heads = 16 * 8192, 8192, 28672, (64 + 2 * 8) * 128
    forward = [
        ("all-gather", heads, hidden), ("reduce-scatter", hidden, hidden),
        ("all-gather", 2 * ffn, hidden), ("reduce-scatter", hidden, ffn),
    ]  # fmt: skip
    backward = [
        ("all-gather", ffn, hidden), ("reduce-scatter", hidden, 2 * ffn),
        ("all-gather", hidden, hidden), ("reduce-scatter", hidden, heads),
    ]  # fmt: skip
    saved = 0.0
    for what, n, k in [*forward, *forward, *backward]:
        result = fusing(shipped("h100-8"), tokens, n, k, what, dtype)
        saved += result.way("unfused").seconds - result.way("ring in chunks").seconds
    published = (1 / plain - 1 / fused) / 8 / 80 * tokens
    assert 1 / within < saved / published < within


@pytest.mark.parametrize("what", ["all-gather", "reduce-scatter"])
def test_slow_cards_bind_between_nodes(what):
    """Of two nodes a rank's card carries 8.4 MB, at 5 GB/s in 1.68 ms; links inside carry all in .31 ms."""
    n, k = (28672, 8192) if what == "all-gather" else (8192, 28672)
    quick = machine("h100-8", nodes=2)
    slow = with_settings(quick, {"fabric.network.card.bandwidth": "x0.1"})
    result, slower = fusing(quick, 8192, n, k, what), fusing(slow, 8192, n, k, what)
    assert all(way.seconds > max(1.68e-3, result.way(way.name).seconds) for way in slower.ways)
    took = [x.way("fused by a compiler").seconds for x in (result, slower)]
    assert took == pytest.approx([0.48e-3, 1.88e-3], rel=0.1)


def test_a_chunk_of_few_tiles_splits_k():
    """Two tiles of 256 x 256 x 8192 take 94 us on two units of 132, and 17 in a library that splits k."""
    result = fusing(shipped("dgx-h100x4"), 8192, 8192, 8192)
    assert result.way("one-sided").seconds == pytest.approx(32 * 17.1e-6, rel=0.05)


def test_only_stores_inside_a_node_are_scattered():
    """At 5 GB/s three shares of 4.2 MB take 2.52 ms by a card, stored or copied; 31 start in .09."""
    slow = with_settings(machine("h100-8", nodes=4), {"fabric.network.card.bandwidth": "x0.1"})
    result = fusing(slow, 8192, 8192, 8192, "reduce-scatter")
    assert result.way("fused by hand").seconds < 1.15 * result.way("fused by a compiler").seconds
    assert result.way("fused by hand").seconds == pytest.approx(2.7e-3, rel=0.1)


def test_a_mesh_is_pulled_from_by_all_its_links():
    """117 MB over seven links of 48 GB/s take .35 ms, which .76 of a multiply hide; two engines take 1.22."""
    result = fusing(shipped("mi300x-8"), 8192, 28672, 8192)
    assert result.way("fused by hand").seconds == pytest.approx(0.82e-3, rel=0.02)
    assert result.way("one-sided").seconds > 1.22e-3
    assert result.verdict.startswith("Fuse, fused by hand: 4")


def test_a_ring_of_neighbours_goes_both_ways():
    """15 shares of 8.4 MB by two links of 50 GB/s take 1.26 ms, which a multiply of 1.53 hides."""
    result = fusing(shipped("tpu-v5e-16"), 8192, 28672, 8192)
    assert result.way("one-sided").seconds - result.gemm_s == pytest.approx(1.26e-3 / 15, rel=0.02)


@settings(max_examples=10, deadline=None)
@given(
    st.integers(1, 64),
    st.integers(1, 64),
    st.integers(1, 64),
    st.sampled_from(["all-gather", "reduce-scatter", "all-reduce"]),
)
def test_no_way_is_faster_than_the_multiply_alone(m, n, k, what):
    result = fusing(shipped("h100-8"), 64 * m, 512 * n, 512 * k, what)
    assert all(way.seconds >= result.gemm_s and way.exposed_s >= 0 for way in result.ways)
    assert [way.seconds for way in result.ways] == sorted(way.seconds for way in result.ways)
    assert result.way("unfused").seconds == result.gemm_s + result.collective_s


@pytest.mark.parametrize("what", ["all-gather", "reduce-scatter", "all-reduce"])
def test_a_batch_is_one_kernel_and_one_collective(what):
    """16 multiplies of 64 rows take less together than apart, and move 16 times the bytes at once."""
    one, together = (fusing(shipped("h100-8"), 64, 4096, 4096, what, batch=x) for x in (1, 16))
    assert one.gemm_s < together.gemm_s < 16 * one.gemm_s
    assert one.collective_s < together.collective_s < 16 * one.collective_s
    assert all(way.seconds > one.way(way.name).seconds for way in together.ways)
    result = umm(
        "fuse", "-m", 64, "-n", 4096, "-k", 4096, "--dtype", "bf16", "--batch", 16, "--collective", what
    )
    assert f"{what} and 16 multiplies, m=64" in " ".join(result.stdout.split())


def test_sizes_that_ranks_do_not_share_and_other_collectives_are_refused():
    with pytest.raises(InputError, match="8 ranks do not share m = 1001 equally; choose a multiple of 8"):
        fusing(shipped("h100-8"), 1001, 4096, 4096)
    with pytest.raises(InputError, match="choose all-gather, reduce-scatter or all-reduce"):
        fusing(shipped("h100-8"), 1024, 4096, 4096, "broadcast")


def test_ranks_of_one_device_are_compared_too():
    asked = ("fuse", "--machine", "h200-1", "--ranks", "2", "-m64", "-n64", "-k64")
    assert umm(*asked).exit_code == 0


def test_the_command_prints_a_row_a_way_and_a_verdict():
    asked = ("fuse", "--machine", "h800-8", "-m", "8K", "-n", "28K", "-k", "8K", "--dtype", "bf16")
    lines = umm(*asked).stdout.splitlines()
    assert lines[-1].startswith(("Fuse", "Keep")) or lines[-2].startswith(("Fuse", "Keep"))
    result = json.loads(umm(*asked, "--json").stdout)
    assert {row["name"] for row in result["rows"]} >= {"unfused", "ring in chunks", "one-sided"}
    refused = umm("fuse", "-m", "8K")
    assert (refused.exit_code, "-n, -k missing; give m, n and k" in refused.stderr) == (2, True)


@pytest.mark.parametrize("name", ["a100-8", "a800-8", "l20-8", "mi300x-8", "pvc-12", "h100-8"])
def test_a_chunk_is_multiplied_on_machines_of_every_kind_of_law(name):
    """By kernels, by tiles, or of one rate: with one tile and all of k it takes no less time."""
    full = shipped(name)
    chunk = _unsplit(full, "float16")
    took = [float(gemm_seconds(x, "float16", 512, 8192, 8192, 2)) for x in (chunk, full)]
    assert took[0] >= 0.999 * took[1]


def test_a_sum_for_all_fuses_with_many_rows_and_not_with_a_decode_steps():
    """Qwen3-32B's second product on 8 H800: 2,048 rows gain by Triton-distributed, 0.476 ms an MLP for 0.601.

    Of 64 rows the kernel for small all-reduces takes 14 us; tiles that wait for stores take longer, as
    measured of reduce-scatters (pytorch 179770). Rows need not be divided by ranks.
    """
    many = fusing(shipped("h800-8"), 2048, 5120, 25600, "all-reduce")
    few = fusing(shipped("h100-8"), 63, 5120, 25600, "all-reduce")
    assert many.way("fused by a compiler").seconds < many.way("unfused").seconds
    assert few.ways[0].name == "unfused"
    half = fusing(shipped("h800-8"), 2048, 5120, 25600, "reduce-scatter")
    assert half.collective_s < many.collective_s
    assert half.way("fused by a compiler").seconds < many.way("fused by a compiler").seconds

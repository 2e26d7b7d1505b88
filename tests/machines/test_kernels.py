"""The kernels of a library: how tiles, waves, split k, a start and memory make up a GEMM."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_text import GOOD, SWITCH, error_of, write

from umm.cost import gemm_seconds
from umm.machines import machine
from umm.machines.files import shipped_folder
from umm.machines.kernels import Issue, Kernels
from umm.machines.rules import Rule

SIZES = st.integers(1, 20_000)
RULES = (Rule(tile="64x64", rows=64), Rule(tile="64x64", least_k=6400), Rule(tile="128x128"))
"""64 by 64 for few rows or a long k."""
KERNELS = st.builds(
    Kernels,
    units=st.integers(1, 150),
    tiles=st.sampled_from([((64, 64),), ((64, 64), (128, 256)), ((32, 256), (128, 128))]),
    splits=st.sampled_from([(1,), (1, 2, 16)]),
    rate=st.sampled_from([1e11, 5e12]),
    itemsize=st.sampled_from([1, 2, 4]),
    feed=st.sampled_from([2e10, 1e13]),
    start_s=st.sampled_from([0.0, 4e-6]),
    ramp_s=st.sampled_from([0.0, 1e-6]),
    store=st.just(2e10),
    memory=st.just(3e12),
    tail=st.floats(0, 1),
    overlap=st.floats(0, 1),
    alone=st.sampled_from([1.0, 1.5]),
    caution=st.sampled_from([0.9, 1.0, 1.3]),
    coarse=st.sampled_from([0, 128]),
    expected_feed=st.sampled_from([None, 5e11]),
    batched=st.sampled_from([0.8, 1.0]),
    cache=st.sampled_from([0, 50_000_000]),
    cached=st.sampled_from([1e12, 5e12]),
    l2=st.just(50_000_000),
    copies=st.sampled_from([0, 1, 5]),
    split_total=st.sampled_from([np.inf, 512.0]),
    split_rate=st.sampled_from([1.0, 1.4]),
    parts=st.sampled_from([None, 1e11]),
)
TEXT = """[devices.kernels]
source = "test"
units = 10
tiles = ["100x100"]
feed = "1000 TB/s"
start = "2 us"
ramp = "0 us"
store = "1000 TB/s"
memory = "1000 TB/s"
[[devices.efficiency]]
dtype = "float32"
source = "test"
value = 0.5
[devices.efficiency.kernels]
source = "test"
"""


def test_a_kernel_that_is_queued_takes_its_start_and_no_launch(tmp_path):
    """10 tiles on 10 units: 64 steps at half of 1 Tflop/s are 25.6 us, after a start of 2 us."""
    m = machine(write(tmp_path, GOOD + TEXT + SWITCH))
    took = float(gemm_seconds(m, "float32", 100, 1000, 64, 4))
    rate = m.peak("float32") * 0.5
    assert took == pytest.approx(2e-6 + 2 * 100 * 1000 * 64 / rate, rel=1e-3)
    assert m.gemm_start("float32") == 2e-6


def test_a_batch_shares_one_start_and_fills_waves_together(tmp_path):
    m = machine(write(tmp_path, GOOD + TEXT + SWITCH))
    alone, each = (float(gemm_seconds(m, "float32", 100, 100, 6400, 4, batch)) - 2e-6 for batch in (1, 10))
    assert alone == pytest.approx(10 * each)


@settings(deadline=None)
@given(KERNELS, SIZES, SIZES, SIZES, st.integers(1, 64), SIZES)
def test_no_shape_beats_the_roofline_of_its_k_or_of_a_longer_one(kernels, m, n, k, batch, more):
    """The bounds of a search rest on it: start, flop at the most of k, and bytes over memory."""
    took = float(kernels.seconds(m, n, k, batch, c_itemsize=4))
    flop = 2.0 * batch * m * n * k
    most = float(kernels.most(max(k, more))) * kernels.rate * kernels.units
    traffic = batch * ((m + n) * k * kernels.itemsize + 4.0 * m * n)
    assert took >= (kernels.start_s + max(flop / most, traffic / kernels.moves)) * (1 - 1e-12)


def test_shapes_cost_the_same_alone_and_in_any_company():
    kernels = machine(shipped_folder() / "h100-8.toml").kernels("bfloat16")
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 9000, size=(3, 50))
    together = kernels.seconds(*sizes, c_itemsize=2)
    alone = [float(kernels.seconds(*x, c_itemsize=2)) for x in sizes.T.tolist()]
    assert together.tolist() == alone


@pytest.mark.parametrize(
    ("name", "shape", "tflops"),
    [
        ("h100-8", (1024, 4096, 4096), 752),
        ("h100-8", (256, 4096, 512), 146),
        ("b200-8", (4096, 512, 1024), 491),
    ],
)
def test_rows_of_the_public_table_come_out(name, shape, tflops):
    """bfloat16 by XLA's table: from a few tiles over a short k to whole waves, within 12 %."""
    m, n, k = shape
    took = float(gemm_seconds(machine(shipped_folder() / f"{name}.toml"), "bfloat16", m, n, k, 2))
    assert 2e-12 * m * n * k / took == pytest.approx(tflops, rel=0.12)


@pytest.mark.parametrize(
    ("change", "result"),
    [
        (
            ('tiles = ["100x100"]', 'tiles = ["100"]'),
            "'100' is not a tile; write rows and columns like 128x256",
        ),
        (('start = "2 us"\n', ""), "the kernels of float32 lack start; state it in devices.kernels"),
        (("value = 0.5", "m = [1, 2]\nvalue = [[[0.5]], [[0.6]]]"), "kernels is for one number"),
        (('ramp = "0 us"', 'ramp = "0 us"\nsmall = "1 us"'), "small, small_volume, small_k belong together"),
        (('ramp = "0 us"', 'ramp = "0 us"\ncopies = 2'), "l2, copies, cached belong together"),
        (('ramp = "0 us"', 'ramp = "0 us"\nl2 = "50 MB"'), "in a cache; state cast or copies too"),
        (
            ('ramp = "0 us"', 'ramp = "0 us"\ncopies = 0'),
            "copies: input should be greater than or equal to 1",
        ),
        (
            ('dtype = "float32"', 'dtype = "float64"'),
            "kernels of float64 need its peak; state devices.peak.float64",
        ),
    ],
)
def test_kernels_that_cannot_be_are_refused_in_one_line(tmp_path, change, result):
    assert result in error_of(write(tmp_path, GOOD + TEXT.replace(*change) + SWITCH))


def test_kernels_differ_by_the_type_of_c_and_by_unlike_factors(tmp_path):
    """Half the rate with C in float32; of unlike factors a quarter; the start is one."""
    text = TEXT.replace('"float32"', '"float8"')
    text += '[devices.efficiency.kernels.wide]\nsource = "test"\nvalue = 0.25\n'
    text += '[devices.efficiency.kernels.unlike]\nsource = "test"\nvalue = 0.125\n'
    peak = "[devices.peak]\nfloat8 = { value = '2 Tflop/s', source = 'test' }\n"
    m = machine(write(tmp_path, GOOD.replace("[devices.peak]\n", peak) + text + SWITCH))
    narrow, wide, unlike = (
        float(gemm_seconds(m, dtype, 100, 1000, 6400, of_c)) - 2e-6
        for dtype, of_c in (("float8_e4m3", 2), ("float8_e4m3", 4), ("float8_e4m3xfloat8_e5m2", 2))
    )
    assert (wide / narrow, unlike / narrow) == (pytest.approx(2.0), pytest.approx(4.0))
    bad = text + 'start = "1 us"\n'
    path = write(tmp_path, GOOD.replace("[devices.peak]\n", peak) + bad + SWITCH, "bad.toml")
    assert "all kernels of a type have one start" in error_of(path)


def test_rows_alone_choose_the_tile_where_a_kernel_is_coarse():
    """129 rows of 64 columns are two tiles of 128 by 128, whose loads take twice those of 64 by 64."""
    both = {"tiles": ((64, 64), (128, 128)), "splits": (1,), "units": 4, "rate": 1e15, "itemsize": 1}
    rest = {"start_s": 0.0, "ramp_s": 0.0, "store": 1e15, "memory": 1e15, "feed": 1e10}
    coarse, chosen = Kernels(**both, **rest, coarse=128), Kernels(**both, **rest)
    few, many = (x.seconds([128, 129], 64, 4096, c_itemsize=2) for x in (coarse, chosen))
    assert few[0] == many[0]
    assert few[1] == pytest.approx(2 * many[1])


def test_units_are_faster_alone_up_to_what_all_reach_together():
    """Of 10 units, 5 run 1.5 times as fast, 8 as fast as 10 together, which run at their rate."""
    rest = {"rate": 1e12, "itemsize": 1, "feed": 1e15, "store": 1e15, "memory": 1e15, "alone": 1.5}
    kernels = Kernels(**rest, units=10, tiles=((64, 64),), start_s=0.0, ramp_s=0.0)
    took = kernels.seconds([5 * 64, 8 * 64, 10 * 64], 64, 6400, c_itemsize=2)
    tile = 2 * 64 * 64 * 6400 / 1e12
    assert took.tolist() == pytest.approx([tile / 1.5, tile * 0.8, tile], rel=1e-3)


def test_rules_choose_the_tile_by_rows_columns_and_k():
    """129 columns are 3 tiles of 64 for 64 rows, 6 for 65 of a long k, else 2 of 128 of twice the loads."""
    tiles = ((64, 64), (128, 128))
    rest = {"units": 1, "rate": 1e15, "itemsize": 1, "feed": 1e10, "store": 1e15, "memory": 1e15, "tail": 1.0}
    kernels = Kernels(**rest, tiles=tiles, start_s=0.0, ramp_s=0.0, rules=RULES)
    took = kernels.seconds([64, 65, 65, 65], [129, 129, 64, 129], [640, 640, 640, 6400], c_itemsize=2)
    load = 128 * 640 / 1e10  # of a tile of 64 by 64
    assert took.tolist() == pytest.approx([3 * load, 4 * load, 2 * load, 60 * load], rel=1e-5)


def test_a_rule_of_a_tile_that_kernels_lack_is_an_error(tmp_path):
    """A library takes only tiles that it has."""
    rules = "rules = [{ tile = '64x64', rows = 16 }, { tile = '100x100' }]\n"
    assert "64x64, which is not among tiles" in error_of(write(tmp_path, GOOD + TEXT + rules + SWITCH))


def test_rules_that_leave_a_shape_without_a_tile_are_an_error(tmp_path):
    """The last rule's tile was taken for all rows, whatever it says."""
    rules = "rules = [{ tile = '128x128', rows = 16 }]\n"
    text = error_of(write(tmp_path, GOOD + TEXT + rules + SWITCH))
    assert "the last of rules has to hold for all shapes" in text


@pytest.mark.parametrize(
    ("more", "result"),
    [
        ("coarse = 16\nrules = [{ tile = '100x100' }]\n", "coarse and rules both choose the tile"),
        ("coarse = 16\n", "needs another tile for fewer rows"),
        ("splits = [2, 4]\n", "splits of float32 lack 1"),
    ],
)
def test_numbers_that_leave_a_shape_without_a_kernel_are_an_error(tmp_path, more, result):
    """The first kernel was taken for such a shape."""
    text = "\n".join(x for x in TEXT.splitlines() if not x.startswith("splits")) + "\n"
    assert result in error_of(write(tmp_path, GOOD + text + more + SWITCH))


def test_kernels_with_rules_and_a_host_have_a_slower_pace():
    """At half of the rate, 10 tiles on one unit take twice as long; the host does not."""
    kernels = Kernels(
        units=1, tiles=((64, 64),), rate=1e12, itemsize=1, feed=1e15, store=1e15, memory=1e15, start_s=0.0,
        ramp_s=0.0, rules=(Rule(tile="64x64"),), issues=(Issue(time="90 us", unless=[64, 128]),),
    )  # fmt: skip
    fast, slow = (x.seconds([640, 1], [64, 1], 640, c_itemsize=2) for x in (kernels, kernels.paced(0.5, 1.0)))
    assert [slow[0] / fast[0], slow[1], fast[1]] == pytest.approx([2.0, 90e-6, 90e-6])


def test_k_is_split_only_where_it_is_long_and_c_small():
    kernels = Kernels(
        units=64, tiles=((64, 64),), splits=(1, 8), rate=1e12, itemsize=2, feed=1e14, start_s=0.0, ramp_s=0.0,
        store=1e14, memory=1e14, split_k=2048, split_area=64,
    )  # fmt: skip
    long, short, large = kernels.seconds([64, 64, 1024], [64, 64, 1024], [4096, 1024, 4096], c_itemsize=2)
    assert long == pytest.approx(64 * 64 * 4096 * 2 / 8 / 1e12, rel=1e-2)  # 8 units, an eighth of k each
    assert short == pytest.approx(64 * 64 * 1024 * 2 / 1e12, rel=1e-2)
    assert large == pytest.approx(4 * 64 * 64 * 4096 * 2 / 1e12, rel=1e-2)  # 256 tiles on 64 units


def test_hipblaslt_splits_k_by_the_size_of_a_whole_batch():
    """XLA's table, MI355X, k 2048: 2^19 elements of C take 7.7 us however shared, 2^20 take 16."""
    result = machine("mi355x-8")
    rows = ((1, 1024, 512, 7.9), (2, 256, 1024, 8.6), (1, 1024, 1024, 16), (4, 512, 512, 16))
    for batch, m, n, measured in rows:
        each = float(gemm_seconds(result, "bfloat16", m, n, 2048, 2, batch))
        start = result.gemm_start("bfloat16")
        assert start + batch * (each - start) == pytest.approx(measured * 1e-6, rel=0.15)


def test_kernels_that_split_k_may_be_faster_ones():
    """k of 1,024 in two parts on two units: 512 steps of a 64 x 64 tile at 1 Tflop/s are 4.19 us, or half."""
    common = {"units": 2, "tiles": ((64, 64),), "splits": (1, 2), "rate": 1e12, "itemsize": 4, "feed": 1e15}
    common |= {"start_s": 0.0, "ramp_s": 0.0, "store": 1e15, "memory": 1e15}
    for rate, us in ((1.0, 4.19), (2.0, 2.1)):
        kernels = Kernels(**common, split_rate=rate)
        assert float(kernels.seconds(64, 64, 1024, c_itemsize=4)) * 1e6 == pytest.approx(us, abs=0.01)

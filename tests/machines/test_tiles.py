"""The tiles of a GEMM kernel: how whole waves, a ramp over k and split k time a shape."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine_text import GOOD, SWITCH, error_of, write

from umm.cost import gemm_seconds
from umm.machines import machine
from umm.machines.curves import Tiles

SIZES = st.integers(1, 20_000)
TILES = st.builds(
    Tiles,
    rows=st.sampled_from([16, 128]),
    cols=st.sampled_from([16, 256]),
    units=st.integers(1, 150),
    ramp=st.integers(0, 1000),
    most_splits=st.sampled_from([1, 2, 16]),
    source=st.just("test"),
)
RATES = """[[devices.efficiency]]
dtype = "float32"
source = "test"
value = 0.5
[devices.efficiency.tiles]
rows = 100
cols = 100
units = 10
ramp = 0
source = "test"
"""


def test_a_tile_more_than_a_wave_takes_another(tmp_path):
    """10 tiles of 100 x 100 on 10 units take as long at 1 as at 10, at 11 as at 20."""
    m = machine(write(tmp_path, GOOD + RATES + SWITCH))
    columns = np.array([100, 1000, 1100, 2000])
    took = gemm_seconds(m, "float32", 100, columns, 100_000, 4) - m.launch_s
    assert took == pytest.approx(np.array([4e-3, 4e-3, 8e-3, 8e-3]))
    assert [fact.value for fact in m.facts if fact.key.endswith(".tiles")] == [
        "100 x 100, 10 at once, ramp 0"
    ]


def test_multiplies_of_a_batch_fill_a_wave_together(tmp_path):
    """One of a batch of ten takes a tenth of its time alone, on 10 units with a tile each."""
    m = machine(write(tmp_path, GOOD + RATES + SWITCH))
    alone, together = (
        float(gemm_seconds(m, "float32", 100, 100, 100_000, 4, batch)) - m.launch_s for batch in (1, 10)
    )
    assert alone == pytest.approx(10 * together)


@given(TILES, SIZES, SIZES, SIZES, st.integers(1, 64))
def test_no_shape_beats_endless_multiplies_nor_the_most_of_its_k(tiles, m, n, k, batch):
    share = float(tiles.share(m, n, k, batch))
    assert 0 < share <= float(tiles.most(k)) * (1 + 1e-12) <= 1 + 1e-12


@given(TILES, SIZES, SIZES, SIZES, SIZES)
def test_what_is_cut_out_of_a_multiply_never_beats_the_most_of_it(tiles, m, n, k, less):
    assert float(tiles.share(m, n, min(k, less))) <= float(tiles.most(k)) * (1 + 1e-12)


@given(TILES, SIZES, SIZES, SIZES)
def test_a_larger_multiply_never_takes_less(tiles, m, n, k):
    """Time is work over share: it grows with every side."""
    took = m * n * k / tiles.share(m, n, k)
    for more in ((m + 1, n, k), (m, n + 1, k), (m, n, k + 1)):
        assert float(np.prod(np.array(more, dtype=float)) / tiles.share(*more)) >= float(took) * (1 - 1e-12)


def test_tiles_beside_a_table_by_shape_are_refused(tmp_path):
    table = RATES.replace("value = 0.5", "m = [1, 2]\nvalue = [[[0.5]], [[0.6]]]")
    assert "tiles is for one number" in error_of(write(tmp_path, GOOD + table + SWITCH))

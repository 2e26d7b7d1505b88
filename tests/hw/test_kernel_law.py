"""Tiles and waves fitted to GEMMs of a GPU: the numbers that made them, and shapes nobody measured."""

from itertools import product

import numpy as np
import pytest

from umm.machines.kernels import Kernels
from umm_hw.calibrate.kernel_law import SPLITS, TILES, kernel_law

SHAPES = [*product((64, 256, 1024, 4096), repeat=3), (16384, 256, 1024), (1024, 16384, 256)]
OTHERS = [(128, 49152, 1536), (1024, 6144, 12288), (333, 777, 5000)]


def seconds(kernels, shapes):
    return kernels.seconds(*np.array(shapes, dtype=float).T, c_itemsize=4)


def test_a_law_is_found_again_and_holds_for_other_shapes():
    """132 units of 6 Tflop/s, fed with 115 GB/s each."""
    true = Kernels(
        units=132, tiles=TILES, splits=SPLITS, rate=6e12, itemsize=2, feed=1.15e11, start_s=4e-6, ramp_s=6e-7,
        store=2e10, memory=3.2e12, overlap=0.65, split_s=3e-7, reduce=2.9e12,
    )  # fmt: skip
    law = kernel_law(dict(zip(SHAPES, seconds(true, SHAPES).tolist(), strict=True)), 2, 4, 132)
    assert law.off < 0.03
    assert law.peak == pytest.approx(132 * 6e12, rel=0.03)
    assert seconds(law.kernels, OTHERS) == pytest.approx(seconds(true, OTHERS), rel=0.08)


def test_the_numbers_are_those_of_a_machine_file():
    times = {(m, n, k): 1e-5 + 2 * m * n * k / 1e14 for m, n, k in SHAPES}
    numbers = kernel_law(times, 4, 4, 100).numbers()
    assert set(numbers) == {"feed", "store", "memory", "reduce", "start", "ramp", "split", "overlap"}
    assert numbers["feed"].endswith(" GB/s")
    assert 0 < numbers["overlap"] < 1

"""The ways among which umm.torch.install chooses, in NumPy: each is the product; the cheapest is taken."""

from itertools import pairwise, product
from math import prod

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import umm
from umm.errors import InputError
from umm_hw.dtensor.ways import Costs, Curve, Step, cheapest, flop_and_elements, priced, target, ways

AXES = [(2,), (3,), (4,), (2, 2), (2, 3)]


def part(x, uses, axes, place):
    """The part of an array at a place of a mesh, cut as torch.chunk does."""
    for length, use, index in zip(axes, uses, place, strict=True):
        if isinstance(use, int):
            size = -(-x.shape[use] // length)
            x = np.take(x, range(x.shape[use])[index * size : (index + 1) * size], use)
    return x


@given(st.sampled_from(AXES), st.sampled_from([(), (4,)]), st.tuples(*[st.integers(1, 9)] * 3), st.randoms())
@settings(max_examples=examples(60))
def test_every_way_is_the_product(axes, batch, sizes, random):
    """The local products of all ranks, those of a sum added, are the parts of A·B; none has more flop."""
    m, n, k = sizes
    rng = np.random.default_rng(random.randrange(99))
    a, b = rng.integers(-9, 9, (*batch, m, k)), rng.integers(-9, 9, (*batch, k, n))
    for way in ways(axes, a.shape, b.shape, ("R",) * len(axes)):
        sums = {}
        for place in product(*map(range, axes)):
            left, right = (part(x, uses, axes, place) for x, uses in ((a, way.a), (b, way.b)))
            assert 2 * prod(left.shape) * right.shape[-1] <= flop_and_elements(axes, a.shape, b.shape, way)[0]
            apart = tuple(0 if use == "P" else i for use, i in zip(way.c, place, strict=True))
            sums[apart] = sums.get(apart, 0) + left @ right
        for place, local in sums.items():
            np.testing.assert_array_equal(local, part(a @ b, way.c, axes, place))


@given(st.sampled_from(AXES), st.data())
def test_a_product_is_complete_where_a_sum_would_cost_a_move(axes, data):
    """DTensor's complete results stay so; a sum stays open only where A and B need no communication."""
    uses = st.tuples(*[st.sampled_from([0, 1, "R"])] * len(axes))
    a, b = data.draw(uses), data.draw(uses)
    torchs = data.draw(st.tuples(*[st.sampled_from([0, 1, "R", "P"])] * len(axes)))
    for x, y, before, after in zip(a, b, torchs, target(a, b, torchs, 2), strict=True):
        if before != "P":
            assert after == before
        else:
            assert (after == "P") == (x in (1, "R") and y in (0, "R"))


@given(st.lists(st.tuples(st.integers(1, 10**9), st.floats(1e-6, 1)), min_size=1, unique_by=lambda x: x[0]))
def test_a_curve_meets_its_points_and_never_falls(points):
    sizes, seconds = sorted(x for x, _ in points), sorted(y for _, y in points)
    curve = Curve(tuple(map(float, sizes)), tuple(seconds))
    assert [curve.at(x) for x in sizes] == pytest.approx(seconds)
    between = [curve.at(x) for x in np.geomspace(sizes[0] / 2, sizes[-1] * 2, 50)]
    assert all(y <= z * (1 + 1e-9) for y, z in pairwise(between))


def moved(shapes, axes):
    """Steps on a line of ranks: a cut is gathered, a sum is scattered or added up."""

    def steps(name, uses):
        now, then = {"A": (0, uses[0]), "B": (0, uses[0]), "C": (uses[0], 0)}[name]
        kind = ">".join(x if isinstance(x, str) else f"S{x}" for x in (now, then))
        return [] if now == then else [Step(kind, axes[0], 1, 4 * prod(shapes[name]))]

    return steps


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ({"A": (8, 1024), "B": (1024, 1024), "C": (8, 1024)}, "split k"),
        ({"A": (1024, 1024), "B": (1024, 8), "C": (1024, 8)}, "gather B"),
    ],
)
def test_the_smallest_matrix_moves(shapes, expected):
    """A, B and C cut by rows on 4 ranks at 1 GB/s: a small A is cut anew and C summed, a small B gathered."""
    line = Curve((1.0, 1e9), (1e-9, 1.0))
    kinds = ("S0>R", "S0>S1", "P>S0", "R>S0", "S1>S0")
    costs = Costs(
        {(kind, 4, 1): line for kind in kinds}, Curve((1.0, 1e12), (1e-12, 1.0)), Curve((1.0,), (0.0,)), line
    )
    some = list(ways((4,), shapes["A"], shapes["B"], (0,)))
    seconds = priced(costs, (4,), shapes["A"], shapes["B"], 4, some, moved(shapes, (4,)))
    assert cheapest(seconds) == expected
    if expected == "gather B":  # 32 KiB gathered, 4 MF a rank at 1 TF/s
        assert seconds[expected] == pytest.approx(4 * 1024 * 8 / 1e9 + 2 * 256 * 1024 * 8 / 1e12)


def test_without_torch_a_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(InputError, match=r"needs PyTorch; pip install 'umm-sim\[torch\]'"):
        umm.torch.install()
    umm.torch.uninstall()

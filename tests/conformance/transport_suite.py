"""The duties of every transport: table 1's nine primitives equal a NumPy reference on random layouts.

The programs run once on every rank, wherever a transport has its ranks.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from conformance.executor_suite import laws
from examples import WHOLE, examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import layout_texts
from transport_programs import (
    accumulated,
    another_s_tile,
    brought_together,
    cleared,
    copies,
    hammered,
    indices,
    marked,
    passed_on,
    whole,
)

from umm import Interval, Layout
from umm.errors import InputError
from umm_hw.matrix import DTYPES
from umm_hw.transport import Transport

FACTORS = [
    (p, c) for p in (1, 2, 4, 6, 12) for c in range(1, p + 1) if p % c == 0 and (WHOLE or c in (1, 3, p))
]
few = settings(laws, max_examples=examples(6))
dtypes = st.sampled_from([x for x in DTYPES if not x.startswith("complex")])  # devices have none


@st.composite
def texts_and_shapes(draw, ranks, replicas):
    """A layout's text form and a shape it fits; either dimension may be smaller than the ranks."""
    shape = (draw(st.integers(1, 17)), draw(st.integers(1, 17)))
    return draw(layout_texts(shape, ranks, replicas)), shape


# Laws ---------------------------------------------------------------------------------------------


every_factor = pytest.mark.parametrize(("p", "c"), FACTORS)


class TransportConformance:
    """Inherit and override ``run_ranks``; ``most`` is how many ranks there are at most."""

    most = 12

    @pytest.fixture(autouse=True)
    def _as_many_ranks(self, request):
        parameters = getattr(request.node, "callspec", None)
        ranks = parameters.params.get("p", 1) if parameters else 1
        if ranks > self.most:
            pytest.skip(f"{ranks} ranks are more than {self.most}: make test-all")

    @pytest.fixture(scope="class")
    @classmethod
    def run_ranks(cls) -> Callable[[int, Callable[[Transport], Any]], list[Any]]:
        """A function that runs a program on p ranks and returns the result of each."""
        raise NotImplementedError

    @every_factor
    @few
    @given(data=st.data())
    def test_a_tile_is_a_view_that_all_ranks_see_change(self, run_ranks, p, c, data):
        text, shape = data.draw(texts_and_shapes(p, c))
        layout = Layout.parse(text, shape, p)
        for replicas in run_ranks(p, partial(marked, text=text, shape=shape, dtype="int32")):
            for replica, array in enumerate(replicas):
                for rank in range(p):
                    for tile in layout.tiles_of(rank) if layout.replica(rank) == replica else []:
                        rows, cols = layout.tile_bounds(tile)
                        assert np.all(array[rows.slice, cols.slice] == rank)

    @every_factor
    @few
    @given(data=st.data(), dtype=dtypes)
    def test_get_tile_copies_bit_for_bit_from_any_replica_now_or_later(self, run_ranks, p, c, data, dtype):
        """Without a replica it is the rank's own; the future has the same bits."""
        text, shape = data.draw(texts_and_shapes(p, c))
        layout = Layout.parse(text, shape, p)
        for nearest, result in run_ranks(p, partial(copies, text=text, shape=shape, dtype=dtype)):
            for (tile, replica), (now, later) in result.items():
                rows, cols = layout.tile_bounds(tile)
                expected = whole(shape, dtype, nearest if replica is None else replica)[
                    rows.slice, cols.slice
                ]
                assert now.dtype == later.dtype == expected.dtype
                assert now.tobytes() == later.tobytes() == expected.tobytes()

    @every_factor
    @few
    @given(data=st.data(), dtype=dtypes)
    def test_accumulates_of_all_ranks_sum_exactly_also_on_parts_of_tiles(self, run_ranks, p, c, data, dtype):
        """1 + 2 + … + p everywhere, and once more on the part of each tile that was drawn."""
        text, shape = data.draw(texts_and_shapes(p, c))
        layout = Layout.parse(text, shape, p)
        expected = np.full(shape, p * (p + 1) // 2, dtype)
        parts = []
        for tile in layout.overlapping_tiles(Interval(0, shape[0]), Interval(0, shape[1])):
            part = [
                Interval(*sorted(data.draw(st.tuples(*[st.integers(*bounds)] * 2))))
                for bounds in layout.tile_bounds(tile)
            ]
            expected[part[0].slice, part[1].slice] += p * (p + 1) // 2
            parts.append((tile, *part))
        program = partial(accumulated, text=text, shape=shape, dtype=dtype, parts=parts)
        for replicas in run_ranks(p, program):
            assert len(replicas) == c
            for array in replicas:
                assert np.array_equal(array, expected)

    @every_factor
    @few
    @given(data=st.data(), dtype=dtypes)
    def test_a_broadcast_makes_every_replica_the_origin(self, run_ranks, p, c, data, dtype):
        text, shape = data.draw(texts_and_shapes(p, c))
        origin = data.draw(st.integers(0, c - 1))
        program = partial(
            brought_together, text=text, shape=shape, dtype=dtype, method="broadcast_replica", origin=origin
        )
        for replicas in run_ranks(p, program):
            for array in replicas:
                assert np.array_equal(array, whole(shape, dtype, origin))

    @every_factor
    @few
    @given(data=st.data(), dtype=dtypes)
    def test_a_reduce_leaves_the_sum_in_the_origin_and_the_others_as_they_were(
        self, run_ranks, p, c, data, dtype
    ):
        text, shape = data.draw(texts_and_shapes(p, c))
        origin = data.draw(st.integers(0, c - 1))
        program = partial(
            brought_together, text=text, shape=shape, dtype=dtype, method="reduce_replicas", origin=origin
        )
        parts = [whole(shape, dtype, replica) for replica in range(c)]
        for replicas in run_ranks(p, program):
            for replica, array in enumerate(replicas):
                assert np.array_equal(array, sum(parts) if replica == origin else parts[replica])

    @every_factor
    @few
    @given(data=st.data())
    def test_the_tile_grid_partitions_the_matrix_and_overlaps_are_what_brute_force_finds(
        self, run_ranks, p, c, data
    ):
        text, shape = data.draw(texts_and_shapes(p, c))
        rows, cols = (Interval(*sorted(data.draw(st.tuples(*[st.integers(0, size)] * 2)))) for size in shape)
        for grid, bounds, overlapping in run_ranks(
            p, partial(indices, text=text, shape=shape, rows=rows, cols=cols)
        ):
            assert len(bounds) == grid[0] * grid[1]
            covered = np.zeros(shape, dtype=int)
            wanted = np.zeros(shape, dtype=bool)
            wanted[rows.slice, cols.slice] = True
            for tile_rows, tile_cols in bounds.values():
                covered[tile_rows.slice, tile_cols.slice] += 1
            assert np.all(covered == 1)
            assert overlapping == [
                tile for tile, (r, s) in sorted(bounds.items()) if wanted[r.slice, s.slice].any()
            ]

    @pytest.mark.parametrize("p", [1, 2, 8])
    def test_no_accumulate_is_lost_among_many_at_once(self, run_ranks, p):
        """p ranks add 1 to the same numbers 200 times each: 200 p."""
        for sums in run_ranks(p, partial(hammered, times=200)):
            assert np.all(sums == 200 * p)

    def test_a_put_changes_its_block_alone(self, run_ranks):
        """New memory is zero; rank 0's comes from rank 2 of 3."""
        expected = [[0, 0, 0, 0], [0, 0, 3, 3], [0, 0, 3, 3], [0, 0, 0, 0]]
        assert run_ranks(3, passed_on)[0].tolist() == expected

    def test_a_rank_clears_its_own_part_of_one_heap(self, run_ranks):
        assert run_ranks(2, cleared) == [[[[7, 7]], [[7, 7]]], [[[0, 0]], [[7, 7]]]]

    def test_a_view_of_another_rank_s_tile_is_refused(self, run_ranks):
        with pytest.raises(InputError, match=r"tile \(1, 0\) of replica 0 is held by rank 1, not by rank 0"):
            run_ranks(2, another_s_tile)

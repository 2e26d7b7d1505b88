"""Dependencies of a row, against a comparison of its accesses with those of all earlier rows."""

from contextlib import nullcontext
from itertools import combinations, pairwise

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import umm
from umm.interval import Interval
from umm.schedules.table.accesses import ADD, BARRIER, READ, WRITE, order_of
from umm.schedules.table.buffers import Slice, Slices
from umm.schedules.table.details import ACCUMULATE, GET, PUT
from umm.schedules.writer.builder import FEWEST_AT_ONCE, Builder, How

FIRST = 3  # owned tiles, then temporaries in two places
PLACES = [3, 4, 3, 3, 4]
SIDE = 12


def spans(most):
    """A range of rows or columns, of which a tile is cut into at most so many."""
    edges = st.lists(st.integers(0, most), min_size=2, max_size=2, unique=True).map(sorted)
    return edges.map(lambda x: Interval(*x))


def slices(buffers, most=SIDE):
    return st.builds(lambda x, rows, cols: Slice(x, 0, 0, rows, cols), buffers, spans(most), spans(most))


OWNED = st.integers(0, FIRST - 1)
HOW = st.sampled_from([READ, WRITE, ADD])
RANK = st.integers(0, 2)
TOUCHES = st.tuples(HOW, slices(OWNED))


def conflict(one, other):
    (how, first), (what, second) = one, other
    places = [x.buffer if x.buffer < FIRST else PLACES[x.buffer - FIRST] for x in (first, second)]
    if how == what != WRITE or places[0] != places[1]:
        return False
    if first.buffer != second.buffer:
        return True
    sides = ((first.rows, second.rows), (first.cols, second.cols))
    return all(x[0] < y[1] and y[0] < x[1] for x, y in sides)


def touched(how, pieces):
    """The accesses of an action, which reads all slices but its first."""
    return [(READ if number else how, piece) for number, piece in enumerate(pieces)]


def waits_of(order):
    """Return the dependencies of each row."""
    rows, count = order.size()
    offsets, after = np.empty(rows + 1, dtype=np.int64), np.empty(count, dtype=np.int64)
    order.fill(offsets, after)
    return [after[start:stop].tolist() for start, stop in pairwise(offsets)]


def assert_in_order(actions):
    """Every wait is for a conflict, and every conflict is in order, by itself or through others."""
    order = order_of(FIRST, False)
    order.hold(PLACES)
    for row, (how, pieces) in enumerate(actions):
        before = order.conflicts(how, pieces)
        assert order.add(0, False, how, pieces, ()) == row
        assert before == set(waits_of(order)[row])
    conflicts = {
        (x, y)
        for (x, one), (y, other) in combinations(enumerate(actions), 2)
        if any(conflict(a, b) for a in touched(*one) for b in touched(*other))
    }
    ancestors = []
    for row, waits in enumerate(waits_of(order)):
        assert {(x, row) for x in waits} <= conflicts
        ancestors.append(set(waits).union(*(ancestors[x] for x in waits)))
    assert all(x in ancestors[y] for x, y in conflicts)


@given(st.lists(st.tuples(HOW, st.lists(slices(OWNED), min_size=1, max_size=3).map(tuple)), max_size=14))
def test_conflicting_accesses_to_tiles_come_in_order(actions):
    assert_in_order(actions)


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(HOW, slices(st.just(0))), min_size=30, max_size=60))
def test_so_they_do_where_a_tile_is_touched_in_many_pieces(touches):
    """As of a copy that is gathered in hundreds: from 16 on they are looked up by their edges."""
    assert_in_order([(how, (piece,)) for how, piece in touches])


@given(st.lists(st.tuples(st.integers(FIRST, FIRST + 4), st.lists(TOUCHES, max_size=4)), max_size=6))
def test_and_where_one_buffer_after_another_is_in_a_slot(stays):
    """The first access of each buffer in a slot writes all of it, for its contents are undefined."""
    everything, actions = Interval(0, SIDE), []
    for buffer, stay in stays:
        actions.append((WRITE, (Slice(buffer, 0, 0, everything, everything),)))
        actions += [(how, (piece._replace(buffer=buffer),)) for how, piece in stay]
    assert_in_order(actions)


def test_a_slot_filled_again_and_again_is_waited_for_once():
    """1000 gets, each read by a gemm: a gemm waits for its get, a get for the gemm before it."""
    order = order_of(0, False)
    order.hold([0] * 1000)
    for action in range(2000):
        piece = Slice(action // 2, 0, 0, Interval(0, 4), Interval(0, 4))
        order.add(0, False, READ if action % 2 else WRITE, (piece,), ())
    assert waits_of(order) == [[], *([x] for x in range(1999))]


def test_a_tile_in_a_thousand_pieces():
    """1000 gets into pieces of a copy, a read after all, and 1000 gets, each after its first and the read."""
    copy = [Slice(FIRST, 0, 0, Interval(0, 8), Interval(x * 3, x * 3 + 3)) for x in range(1000)]
    everything = Slice(FIRST, 0, 0, Interval(0, 8), Interval(0, 3000))
    order = order_of(FIRST, False)
    order.hold(PLACES)
    for piece in [*copy, everything, *copy]:
        order.add(0, False, READ if piece is everything else WRITE, (piece,), ())
    assert waits_of(order) == [[] for _ in copy] + [[*range(1000)]] + [[x, 1000] for x in range(1000)]


def test_a_barrier_waits_for_what_none_waits_for_yet_and_all_after_for_it():
    """Rows 0 and 1 write a tile each, 2 reads the first; after barrier 3 a write of it waits for that."""
    tiles = [Slice(x, 0, 0, Interval(0, 4), Interval(0, 4)) for x in range(3)]
    order = order_of(FIRST, False)
    for how, tile in ((WRITE, tiles[0]), (WRITE, tiles[1]), (READ, tiles[0])):
        order.add(0, False, how, (tile,), ())
    assert order.barrier() == 3
    order.add(0, False, WRITE, (tiles[0],), ())
    order.add(0, False, READ, (tiles[0],), (2,))
    order.follow(1, [0])
    assert waits_of(order) == [[], [], [0], [1, 2], [3], [2, 4], [0, 3]]


def test_what_waits_for_another_rank_waits_for_its_signal():
    """Rank 1 copies rank 0's writes, late by the signal; a gemm of rank 2 sees both in a row of its own."""
    piece, other = (Slice(x, 0, 0, Interval(0, 4), Interval(0, 4)) for x in range(2))
    order = order_of(FIRST, True)
    assert order.add(0, True, WRITE, (piece,), ()) == 0
    assert order.add(1, False, WRITE, (other, piece), ()) == ~1
    assert order.add(1, True, READ, (other,), ()) == 2
    assert order.add(2, True, READ, (other, piece), ()) == ~4
    assert waits_of(order) == [[], [0], [1], [0, 1], [3]]
    assert order.computed(piece)
    assert not order.computed(other)


@settings(max_examples=examples(100))
@given(
    before=st.lists(TOUCHES, max_size=6),
    part=st.lists(st.tuples(RANK, HOW, st.lists(slices(OWNED), max_size=3).map(tuple)), max_size=6),
)
def test_a_part_waits_as_it_did_and_for_what_it_conflicts_with_before_it(before, part):
    """Each of its actions waits for the one before; the fourth is a barrier."""
    order, count = order_of(FIRST, False), len(part)
    for how, piece in before:
        order.add(0, False, how, (piece,), ())
    ways = [BARRIER if i == 3 else how for i, (_, how, _) in enumerate(part)]
    buffers, spans_ = np.full((count, 4), -1, dtype=np.int64), np.zeros((count, 4, 4), dtype=np.int64)
    for i, (_, _, pieces) in enumerate(part):
        for j, piece in enumerate(pieces if i != 3 else ()):
            buffers[i, j], spans_[i, j] = piece.buffer, (*piece.rows, *piece.cols)
    rows, late = np.zeros((2, count), dtype=np.int64)
    ranks, offsets = np.array([x[0] for x in part], dtype=np.int64), np.maximum(np.arange(-1, count), 0)
    earlier = [waits.copy() for waits in waits_of(order)]
    computes, after = np.zeros(count, dtype=np.int64), np.arange(max(count - 1, 0))
    order.append(ranks, np.array(ways, np.int64), computes, buffers, spans_, offsets, after, rows, late)
    assert rows.tolist() == [*range(len(before), len(before) + count)]
    assert not late.any()
    waits = waits_of(order)
    assert waits[: len(before)] == earlier
    for i, (way, (_, _, pieces)) in enumerate(zip(ways, part, strict=True)):
        row = len(before) + i
        assert [x for x in waits[row] if x >= len(before)] == [row - 1] * (i > 0)
        for x in waits[row]:
            assert x >= len(before) or any(conflict(before[x], y) for y in touched(way, pieces))


def columns(schedule):
    """Return all columns of a schedule, with the accesses of each action."""
    names = ("kind", "rank", "lane", "after_offsets", "after", "src", "dst", "seconds", "nbytes", "means_of")
    arrays = {name: getattr(schedule, name) for name in names}
    arrays |= {name: getattr(schedule.details, name) for name in ("op", "buffer", "rows", "cols")}
    lists = {name: None if column is None else column.tolist() for name, column in arrays.items()}
    return lists | {"lanes": schedule.lanes.names, "pools": [x.tolist() for x in schedule.pools]}


RANKS = 4
TRANSFERS = st.lists(
    st.tuples(
        st.sampled_from([GET, PUT, ACCUMULATE]),
        st.integers(0, RANKS - 1),
        st.integers(0, RANKS - 1),
        spans(8) | st.just(Interval(0, 0)),
        st.integers(0, 3),
    ),
    min_size=FEWEST_AT_ONCE,
    max_size=2 * FEWEST_AT_ONCE,
)
HOWS = [How(), How(lane="a"), How(lane="b", charge=2.0), How(means="copy_engine")]


@settings(max_examples=examples(100))
@given(transfers=TRANSFERS, collective=st.booleans(), start_s=st.sampled_from([0.0, 1e-6]))
def test_transfers_at_once_are_those_one_by_one(transfers, collective, start_s):
    """Between temporaries of four ranks, some empty, in a collective, which each rank starts once, or not."""
    problem = umm.Problem(m=RANKS, n=8, k=8, ranks=RANKS)
    written = []
    for at_once in (True, False):
        build = Builder("law", problem, umm.machine("h100-8"))
        room = [build.temporary(x, "C", Interval(0, 1), Interval(0, 8), slot=0) for x in range(RANKS)]
        ends = [[room[x].inner(Interval(0, 1), cols) for x in pair] for _, *pair, cols, _ in transfers]
        with build.collective(start_s) if collective else nullcontext():
            if at_once:
                source, into = (Slices.of(x) for x in zip(*ends, strict=True))
                kinds, hows = (np.array([x[i] for x in transfers]) for i in (0, 4))
                build.transfers(kinds, source, into, HOWS, hows)
            else:
                write = {GET: build.get, PUT: build.put, ACCUMULATE: build.accumulate}
                for (kind, *_, how), pair in zip(transfers, ends, strict=True):
                    write[kind](*pair, **HOWS[how])
        written.append(columns(build.schedule()))
    assert written[0] == written[1]


def test_what_cannot_be_is_refused():
    """A buffer that there is not, and a row that there is not, are errors, not memory of others."""
    order = order_of(FIRST, False)
    with pytest.raises(IndexError, match="no buffer 9"):
        order.add(0, True, WRITE, (Slice(9, 0, 0, Interval(0, 1), Interval(0, 1)),), ())
    with pytest.raises(IndexError, match="no row 7"):
        order.follow(0, [7])
    with pytest.raises(ValueError, match="another size"):
        order.fill(np.zeros(3, dtype=np.int64), np.zeros(1, dtype=np.int64))

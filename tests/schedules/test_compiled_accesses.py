"""What rows wait for in C against the same in Python: equal, row by row."""

import re
from contextlib import nullcontext

import numpy as np
import pytest
from compiled import compiled, text_of
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import umm
from umm.interval import Interval
from umm.plans.lower import lower
from umm.schedules.table import accesses
from umm.schedules.table.accesses import ADD, BARRIER, READ, WRITE, Order
from umm.schedules.table.buffers import Slice, Slices
from umm.schedules.table.details import ACCUMULATE, GET, PUT
from umm.schedules.writer.builder import FEW, Builder, How

FIRST = 3  # owned tiles, then temporaries in two places
PLACES = [3, 4, 3, 3, 4]
SIDE = 12


@pytest.fixture(scope="module")
def module():
    return compiled("_accesses")


def spans(most):
    """A range of rows or columns, of which a tile is cut into at most so many."""
    edges = st.lists(st.integers(0, most), min_size=2, max_size=2, unique=True).map(sorted)
    return edges.map(lambda x: Interval(*x))


def slices(most=SIDE):
    buffer = st.integers(0, FIRST + len(PLACES) - 1)
    return st.builds(lambda at, rows, cols: Slice(at, 0, 0, rows, cols), buffer, spans(most), spans(most))


PIECES = st.lists(slices(), max_size=3).map(tuple)
HOW = st.sampled_from([READ, WRITE, ADD])
RANK = st.integers(0, 2)
STEPS = st.one_of(
    st.tuples(st.just("add"), RANK, st.booleans(), HOW, PIECES, st.integers(0, 5)),
    st.tuples(st.just("conflicts"), HOW, PIECES),
    st.tuples(st.just("computed"), slices()),
    st.tuples(st.just("follow"), RANK, st.integers(0, 5)),
    st.tuples(st.just("barrier")),
    st.tuples(st.just("append"), st.lists(st.tuples(RANK, HOW, st.booleans(), PIECES), max_size=6)),
)


def append(order, actions):
    """Append a part of which each action waits for the one before, and the fourth is a barrier."""
    count = len(actions)
    ways = [BARRIER if i == 3 else how for i, (_, how, _, _) in enumerate(actions)]
    buffers, of = np.full((count, 4), -1, dtype=np.int64), np.zeros((count, 4, 4), dtype=np.int64)
    for i, (_, _, _, pieces) in enumerate(actions):
        for j, piece in enumerate(pieces if i != 3 else ()):
            buffers[i, j], of[i, j] = piece.buffer, (*piece.rows, *piece.cols)
    rows, late = np.zeros((2, count), dtype=np.int64)
    offsets = np.maximum(np.arange(-1, count), 0)
    ranks, computes = (np.array([x[i] for x in actions], dtype=np.int64) for i in (0, 2))
    after = np.arange(max(count - 1, 0))
    order.append(ranks, np.array(ways, dtype=np.int64), computes, buffers, of, offsets, after, rows, late)
    return rows.tolist(), late.tolist()


def played(order, steps):
    """Everything that an order answers to some steps, and what its rows wait for in the end."""
    order.hold(PLACES)
    said = []
    for what, *rest in steps:
        rows = order.size()[0]
        if what == "add":
            *given_, back = rest
            said.append(order.add(*given_, [None, *range(max(0, rows - back), rows, 2)]))
        elif what == "follow":
            rank, back = rest
            said.append(order.follow(rank, {*range(max(0, rows - back), rows)}))
        elif what == "append":
            said.append(append(order, *rest))
        else:
            said.append(getattr(order, what)(*rest))
    rows, waits = order.size()
    offsets, after = np.zeros(rows + 1, dtype=np.int64), np.zeros(waits, dtype=np.int64)
    order.fill(offsets, after)
    return said, offsets.tolist(), after.tolist()


@settings(max_examples=examples(200))
@given(steps=st.lists(STEPS, max_size=12), signals=st.booleans())
def test_every_row_waits_for_the_same(module, steps, signals):
    """Rows written one by one and parts, barriers, slots that are filled again, with and without signals."""
    assert played(module.order(FIRST, signals), steps) == played(Order(FIRST, signals), steps)


def test_a_tile_in_a_thousand_pieces_is_looked_up_alike(module):
    """1000 gets into pieces of one copy, a read of all, and 1000 more gets."""
    copy = [Slice(FIRST, 0, 0, Interval(0, 8), Interval(x * 3, x * 3 + 3)) for x in range(1000)]
    whole = Slice(FIRST, 0, 0, Interval(0, 8), Interval(0, 3000))
    steps = [("add", 0, False, WRITE, (x,), 0) for x in copy]
    steps += [("add", 0, True, WRITE, (Slice(0, 0, 0, Interval(0, 8), Interval(0, 8)), whole), 0), *steps]
    found, expected = (played(x, steps) for x in (module.order(FIRST, False), Order(FIRST, False)))
    assert found == expected
    assert found[1][1001] - found[1][1000] == 1000  # the read waits for every get


def columns(schedule):
    """All columns of a schedule, what each action touches included."""
    names = ("kind", "rank", "lane", "after_offsets", "after", "src", "dst", "seconds", "nbytes", "means_of")
    of = {name: getattr(schedule, name) for name in names}
    of |= {name: getattr(schedule.details, name) for name in ("op", "buffer", "rows", "cols")}
    found = {name: None if column is None else column.tolist() for name, column in of.items()}
    return found | {"lanes": schedule.lanes.names, "pools": [x.tolist() for x in schedule.pools]}


@pytest.mark.parametrize(
    ("machine", "ranks", "layouts", "movement"),
    [
        ("pvc-12", 8, "sequence", "flat"),
        ("pvc-12", 8, "sequence", "gathered"),
        ("dgx-h100x4", 32, "sequence", "gathered"),
        ("dgx-h100x4", 32, "megatron", "gathered"),
        ("dgx-h100x4", 32, "2d8x4", "gathered"),
    ],
)
def test_a_chain_is_lowered_alike(module, machine, ranks, layouts, movement, monkeypatch):
    """Forward and backward of an MLP on one node and on four: all columns of its schedule."""
    outline = umm.chain("mlp", hidden=64, ffn=256, tokens=96, backward=True)
    chain = outline.laid_out(outline.layouts_of(layouts, ranks), ranks)
    found = []
    for order in (module.order, None):
        monkeypatch.setattr(accesses, "order_in_c", order)
        found.append(columns(lower(chain, machine, movement=movement)))
    assert found[0] == found[1]


RANKS = 4
TRANSFERS = st.lists(
    st.tuples(
        st.sampled_from([GET, PUT, ACCUMULATE]),
        st.integers(0, RANKS - 1),
        st.integers(0, RANKS - 1),
        spans(8),
        st.integers(0, 3),
    ),
    min_size=FEW,
    max_size=2 * FEW,
)
HOWS = [How(), How(lane="a"), How(lane="b", charge=2.0), How(means="copy_engine")]


@settings(max_examples=examples(100))
@given(transfers=TRANSFERS, collective=st.booleans(), start_s=st.sampled_from([0.0, 1e-6]))
def test_transfers_at_once_are_those_one_by_one(module, transfers, collective, start_s):
    """Between temporaries of four ranks, in a collective, which each rank starts once, or in none."""
    problem = umm.Problem(m=RANKS, n=8, k=8, ranks=RANKS)
    found = []
    for at_once in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(accesses, "order_in_c", module.order)
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
        found.append(columns(build.schedule()))
    assert found[0] == found[1]


def test_what_cannot_be_is_refused(module):
    """A buffer that there is not, and a row that there is not, are errors, not memory of others."""
    order = module.order(FIRST, False)
    with pytest.raises(IndexError, match="no buffer 9"):
        order.add(0, True, WRITE, (Slice(9, 0, 0, Interval(0, 1), Interval(0, 1)),), ())
    with pytest.raises(IndexError, match="no row 7"):
        order.follow(0, [7])
    with pytest.raises(ValueError, match="another size"):
        order.fill(np.zeros(3, dtype=np.int64), np.zeros(1, dtype=np.int64))


def test_its_ways_of_access_are_those_of_the_reference():
    assert re.search(r"enum \{ READ, WRITE, ADD \}", text_of("_accesses"))
    assert (READ, WRITE, ADD, accesses.FEW) == (0, 1, 2, 16)

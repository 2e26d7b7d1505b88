"""The Builder's output: as few waits as its slices ask for, no empty actions, no forbidden ones."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from readable import MACHINE
from strategies import edge_texts

import umm
from umm.errors import ScheduleError
from umm.interval import Interval
from umm.layouts.layout import Layout
from umm.plans.collectives.way import parted
from umm.program import Chain
from umm.program.tensors import Tensor
from umm.schedules.races import races
from umm.schedules.rules.invariants import check
from umm.schedules.table.buffers import Slices
from umm.schedules.table.details import KINDS, LOCAL
from umm.schedules.writer.builder import Builder
from umm_hw.numpy.executor import NumpyExecutor
from umm_sim.executor import SimExecutor

NOTHING = Interval(0, 0)
WHOLE = "edges:0-2x0-4:1x1@2"  # each of two ranks has all of 2x4


def builder(ranks, machine=MACHINE, **tensors):
    """A Builder of tensors given as (rows, columns, layout, role)."""
    made = [
        Tensor(name, Layout.parse(layout, (rows, cols), ranks), "float64", role)
        for name, (rows, cols, layout, role) in tensors.items()
    ]
    given_ = tuple(tensor for tensor in made if tensor.role == "input")
    work = [tensor for tensor in made if tensor.role != "input"]
    return Builder("story", Chain("story", given_, (), ranks), machine, work)


def results(schedule, **operands):
    """The results of a checked schedule without races, in row order and in others alike."""
    check(schedule)
    assert races(schedule) == []
    first, *others = (
        NumpyExecutor(**order).run(schedule, operands).results
        for order in ({"order": "rows"}, {"order": "random", "seed": 1}, {"order": "random", "seed": 2})
    )
    for name, array in first.items():
        assert all(np.array_equal(array, other[name]) for other in others)
    return first


def kinds(schedule):
    return [KINDS[kind] for kind in schedule.kind]


def waits(schedule):
    return [schedule.after_of(action).tolist() for action in range(len(schedule))]


def test_the_first_gemm_to_read_an_own_a_loads_it():
    """128 bytes at 1 GB/s, once: the second multiply finds them in the caches."""
    took = []
    for machine in (MACHINE, replace(MACHINE, refill=1e9)):
        build = builder(1, machine, **{x: (4, 4, "row", "input" if x == "X" else "output") for x in "XYZ"})
        for x in "YZ":
            build.gemm(build.own(x, 0), build.own("X", 0), build.own("X", 0), beta=0.0)
        took.append(build.schedule().seconds)
    assert took[1] - took[0] == pytest.approx([128e-9, 0.0])


def ring_all_gather(ranks):
    """Every rank passes on its left neighbour's last piece, 8 rows of 8 columns each."""
    build = builder(ranks, X=(8 * ranks, 8, "row", "input"), Y=(8 * ranks, 8, f"row@{ranks}", "output"))
    into = [
        [build.own("Y", at, build.own("X", source).rows) for source in range(ranks)] for at in range(ranks)
    ]
    for rank in range(ranks):
        build.get(build.own("X", rank), into[rank][rank])
    for step in range(ranks - 1):
        for rank in range(ranks):
            origin, neighbour = (rank - step) % ranks, (rank + 1) % ranks
            build.put(into[rank][origin], into[neighbour][origin])
    return build.schedule()


def test_pieces_of_a_ring_all_gather_wait_only_for_themselves():
    """A put waits for the one that brought its piece, `ranks` rows before, and for nothing else."""
    schedule = ring_all_gather(4)
    assert waits(schedule)[:4] == [[], [], [], []]
    assert [dict(enumerate(row)) for row in waits(schedule)[4:8]] == [{0: 0}, {0: 1}, {0: 2}, {0: 3}]
    for row in range(8, 16):
        (before,) = waits(schedule)[row]
        assert 4 <= before == row - 4 - 1 + 4 * (row % 4 == 0)
    x = np.arange(256.0).reshape(32, 8)
    assert np.array_equal(results(schedule, X=x)["Y"], x)
    # A local copy of 512 bytes at 30 GB/s, twice; then three steps of 512 bytes at 1 GB/s, all ranks at once.
    assert SimExecutor().makespan(schedule) == pytest.approx((2 * 512 / 30 + 3 * 512) * 1e-9)


def test_a_slot_that_is_filled_again_waits_for_its_last_readers_alone():
    """50 tiles, two slots: a gemm waits for its get and the gemm before, a get for its slot's last gemm."""
    build = builder(
        2, X=(200, 4, "cyclic:2x4:2x1", "input"), Y=(2, 4, WHOLE, "output"), W=(4, 4, "row@2", "input")
    )
    tiles = [build.tile("X", i, 0) for i in range(1, 100, 2)]
    for step, tile in enumerate(tiles):
        room = build.temporary(0, "X", tile.rows, tile.cols, slot=step % 2)
        build.get(tile, room)
        build.gemm(build.own("Y", 0), room, build.own("W", 0))
    schedule = build.schedule()
    assert waits(schedule)[:4] == [[], [0], [], [1, 2]]
    assert waits(schedule)[4:] == [[row - 3] if row % 2 == 0 else [row - 2, row - 1] for row in range(4, 100)]
    x, w = np.arange(800.0).reshape(200, 4) % 7, np.eye(4)
    assert np.array_equal(results(schedule, X=x, W=w)["Y"], sum(x[i : i + 2] for i in range(2, 200, 4)))


def test_accumulates_into_one_tile_wait_for_each_other_never():
    """50 of each rank, then one read that waits for all, then 50 more that wait for it alone."""
    build = builder(2, X=(4, 4, "row", "input"), Y=(2, 4, WHOLE, "output"), Z=(2, 4, WHOLE, "output"))
    into = build.own("Y", 0)
    for _ in range(50):
        for rank in (0, 1):
            build.accumulate(build.own("X", rank), into)
    build.put(into, build.own("Z", 1))
    for _ in range(50):
        build.accumulate(build.own("X", 1), into)
    assert waits(build.schedule()) == [[]] * 100 + [list(range(100))] + [[100]] * 50


def test_a_barrier_waits_for_what_nothing_waits_for_and_all_later_work_for_it():
    build = builder(3, X=(6, 4, "row", "input"), Y=(6, 4, "row@3", "output"))
    for _ in range(3):
        for rank in range(3):
            build.wait(rank, 1e-6, after=[0] if rank == 2 else ())
        build.barrier()
    result = waits(build.schedule())
    assert result[3] == [1, 2]
    assert result[4:8] == [[3], [3], [0, 3], [4, 5, 6]]


def test_a_part_that_starts_with_a_barrier_comes_after_the_barrier_before_it():
    """Both put into one tile: the second would not wait for the first, for only barriers are between."""
    part, build = (builder(2, X=(4, 4, "row", "input"), Y=(2, 4, WHOLE, "output")) for _ in range(2))
    part.barrier()
    part.put(part.own("X", 1), part.own("Y", 0))
    build.put(build.own("X", 1), build.own("Y", 0))
    build.barrier()
    build.append(part.schedule(), {}, slots="part")
    assert waits(build.schedule()) == [[], [0], [1], [2]]
    assert races(build.schedule()) == []


@given(edge_texts(6), st.integers(1, 4), st.sampled_from([0.0, 1.0, 0.5]))
def test_sums_over_empty_tiles_are_right(edges, ranks, beta):
    """C = A B + beta C, tile by tile of k; the first clears or scales C even where it is empty."""
    parts = edges.count("-")
    build = builder(
        ranks,
        A=(3, 6, f"edges:0-3x{edges}:1x1@{ranks}", "input"),
        B=(6, 2, f"edges:{edges}x0-2:1x1@{ranks}", "input"),
        I=(3, 2, f"edges:0-3x0-2:1x1@{ranks}", "input"),
        C=(3, 2, f"edges:0-3x0-2:1x1@{ranks}", "output"),
    )
    for rank in range(ranks):
        tile = build.own("C", rank)
        build.get(build.own("I", rank), tile)
        for k in range(parts):
            a, b = build.tile("A", 0, k, rank), build.tile("B", k, 0, rank)
            build.gemm(tile, a, b, beta=1.0 if k else beta)
    schedule = build.schedule()
    a, b, c = (np.arange(m * n, dtype=float).reshape(m, n) for m, n in ((3, 6), (6, 2), (3, 2)))
    assert np.array_equal(results(schedule, A=a, B=b, I=c)["C"], a @ b + beta * c)


def test_what_is_empty_is_left_out_and_a_sum_of_nothing_is_zero():
    build = builder(1, X=(4, 6, "row", "input"), S=(4, 1, "row", "output"), Y=(4, 6, "row", "output"))
    x, s, y = (build.own(name, 0) for name in "XSY")
    empty = x._replace(cols=NOTHING)
    build.map("row_sum", s, x)
    build.map("row_sum", s.part(0, 2), empty.part(0, 2))
    assert build.get(empty, y._replace(cols=NOTHING)) is None
    assert build.map("relu", y._replace(rows=NOTHING), x._replace(rows=NOTHING)) is None
    assert build.gemm(y._replace(cols=NOTHING), x, empty) is None
    with pytest.raises(ScheduleError, match="relu of an empty slice has no value"):
        build.map("relu", y, empty)
    schedule = build.schedule()
    assert kinds(schedule) == ["map", "map"]
    assert results(schedule, X=np.ones((4, 6)))["S"].ravel().tolist() == [0, 0, 6, 6]


def test_a_schedule_has_as_many_functions_as_it_needs():
    """Rows of a mixture that move by themselves have one each: 128 ranks have more than 32,768."""
    build = builder(1, X=(1, 1, "row", "input"), Y=(1, 1, "row", "output"))
    for i in range(2**15 + 1):
        build.map("scale", build.own("Y", 0), build.own("X", 0), factor=float(i))
    schedule = build.schedule()
    assert len(schedule.functions) == 2**15 + 1
    assert schedule.details.fn.max() == 2**15


def test_what_cannot_be_done_is_refused_where_it_is_written():
    build = builder(2, X=(4, 4, "row", "input"), Y=(4, 4, "row", "output"), Z=(4, 4, "col", "output"))
    x, y, z = (build.own(name, 0) for name in "XYZ")
    with pytest.raises(ScheduleError, match="X is an input, so it is never written"):
        build.get(y, x)
    with pytest.raises(ScheduleError, match="a map of rank 0 cannot read X of rank 1; get it first"):
        build.map("relu", y, build.own("X", 1))
    with pytest.raises(
        ScheduleError, match=r"cannot move rows \(0, 2\) .* of Y to \(2, 4\) .* keep their places"
    ):
        build.put(y, build.own("Y", 1))
    with pytest.raises(ScheduleError, match=r"cannot move \(2, 4\) elements to \(4, 2\)"):
        build.put(y, z)


def test_a_schedule_stays_as_it_is_while_more_is_written():
    build = builder(2, X=(4, 4, "row", "input"))
    x = build.own("X", 1)
    build.get(x, build.temporary(0, "X", x.rows, x.cols))
    schedule = build.schedule()
    build.get(x, build.temporary(0, "X", x.rows, x.cols))
    assert (len(schedule), len(schedule.temporaries), schedule.pool_bytes.tolist()) == (1, 1, [64, 0])


def test_a_local_copy_waits_for_the_signal_of_another_rank():
    """Seeing it takes 10 ns; the copy of 64 bytes then 2 * 64 / 30 GB/s."""
    build = builder(
        2,
        replace(MACHINE, signal_s=10e-9),
        X=(4, 4, "row", "input"),
        Y=(2, 4, WHOLE, "output"),
        Z=(2, 4, WHOLE, "output"),
    )
    build.put(build.own("X", 1), build.own("Y", 0))
    build.get(build.own("Y", 0), build.own("Z", 0))
    assert build.schedule().seconds.tolist() == [0, pytest.approx((10 + 128 / 30) * 1e-9)]


def test_actions_become_columns_part_by_part(monkeypatch):
    """Three actions at a time or all at once: the same schedule, row by row."""
    chain = umm.chain("mlp", hidden=16, ffn=32, tokens=16, backward=True).laid_out("sequence", ranks=4)
    full = umm.schedule(chain, "h100-8", movement="gathered")
    monkeypatch.setattr("umm.schedules.writer.builder.MOST_OBJECTS", 3)
    parts = umm.schedule(chain, "h100-8", movement="gathered")
    assert len(parts) == len(full) > 30
    for name in ("kind", "rank", "lane", "src", "dst", "nbytes", "seconds", "after_offsets", "after"):
        assert (getattr(parts, name) == getattr(full, name)).all(), name
    assert (parts.details.buffer == full.details.buffer).all()


@pytest.mark.parametrize("ranks", [4, 2])
def test_gemms_at_once_are_those_one_by_one(ranks):
    """Of different ranks, after puts whose signals they wait for, and of one rank, each after the other."""
    signals = replace(umm.machine("h100-8"), signal_s=1e-6)

    def written(at_once):
        build = builder(
            ranks, signals, A=(8, 8, "row", "input"), B=(8, 8, "row", "input"), C=(8, 8, "row", "work")
        )
        room = [build.temporary(rank, "B", Interval(0, 8), Interval(0, 8)) for rank in range(ranks)]
        for into in room:
            for other in range(ranks):
                piece = build.own("B", other)
                build.put(piece, into.cut(piece.rows, piece.cols))
        pieces = [(build.own("C", x), build.own("A", x), room[x]) for x in range(ranks)] * (4 // ranks)
        beta = np.arange(len(pieces)) / 4
        if at_once:
            build.gemms(*(Slices.of(x) for x in zip(*pieces, strict=True)), beta, ["b"], 2.0)
        else:
            for factor, (c, a, b) in zip(beta.tolist(), pieces, strict=True):
                build.gemm(c, a, b, factor, ["b"], 2.0)
        return build.schedule()

    one, other = written(at_once=False), written(at_once=True)
    assert (one.kind == KINDS.index("local")).any()
    for column in ("kind", "rank", "lane", "after_offsets", "after", "seconds"):
        assert np.array_equal(getattr(one, column), getattr(other, column)), column
    for column in one.details.names():
        assert np.array_equal(getattr(one.details, column), getattr(other.details, column)), column


def test_of_several_tiles_of_a_rank_rows_say_which_is_meant():
    """Eight rows in four tiles over two ranks: rank 1 has rows 2 to 4 and 6 to 8."""
    build = builder(2, X=(8, 8, "cyclic:2x8:2x1", "input"))
    assert build.own("X", 1, Interval(6, 8)).rows == Interval(6, 8)
    with pytest.raises(ScheduleError, match="tiles"):
        build.own("X", 1)


def test_slices_are_the_same_where_buffer_and_ranges_all_are():
    spans = np.array([[0, 2, 0, 4], [0, 2, 0, 4], [0, 2, 0, 4]])
    one = Slices(*(np.zeros(3, dtype=np.int64) for _ in range(3)), spans)
    other = Slices(np.array([0, 0, 1]), one.rank, one.tensor, spans + np.array([[0], [1], [0]]))
    shifted = Slices(
        one.buffer, one.rank, one.tensor, spans + np.array([[0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]])
    )
    assert one.same(other).tolist() == [True, False, False]
    assert one.same(shifted).tolist() == [True, False, False]


def test_a_collective_within_another_waits_as_long_as_the_longer_of_both():
    build = builder(2, X=(2, 4, WHOLE, "input"), Y=(2, 4, WHOLE, "output"))
    with build.collective(1e-6), build.collective(5e-6):
        build.get(build.own("X", 1), build.own("Y", 0))
    schedule = build.schedule()
    assert set(schedule.seconds[schedule.kind == LOCAL].tolist()) == {5e-6}


@pytest.mark.parametrize("sides", [(4, 8), (3, 8), (5, 8), (3, 2), (1, 8)])
def test_many_slices_are_cut_as_a_single_one(sides):
    build = builder(1, X=(*sides, "row", "input"))
    one = build.own("X", 0)
    many = Slices(*(np.array([x]) for x in one[:3]), np.array([[*one.rows, *one.cols]]))
    for number in range(2):
        at = np.array([number])
        part = parted(one, number, 2)
        assert many.parts(at, at, 2).spans.tolist() == [[*part.rows, *part.cols]]

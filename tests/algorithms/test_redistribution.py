"""Redistribution between any two layouts: exact in every way, no byte twice, and the fastest way is found."""

import doctest
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from examples import examples
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from strategies import layout_texts

import umm
from umm import Layout
from umm.errors import LayoutError, ScheduleError
from umm.machines.settings import with_settings
from umm.plans.redistribution import relays
from umm.plans.redistribution.fastest import move
from umm.plans.redistribution.ways import program, ways_of
from umm.schedules.races import races
from umm.schedules.rules.invariants import check

MACHINE = umm.machine("dgx-h100x4")
ORDERS = ({"order": "rows"}, {"order": "random", "seed": 1}, {"order": "random", "seed": 2})
laws = settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@st.composite
def ends(draw, count=2, most=12):
    """Layouts of one matrix on as many ranks: any partition, replicas, uneven sizes, empty tiles."""
    ranks = draw(st.integers(1, most))
    shape = draw(st.integers(1, 20)), draw(st.integers(1, 20))
    return [Layout.parse(draw(layout_texts(shape, ranks)), shape, ranks) for _ in range(count)]


def parsed(*texts, size=64, ranks=8):
    return [Layout.parse(text, (size, size), ranks) for text in texts]


def far_bytes(schedule):
    """Bytes that go from a rank to another."""
    return int(schedule.payload[schedule.src != schedule.dst].sum())


def lacking(x, y):
    """Elements, over all ranks, that a rank shall own and does not hold: counted one by one."""

    def owned(layout):
        covered = np.zeros((layout.ranks, *layout.shape), dtype=bool)
        for rank in range(layout.ranks):
            for tile in layout.tiles_of(rank):
                rows, cols = layout.tile_bounds(tile)
                covered[rank, rows.start : rows.stop, cols.start : cols.stop] = True
        return covered

    return int((owned(y) & ~owned(x)).sum())


def assert_exact(schedule, executor="numpy", orders=ORDERS):
    """The elements are their own numbers; every replica of the result has them all in their places."""
    shape = schedule.tensors[0].shape
    matrix = np.arange(shape[0] * shape[1], dtype=schedule.tensors[0].dtype).reshape(shape)
    for order in orders:
        results = umm.run(schedule, executor=executor, operands=(matrix,), replica=None, **order).results
        (replicas,) = results.values()
        assert all(np.array_equal(replica, matrix) for replica in np.atleast_3d(replicas.T).T), order


@laws
@given(ends())
@example([Layout.parse("row@2:interleaved", (4, 1), 10), Layout.parse("row@2", (4, 1), 10)])
def test_every_way_is_exact_in_every_replica_and_moves_what_is_lacking(layouts):
    """Whole numbers come out where they went in, bit for bit, and no rank is sent a byte that it has."""
    x, y = layouts
    assume(x != y)
    for way in ways_of(program(x, y, "float64"), MACHINE):
        schedule = umm.redistribute(x, y, machine=MACHINE, dtype="float64", way=way)
        check(schedule)
        assert not races(schedule)
        assert far_bytes(schedule) == 8 * lacking(x, y), way
        assert_exact(schedule)


@laws
@given(ends(count=3, most=9))
def test_a_detour_never_saves_bytes(layouts):
    x, y, z = layouts
    direct, first, second = (
        far_bytes(umm.redistribute(*pair, machine=MACHINE)) for pair in ((x, z), (x, y), (y, z))
    )
    assert direct <= first + second


def test_a_detour_saves_no_time():
    """8 GPUs on a switch, large tiles: x → z within 1 % of x → y → z for the paper's 9 layouts, 729 times.

    A collective's start, which gets do not have, may come on top.
    """
    texts = ("row", "col", "2d", "row@2", "col@2", "2d@2", "row@4", "col@4", "row@8")
    layouts = parsed(*texts, size=16384)
    makespan = umm.executor.executor("sim").makespan
    took = {
        (x, y): makespan(umm.redistribute(x, y, machine="h100-8", makespan=makespan))
        for x in layouts
        for y in layouts
    }
    for x, y, z in ((x, y, z) for x in layouts for y in layouts for z in layouts):
        most = 1.01 * (took[x, y] + took[y, z]) + umm.machine("h100-8").collective_start_s
        assert took[x, z] <= most, (str(x), str(y), str(z))


@laws
@given(ends(count=1))
def test_the_same_layout_costs_nothing(layouts):
    (x,) = layouts
    schedule = umm.redistribute(x, x, machine=MACHINE)
    assert len(schedule) == 0
    assert umm.run(schedule).makespan_s == 0
    assert schedule.options["why"] == "the layouts are the same; nothing moves"
    assert_exact(schedule)


def test_what_a_rank_has_it_copies():
    """Dropping replicas, and from a full copy to any layout: nothing goes from a rank to another."""
    for before, after in (("row@8", "2d@2"), ("2d@8", "cyclic:3x5:2x4"), ("row@2", "row@2")):
        assert far_bytes(umm.redistribute(*parsed(before, after), machine=MACHINE)) == 0


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("h100-8", {}),
        ("h800-8", {}),
        ("a100-8", {"fabric.network.cards": "16"}),
        ("h100-8", {"fabric.network.card.bandwidth": "100 GB/s"}),
        ("mi300x-8", {}),
    ],
)
def test_a_faster_card_lengthens_no_gets(name, settings):
    """Ranks get from their own node where they can: 7 of 8 pieces at 374 GB/s on H100, whatever cards take.

    A card of 53.5 GB/s takes as long for one piece as NVLink for seven; by both, in turn, it was twice.
    """
    card = "fabric.network.card.bandwidth"
    start = float(settings.get(card, "50 GB/s").split()[0])
    for source in ("row@2x8:-r", "row@8x2:r-", "row@4x4:-r"):
        result = []
        for share in (0.5, 1, 1.06, 1.07, 1.25, 2, 4):
            machine = umm.machine(name, settings | {card: f"{start * share} GB/s"}, nodes=2)
            x, y = parsed(source, "row@16", size=2048, ranks=16)
            result.append(
                umm.run(umm.redistribute(x, y, machine=machine, way="gets"), executor="sim").makespan_s
            )
        assert result == sorted(result, reverse=True), (source, result)
        near = source == "row@2x8:-r"
        assert len(set(result)) == 1 or not near


def test_of_several_replicas_no_rank_gives_more_than_its_share():
    """Two replicas of column blocks to row blocks: each of 8 ranks gives 3 of the 24 pieces."""
    schedule = umm.redistribute(*parsed("col@2", "row"), machine="h100-8", way="gets")
    assert np.bincount(schedule.src[schedule.src != schedule.dst]).tolist() == [3] * 8


def test_pieces_come_from_the_own_node_where_it_has_them():
    """16 ranks in two nodes, each with a replica: none goes by the network cards."""
    schedule = umm.redistribute(*parsed("row@2", "col@2", ranks=16), machine=MACHINE, way="gets")
    assert np.array_equal(schedule.src // 8, schedule.dst // 8)


@pytest.mark.parametrize(
    ("machine", "ranks", "before", "after", "way"),
    [
        ("h100-8", 8, "row", "2d", "gets"),
        ("dgx-h100x4", 32, "row", "row@32", "hierarchical"),
        ("pvc-12", 12, "row", "row@12", "relays"),
        ("tpu-v5e-16", 16, "row", "row@16", "ring"),
        ("h100-8", 8, "edges:0-8192x0-8192:8x1", "row@8", "library"),
    ],
)
def test_the_fastest_way_is_found_and_why_it_is(machine, ranks, before, after, way):
    """Gets on a switch; by nodes, by relays on own links, round a mesh, by NCCL from one rank."""
    x, y = parsed(before, after, size=8192, ranks=ranks)
    schedule = umm.redistribute(x, y, machine=machine)
    seconds = {x[8:]: y for x, y in schedule.options.items() if x.startswith("seconds.")}
    assert schedule.name == way == next(iter(seconds))
    assert umm.run(schedule).makespan_s == min(seconds.values())
    assert schedule.options["why"].startswith(f"{way} ")
    assert umm.Schedule.from_json(schedule.to_json()).options == schedule.options


def test_what_cannot_be_is_refused_in_a_line_that_says_what_would_work():
    x, y = parsed("row", "col")
    with pytest.raises(ScheduleError, match="way 'wheel' is unknown; choose from gets, relays, "):
        umm.redistribute(x, y, machine=MACHINE, way="wheel")
    with pytest.raises(
        ScheduleError,
        match="ring cannot redistribute row to col: no rank lacks what another will have too; gets, rel",
    ):
        umm.redistribute(x, y, machine=MACHINE, way="ring")
    with pytest.raises(LayoutError, match=r"row is 64x64 on 8 ranks, col is 9x64 on 8 ranks; .* one shape"):
        umm.redistribute(x, Layout.parse("col", (9, 64), 8), machine=MACHINE)


def test_a_plan_of_relays_is_made_once_while_nothing_that_it_depends_on_changes(monkeypatch):
    """A machine with another latency has a plan of its own; one whose GEMMs start later has the same."""
    made, moves = [], relays._Plan.moves
    monkeypatch.setattr(relays._Plan, "moves", lambda plan: made.append(plan) or moves(plan))
    monkeypatch.setattr(relays, "_kept", {})
    x, y = parsed("row", "col@4")
    for setting in ({}, {"launch": "x2"}, {"fabric.latency": "x2"}, {}):
        changed = with_settings(MACHINE, setting)
        umm.redistribute(x, y, machine=changed, way="relays")
    assert len(made) == 2


@laws
@given(ends())
def test_parts_that_are_alike_are_looked_at_once_and_the_plan_is_the_same(layouts):
    """As when each part is looked at for itself."""
    plans, numbers = [], count()
    for alone in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if alone:
                patch.setattr(relays._Plan, "_kind_of", lambda *_: next(numbers))
            patch.setattr(relays, "_kept", {})
            plans.append(umm.redistribute(*layouts, machine=MACHINE, way="relays"))
    for column in ("kind", "rank", "lane", "src", "dst", "nbytes", "after"):
        assert (getattr(plans[0], column) == getattr(plans[1], column)).all()


def test_the_guide_says_what_happens():
    guide = Path(__file__).parents[2] / "docs/reference/redistribution.md"
    assert doctest.testfile(str(guide), module_relative=False) == (0, 11)


@pytest.mark.mpi
@pytest.mark.usefixtures("shared_ranks")
@pytest.mark.parametrize(("before", "after", "way"), [("col", "2d@2", "relays"), ("row", "row@4", "ring")])
def test_processes_redistribute(before, after, way):
    x, y = parsed(before, after, size=13, ranks=4)
    schedule = umm.redistribute(x, y, machine=MACHINE, dtype="float64", way=way)
    assert_exact(schedule, executor="mpi", orders=({},))


def test_of_two_replicas_one_that_is_incomplete_gives_nothing():
    """A sum that ends in replica 0 alone is moved from it alone, which takes longer than from both."""
    x, y = (Layout.parse(text, (4096, 4096), ranks=8) for text in ("row@2", "row@8"))
    machine = umm.machine("h100-8")
    assert move(x, y, machine, "float32", "reduce").seconds > 1.5 * move(x, y, machine, "float32").seconds

"""Races are found where two actions can touch the same memory at once, and nowhere else."""

from dataclasses import replace

import numpy as np
import pytest
from examples import examples
from hazards import after_more, conflicts_by_rule, idle, needed, unordered, unwritten_by_rule, without
from hypothesis import given, settings
from hypothesis import strategies as st
from problem_corpus import corpus
from programs import programs
from readable import MACHINE, READABLE, made

import umm
from umm.errors import ScheduleError
from umm.interval import Interval
from umm.layouts.layout import Layout
from umm.plans.multiply.policies import policy_names
from umm.program import Chain
from umm.program.tensors import Tensor
from umm.schedules.races import MOST_ACTIONS, races
from umm.schedules.rules.invariants import check, unwritten
from umm.schedules.writer.builder import Builder

CORPUS = corpus(200)
SMALL = [case for case in CORPUS if case[0].m * case[0].n * case[0].k < 100_000]


def pairs(schedule):
    return {(race.earlier, race.later) for race in races(schedule)}


def scheduled(case, policy):
    problem, machine, stationary, options = case
    return umm.schedule(problem, machine, stationary=stationary, policy=policy, **options)


@settings(max_examples=examples(100))
@given(programs(), st.data())
def test_races_are_those_of_comparing_every_pair(schedule, data):
    """Dependencies are dropped and added: the pairs found do race, and in order they leave no other race."""
    count = len(schedule)
    kept = data.draw(st.lists(st.sampled_from([True, True, True, False]), min_size=4, max_size=40))
    more = [(x % y, y) for x, y in data.draw(st.lists(EDGES, max_size=10)) if 0 < y < count]
    keeps = np.resize(kept, len(schedule.after))
    offsets = np.concatenate(([0], keeps.cumsum()))[schedule.after_offsets]
    broken = after_more(replace(schedule, after=schedule.after[keeps], after_offsets=offsets), more)
    conflicts = conflicts_by_rule(schedule)
    result = pairs(broken)
    assert result <= unordered(broken, conflicts)
    assert not unordered(after_more(broken, result), conflicts)


EDGES = st.tuples(st.integers(0, 100), st.integers(0, 60))


@settings(max_examples=examples(100))
@given(programs())
def test_what_the_builder_writes_has_no_race(schedule):
    check(schedule)
    assert races(schedule) == []


@settings(max_examples=examples(40))
@given(programs(most=12, signals=(False,), fences=False))
def test_every_dependency_of_the_builder_is_needed(schedule):
    """Each orders two actions on the same memory, and those that others do not imply are missed at once."""
    conflicts = conflicts_by_rule(schedule)
    assert set(zip(schedule.after.tolist(), schedule.waiting.tolist(), strict=True)) <= conflicts
    for action, dependency in needed(schedule):
        assert (dependency, action) in pairs(without(schedule, action, dependency))


@pytest.mark.parametrize("name", READABLE)
def test_readable_schedules_race_only_without_a_dependency(name):
    schedule = made(name)
    assert races(schedule) == []
    conflicts = conflicts_by_rule(schedule)
    for action, dependency in needed(schedule):
        broken = without(schedule, action, dependency)
        assert bool(races(broken)) == bool(unordered(broken, conflicts))


def test_direct_schedules_have_no_race():
    for case in CORPUS:
        assert races(scheduled(case, "direct")) == []


@pytest.mark.parametrize("policy", policy_names())
def test_every_planted_race_is_found(policy):
    """One dependency is taken away at a time; some only limit how far ahead a rank runs."""
    planted = 0
    for case in [x for x in SMALL if len(scheduled(x, policy)) < 50][:8]:
        schedule = scheduled(case, policy)
        assert races(schedule) == []
        conflicts = conflicts_by_rule(schedule)
        for action, dependency in needed(schedule):
            broken = without(schedule, action, dependency)
            wrong = unordered(broken, conflicts)
            planted += bool(wrong)
            assert bool(races(broken)) == bool(wrong)
    assert planted > 100


def builder(**layouts):
    """A Builder over two ranks, its tensors 8x8."""
    tensors = [Tensor(name, Layout.parse(text, (8, 8), 2), "float32") for name, text in layouts.items()]
    return Builder("story", Chain("story", tuple(tensors), (), 2), MACHINE)


def undone(schedule):
    """The schedule in which nothing waits for anything."""
    return replace(schedule, after=schedule.after[:0], after_offsets=np.zeros_like(schedule.after_offsets))


def told(schedule):
    return [str(race) for race in races(schedule)]


def test_a_race_says_who_does_what_to_which_memory():
    """Rank 1 puts A's lower half into rank 0's C, adds to a part of it; rank 0 multiplies into all of it."""
    build = builder(A="row", C="row")
    target, source = build.own("C", 0), build.own("A", 1)
    build.put(source, target)
    build.accumulate(source.part(1, 2), target.part(1, 2))
    build.gemm(target, build.own("A", 0).part(0, 2, axis=1), build.own("A", 0))
    schedule = build.schedule()
    assert told(schedule) == []
    assert told(undone(schedule)) == [
        "action 1 (accumulate of rank 1) adds to C[2:4,0:8] while action 0 (put of rank 1) writes C[0:4,0:8]",
        "action 2 (gemm of rank 0) writes C[0:4,0:8] while action 0 (put of rank 1) writes it",
        "action 2 (gemm of rank 0) writes C[0:4,0:8] "
        "while action 1 (accumulate of rank 1) adds to C[2:4,0:8]",
    ]


def test_two_pieces_in_one_slot_race_though_their_tensors_differ():
    build = builder(A="row", C="row")
    for name in "AC":
        tile = build.own(name, 1)
        build.get(tile, build.temporary(0, name, tile.rows, tile.cols, slot="room"))
    assert told(undone(build.schedule())) == [
        "action 1 (get of rank 0) writes s0:C[4:8,0:8] while action 0 (get of rank 0) writes s0:A[4:8,0:8]"
    ]


def test_what_others_order_is_in_order():
    """Two puts into one tile, ten fences and a barrier between."""
    build = builder(A="row", C="row")
    build.put(build.own("A", 1), build.own("C", 0))
    for rank in (0, 1) * 5:
        build.wait(rank, 1e-6)
    build.barrier()
    build.put(build.own("A", 1), build.own("C", 0))
    assert told(build.schedule()) == []
    assert pairs(without(build.schedule(), 11, 0)) == {(0, 12)}


def test_two_adds_and_two_reads_do_not_race():
    build = builder(A="row", C="row")
    for rank in (0, 1):
        build.accumulate(build.own("A", rank), build.own("C", 0))
    assert len(build.schedule().after) == 0
    assert told(build.schedule()) == []


def test_what_is_read_or_added_to_must_be_there():
    """A tile is zero before the run; a temporary is nothing."""
    build = builder(A="row", C="row")
    tile = build.own("C", 1)
    room = [build.temporary(0, "C", tile.rows, tile.cols) for _ in range(2)]
    build.accumulate(build.own("A", 1), build.own("C", 1))
    build.accumulate(build.own("A", 1), room[0])
    build.get(build.own("A", 0).part(0, 2), room[1].part(0, 2))
    build.put(room[1], build.own("C", 1))
    assert told(build.schedule()) == [
        "action 1 (accumulate of rank 1) adds to s0:C[4:8,0:8], which no action before has written",
        "action 3 (put of rank 0) reads s1:C[4:8,0:8], which no action before has written",
    ]


@pytest.mark.parametrize(
    ("rows", "cols", "legal"),
    [
        ((5, 7), (2, 6), True),
        ((4, 7), (2, 6), False),
        ((5, 8), (2, 6), False),
        ((5, 7), (1, 6), False),
        ((5, 7), (2, 7), False),
    ],
)
def test_of_a_temporary_no_more_may_be_read_than_was_written(rows, cols, legal):
    """Rows 5 to 7 of columns 2 to 6 are; a row or a column more on each side is not."""
    build = builder(A="row", C="row")
    tile, output = build.own("A", 1), build.own("C", 1)
    room = build.temporary(0, "A", tile.rows, tile.cols)
    build.get(tile.cut(Interval(5, 7), Interval(2, 6)), room.cut(Interval(5, 7), Interval(2, 6)))
    build.put(room.cut(Interval(*rows), Interval(*cols)), output.cut(Interval(*rows), Interval(*cols)))
    assert (unwritten(build.schedule()) == []) == legal


@settings(max_examples=examples(100))
@given(programs().filter(len), st.data())
def test_what_is_read_of_a_temporary_was_written_before_element_by_element(schedule, data):
    """With one action's part left out, so that something may be missing."""
    broken = idle(schedule, data.draw(st.integers(0, len(schedule) - 1)))
    assert {race.later for race in races(broken) if race.earlier is None} == unwritten_by_rule(broken)


def test_a_schedule_too_long_to_look_through_is_refused():
    build = builder(A="row")
    build.wait(0, 1.0)
    one = build.schedule()
    many = MOST_ACTIONS + 1
    long = replace(one, **{x: np.repeat(getattr(one, x), many) for x in ("kind", "rank", "lane")})
    with pytest.raises(ScheduleError, match=r"in at most 100,000 actions; this schedule has 100,001"):
        races(long)

"""The player in C against the reference: the same start and finish of every action, to the last bit."""

from dataclasses import replace

import numpy as np
import pytest
from compiled import compiled, text_of
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import programs
from strategies import finals, offsets, problems, stationaries

import umm
from umm.errors import ScheduleError
from umm.schedules.table.details import BARRIER, GET, LOCAL
from umm.schedules.table.table import Means
from umm_sim import simulation


@pytest.fixture(scope="module")
def play():
    return compiled("_player").play


def assert_same(schedule, play):
    expected, found = simulation.interpreted(schedule), simulation.compiled(schedule, play)
    assert [x.tobytes() for x in found] == [x.tobytes() for x in expected]


@pytest.mark.parametrize("name", ["pvc-12", "pvc-12-planes", "h100-8", "dgx-h100x4", "localhost", "h200-1"])
@settings(max_examples=examples(15))
@given(data=st.data())
def test_the_player_in_c_plays_to_the_last_bit(name, play, data):
    """Own links, shared links, shared engines, work that transfers slow down."""
    machine = umm.machine(name)
    dtype = data.draw(st.sampled_from(sorted(machine.peaks)))
    schedule = umm.schedule(
        data.draw(problems(max_ranks=min(machine.default_ranks, 16), dtype=dtype)),
        machine,
        stationary=data.draw(stationaries),
        offset=data.draw(offsets),
        final=data.draw(finals),
        prefetch=data.draw(st.integers(0, 3)),
        max_accumulates=data.draw(st.integers(1, 3)),
    )
    assert_same(schedule, play)


@settings(max_examples=examples(30))
@given(schedule=programs(24))
def test_so_it_does_any_program(play, schedule):
    """Maps, copies within a rank on engines, means, waits and barriers, several ranks on a device."""
    assert_same(schedule, play)


@pytest.mark.parametrize("algorithm", ["cannon", "summa", "dtensor", "cosma", "ring", "2.5d"])
def test_and_algorithms(play, algorithm):
    problem = umm.Problem(m=96, n=60, k=84, a="2d", b="2d", c="2d", ranks=16)
    assert_same(umm.schedule(problem, "dgx-h100x4", algorithm=algorithm), play)


def test_means_take_their_own_share(play):
    """A transfer by another means costs its rank's gemms more than its kind says."""
    problem = umm.Problem(m=512, n=512, k=512, a="row", b="col", c="2d", ranks=8)
    schedule = umm.schedule(problem, "h100-8", prefetch=4)
    means = (Means("kernel", 0.4), Means("copy_engine", 0.0))
    of = (np.arange(len(schedule)) % 3 - 1).astype(np.int8)
    changed = replace(schedule, means=means, means_of=of)
    assert_same(changed, play)
    slower, usual = (simulation.compiled(x, play)[1].max() for x in (changed, schedule))
    assert slower > usual


def test_what_waits_for_itself_never_finishes(play):
    """A get that waits for the gemm that reads it is named; numbers outside the tables are refused."""
    problem = umm.Problem(m=64, n=64, k=64, a="row", b="row", c="row", ranks=8)
    schedule = umm.schedule(problem, "h100-8", prefetch=0, max_gemms=1)
    get = int(schedule.waiting[schedule.kind[schedule.waiting] == GET][0])
    reader = int(schedule.waiting[schedule.after == get][0])
    after = schedule.after.copy()
    after[schedule.after_offsets[get]] = reader
    for player in (simulation.interpreted, lambda x: simulation.compiled(x, play)):
        with pytest.raises(ScheduleError, match=f"action {get} never finishes"):
            player(replace(schedule, after=after))
    after[0] = len(schedule)
    with pytest.raises(ValueError, match="do not belong together"):
        simulation.compiled(replace(schedule, after=after), play)


def test_its_numbers_of_kinds_are_the_table_s():
    assert f"LOCAL = {LOCAL}, BARRIER = {BARRIER}" in text_of("_player")

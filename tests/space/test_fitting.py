"""Assignments that fit a memory limit: found, proven not to exist, or stated as unknown."""

import re

import pytest

from umm.errors import InfeasibleError
from umm.machines import machine
from umm.program.presets import chain
from umm.space import Space, search
from umm.space.pricing.multiplies import pricer_of
from umm.space.search import fitting
from umm.space.search import search as searching

RING = machine("pvc-12")
SPACE = Space(
    chain=chain("mlp", backward=True, tokens=48, hidden=64, ffn=128), ranks=12, layouts=("col", "2d")
)


@pytest.fixture(autouse=True)
def _near_a_bound(monkeypatch):
    """Let a space of 32 assignments be searched as those of more than 100,000 are."""
    monkeypatch.setattr(searching, "MAX_LISTED", 0)


@pytest.fixture(scope="module")
def memory():
    """The bytes on the fullest rank of every assignment that has less than another, by its tensors' bytes."""
    pricer = pricer_of(SPACE.searched.on(12).over(RING), RING, None)
    places = [pricer.points.at(number) for number in range(pricer.points.count)]
    return {place: (pricer.tables.memory(place), pricer.memory(place)) for place in places}


def test_the_smallest_limit_that_an_assignment_meets_exactly_is_met(memory):
    least = min(fullest for _, fullest in memory.values())
    assert search(SPACE, RING, memory=least).top[0].memory_bytes == least


def test_a_limit_below_all_schedules_is_refused_though_the_tensors_of_some_fit(memory):
    least = min(fullest for _, fullest in memory.values())
    assert min(tensors for tensors, _ in memory.values()) < least
    with pytest.raises(InfeasibleError, match="no layouts of chain mlp fit"):
        search(SPACE, RING, memory=least - 1)


def test_where_not_all_that_may_fit_were_tried_nothing_is_proven(memory, monkeypatch):
    monkeypatch.setattr(fitting, "STAGE_WORK", 0)
    least = min(fullest for _, fullest in memory.values())
    with pytest.raises(InfeasibleError, match="not all of 32 were tried") as caught:
        search(SPACE, RING, memory=least - 1)
    enough = int(re.search(r"(\d+)B", str(caught.value))[1])
    assert search(SPACE, RING, memory=enough).top[0].memory_bytes <= enough


def test_assignments_come_by_ascending_bytes_of_their_tensors(memory):
    pricer = pricer_of(SPACE.searched.on(12).over(RING), RING, None)
    limit = sorted(tensors for tensors, _ in memory.values())[10]
    order = list(fitting.by_memory(pricer.tables, limit))
    assert sorted(order) == sorted(place for place, (tensors, _) in memory.items() if tensors <= limit)
    assert [memory[x][0] for x in order] == sorted(memory[x][0] for x in order)

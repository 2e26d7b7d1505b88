"""What an access must wait for, against comparing it with every earlier one."""

from itertools import combinations
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from umm.schedules.table import accesses
from umm.schedules.table.accesses import READ, WRITE, Accesses

SPANS = [(0, 1), (1, 2), (2, 3), (0, 2), (1, 3), (0, 3)]
RECTANGLES = st.builds(lambda rows, cols: (*rows, *cols), *(st.sampled_from(SPANS),) * 2)
TOUCHES = st.tuples(st.integers(0, 2), RECTANGLES)


def conflict(one, other, in_slot):
    (how, buffer, here), (what, same, there) = one, other
    if how == what != WRITE:
        return False
    if buffer != same:
        return in_slot
    return here[0] < there[1] and there[0] < here[1] and here[2] < there[3] and there[2] < here[3]


def assert_in_order(touches, in_slot=False):
    """Every wait is for a conflict, and every conflict is in order, by itself or through others."""
    known, before = Accesses(), []
    conflicts = {(x, y) for (x, a), (y, b) in combinations(enumerate(touches), 2) if conflict(a, b, in_slot)}
    for action, (how, buffer, rectangle) in enumerate(touches):
        waits = set(known.conflicts("place", how, buffer, rectangle))
        known.note("place", how, buffer, rectangle, action)
        assert {(x, action) for x in waits} <= conflicts
        before.append(waits.union(*(before[x] for x in waits)))
    assert all(x in before[y] for x, y in conflicts)


@given(st.lists(TOUCHES, max_size=14))
def test_conflicting_accesses_to_a_tile_come_in_order(touches):
    assert_in_order([(how, 0, rectangle) for how, rectangle in touches])


@given(st.lists(TOUCHES, max_size=14))
def test_what_is_looked_up_by_its_edges_is_what_looking_at_all_finds(touches):
    """As of a copy that is gathered in hundreds of pieces; here from the third piece on."""
    with patch.object(accesses, "FEW", 2):
        assert_in_order([(how, 0, rectangle) for how, rectangle in touches])


@given(st.lists(st.lists(TOUCHES, min_size=1, max_size=5), max_size=5))
def test_conflicting_accesses_to_a_slot_come_in_order(stays):
    """One buffer after another is in the slot; what comes first of each is a write, for it holds nothing."""
    touches = [
        (WRITE if number == 0 else how, buffer, rectangle)
        for buffer, stay in enumerate(stays)
        for number, (how, rectangle) in enumerate(stay)
    ]
    written = [
        touch
        for i, touch in enumerate(touches)
        if touch[0] == WRITE
        or any(w[:2] == (WRITE, touch[1]) and conflict(w, touch, True) for w in touches[:i])
    ]
    assert_in_order(written, in_slot=True)


def test_a_slot_filled_again_and_again_is_waited_for_once():
    """1000 gets, each read by a gemm: a gemm waits for its get, a get for the gemm before it."""
    known, whole = Accesses(), (0, 4, 0, 4)
    for action in range(2000):
        touch = ("slot", READ if action % 2 else WRITE, action // 2, whole)
        assert known.conflicts(*touch) == ([action - 1] if action else [])
        known.note(*touch, action)

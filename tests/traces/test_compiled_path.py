"""The critical path in C against the same in Python: equal, action by action."""

from dataclasses import replace

import numpy as np
import pytest
from compiled import compiled, text_of
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import problems, stationaries

import umm
from umm.schedules.table.details import BARRIER
from umm.traces import bottleneck
from umm.traces.bottleneck import critical_path
from umm.traces.traffic import Spans

MACHINE = umm.machine("dgx-h100x4")


@pytest.fixture(scope="module")
def path():
    return compiled("_path").path


def both(spans, path):
    """The critical path in Python, and in C."""
    found = []
    for function in (None, path):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bottleneck, "path_in_c", function)
            found.append(critical_path(spans).tolist())
    return found


@settings(max_examples=examples(60), deadline=None)
@given(problems(), stationaries, st.integers(0, 2**32 - 1))
def test_the_path_is_the_same_in_c(path, problem, stationary, seed):
    """Of simulated times, many of them equal, and of times that are drawn, as a measurement's."""
    schedule = umm.schedule(problem, MACHINE, stationary=stationary)
    trace = umm.run(schedule, executor="sim")
    expected, found = both(trace, path)
    assert found == expected
    assert found
    end = np.random.default_rng(seed).integers(1, 9, len(schedule)).astype(np.float64)
    expected, found = both(Spans(schedule, "drawn", end - 1, end), path)
    assert found == expected


def test_columns_that_do_not_belong_together_are_refused(path):
    schedule = umm.schedule(umm.Problem(m=8, n=8, k=8, a="row", b="col", ranks=2), MACHINE)
    trace = umm.run(schedule, executor="sim")
    for changed in (
        replace(schedule, after=schedule.after + len(schedule)),
        replace(schedule, after_offsets=schedule.after_offsets[:-1]),
        replace(schedule, after_offsets=schedule.after_offsets + 9),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bottleneck, "path_in_c", path)
            with pytest.raises(ValueError, match="do not belong together"):
                critical_path(replace(trace, schedule=changed))


def test_kinds_are_those_of_the_table():
    assert f"enum {{ BARRIER = {BARRIER} }};" in text_of("_path")

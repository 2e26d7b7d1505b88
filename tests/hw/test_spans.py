"""Spans of actions whose ranks' clocks disagree."""

import numpy as np

import umm
from umm_hw.devices.streams import ordered_spans


def test_no_span_begins_before_what_it_waited_for_not_by_the_last_bit():
    """Random times of 100 runs: a start moved by a difference of times was 1e-16 of them early in some."""
    problem = umm.Problem(m=8, n=8, k=8, a="col", b="row", c="row", ranks=4)
    schedule = umm.schedule(problem, umm.machine("h100-8"), stationary="A")
    rng = np.random.default_rng(0)
    for _ in range(100):
        start = rng.random(len(schedule)) * 100
        end = start + rng.random(len(schedule))
        ordered_spans(schedule, start, end)
        assert np.all(end >= start)
        assert np.all(start[schedule.waiting] >= end[schedule.after])

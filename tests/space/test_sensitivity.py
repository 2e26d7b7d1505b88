"""What would change a choice, and maps of choices: crossovers that a search on either side confirms."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import umm
from umm.figures import decision_figure
from umm.space import Space, map_over_bandwidth, map_over_memory, search
from umm.space.what_if.changed_machines import changed, knobs
from umm.space.what_if.sensitivity import frontier, sensitivity

PAPER = {"grids": "square", "granularity": "tile", "final": "reduce"}
SPACE = Space(m=256, n=3072, k=12288, partitions=("row", "col"), replication=(1, 2), **PAPER)


def best(space, machine, memory):
    found = search(space, machine, memory=memory, top=1).top[0]
    return found.makespan_s, found.memory_bytes


def test_each_bandwidth_of_link_is_a_number_to_change():
    """PVC has links of 20 GB/s between GPUs and 230 GB/s inside one; 2.4 times 20 is 48."""
    machine = umm.machine("pvc-12")
    found = knobs(machine, 12, "float32")
    assert [(x.name, x.at(1.0)) for x in found] == [
        ("link bandwidth", "20 GB/s"),
        ("link bandwidth", "230 GB/s"),
        ("latency", "7.00 µs"),
        ("peak", "22.7 Tflop/s"),
        ("memory bandwidth", "1.638 TB/s"),
    ]
    faster = changed(machine, found[0], 2.4)
    assert sorted({round(x / 1e9) for x in faster.link_bandwidth}) == [48, 230, 819]
    assert faster != machine
    assert changed(machine, found[3], 0.5).peak("float32") == 22.7e12 / 2
    assert changed(machine, found[2], 2.0).launch_s == pytest.approx(2 * machine.launch_s)
    assert changed(machine, found[4], 2.0).link_bandwidth[-1] == 2 * machine.link_bandwidth[-1]


def test_a_flip_is_where_the_choice_falls_behind_by_the_margin():
    """A hundredth before the factor the choice holds its own, at the factor something is 1 % better."""
    machine = umm.machine("pvc-12")
    answer = sensitivity(SPACE, machine, memory="2x")
    flips = [x for x in answer.flips if x.factor is not None and x.what != "memory"]
    assert flips
    for flip in flips:
        knob = next(x for x in knobs(machine, 12, "float32") if (x.name, x.at(1.0)) == (flip.what, flip.now))
        for nearer, flipped in ((flip.factor, True), (flip.factor**0.98, False)):
            there = changed(machine, knob, nearer)
            schedule = umm.schedule(answer.choice.problem, there, stationary=answer.choice.stationary)
            ours = umm.run(schedule).makespan_s
            assert (best(SPACE, there, "2x")[0] < ours * 0.99) == flipped
    frame = answer.to_frame()
    assert list(frame.columns) == ["what", "now", "factor", "then", "a", "b", "c", "stationary"]
    assert len(frame) == 2 * 5 + 2
    assert str(answer).count("\n") == 12


def test_the_frontier_has_the_best_choice_for_every_budget():
    """Less memory never means less time; just below a step the best is the one before it."""
    steps = frontier(SPACE, "h100-8")
    assert len(steps) > 1
    memory = [x.memory_bytes for x in steps]
    times = [x.makespan_s for x in steps]
    assert memory == sorted(memory)
    assert times == sorted(times, reverse=True)
    for before, after in pairwise(steps):
        assert best(SPACE, "h100-8", after.memory_bytes - 1) == (before.makespan_s, before.memory_bytes)
        assert best(SPACE, "h100-8", after.memory_bytes) == (after.makespan_s, after.memory_bytes)


def test_a_map_over_memory_is_the_frontier_of_every_m():
    decisions = map_over_memory(SPACE, "h100-8", [256, 1024], most=3.0)
    frame = decisions.to_frame()
    assert frame.m.unique().tolist() == [256, 1024]
    steps = frontier(SPACE, "h100-8", most="3x")
    assert frame.memory_bytes[frame.m == 256].tolist() == [x.memory_bytes for x in steps]
    share = SPACE.on(8).bare.unreplicated_share
    assert frame.start[0] == pytest.approx(steps[0].memory_bytes / share)
    assert frame.stop[frame.m == 256].tolist() == [*frame.start[frame.m == 256].tolist()[1:], 3.0]


def test_a_map_over_bandwidth_changes_where_searches_do():
    seen = []
    decisions = map_over_bandwidth(
        SPACE, "pvc-12", [256], reach=4.0, progress=lambda done, of: seen.append((done, of))
    )
    assert seen == [(1, 1)]
    assert decisions.stretches[0].start == 0.25
    assert decisions.stretches[-1].stop == 4.0
    for before, after in pairwise(decisions.stretches):
        assert before.stop == after.start
        assert before.label != after.label


def test_the_figure_has_a_bar_for_every_stretch():
    pytest.importorskip("plotly")
    decisions = map_over_memory(SPACE, "h100-8", [256, 1024])
    figure = decision_figure(decisions)
    assert sum(len(trace.x) for trace in figure.data) == len(decisions.stretches)
    assert {trace.name for trace in figure.data} == {x.label for x in decisions.stretches}
    tops = np.concatenate([np.add(trace.base, trace.y) for trace in figure.data])
    assert tops.max() == pytest.approx(4.0)


def test_without_a_budget_nothing_needs_more_memory():
    answer = sensitivity(replace(SPACE, a="row", b="row", c="row"), "h100-8", memory=None, reach=2.0)
    assert [x.now for x in answer.flips[-2:]] == ["without a budget"] * 2
    assert answer.flips[-1].factor is None

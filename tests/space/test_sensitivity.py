"""Causes that would change a choice, and maps of choices: crossovers that searches on either side confirm."""

from itertools import pairwise

import numpy as np
import pytest

import umm
from umm.cost import gemm_seconds
from umm.errors import InfeasibleError
from umm.figures import decision_figure
from umm.space import Space, map_over_memory, map_over_number, search
from umm.space.budget import bytes_of_budget
from umm.space.vary import assumed, knob, knobs
from umm.space.what_if.sensitivity import frontier, sensitivity

PAPER = {"grids": "square", "granularity": "tile", "final": "reduce"}
SPACE = Space(m=256, n=3072, k=12288, partitions=("row", "col"), replication=(1, 2), **PAPER)


def best(space, machine, memory):
    result = search(space, machine, memory=memory, top=1).top[0]
    return result.makespan_s, result.memory_bytes


def test_each_number_is_one_to_change_and_all_bandwidths_together():
    """PVC has links of 20 GB/s between GPUs and 230 GB/s inside one; 2.4 times 20 is 48."""
    machine = umm.machine("pvc-12")
    result = {x.name: x for x in knobs(machine, 12, "float32")}
    assert {name: x.at(1.0) for name, x in result.items()} == {
        "fabric*bandwidth": "20 GB/s, 230 GB/s",
        "fabric.bandwidth": "20 GB/s",
        "fabric.group.bandwidth": "230 GB/s",
        "fabric*latency": "2 us, 1 us",
        "fabric.latency": "2 us",
        "fabric.group.latency": "1 us",
        "peak.float32": "22.7 Tflop/s",
        "memory_bandwidth": "1638 GB/s",
        "launch": "5 us",
        "transfer_overhead": "5 us",
        "accumulate_efficiency": "0.8",
    }
    faster = result["fabric.bandwidth"].on(machine, 2.4)
    assert sorted({round(x / 1e9) for x in faster.link_bandwidth}) == [48, 230, 819]
    assert faster != machine
    assert result["peak.float32"].on(machine, 0.5).peak("float32") == 22.7e12 / 2
    assert result["launch"].on(machine, 2.0).launch_s == 2 * machine.launch_s
    twice = result["memory_bandwidth"].on(machine, 2.0)
    assert twice.link_bandwidth[-1] == 2 * machine.link_bandwidth[-1]


@pytest.mark.parametrize(
    ("dtype", "key"),
    [
        ("float8_e4m3", "float8"), ("float8_e5m2", "float8"), ("float8_e4m3:128", "float8"),
        ("float8_e4m3xfloat8_e5m2", "float8"), ("float4_e2m1", "float4"), ("complex64", "float32"),
        ("bfloat16", "bfloat16"),
    ],
)  # fmt: skip
def test_a_types_peak_and_efficiency_are_changed_by_their_names_in_the_file(dtype, key):
    """Sensitivities include peak.float8, and ranges the assumed efficiency of float4."""
    machine = umm.machine("b200-8")
    (peak,) = [x for x in knobs(machine, 2, dtype) if x.name.startswith("peak.")]
    assert peak.name == f"peak.{key}"
    assert peak.on(machine, 0.5).peak(dtype) == machine.peak(dtype) / 2
    varied = {x.name for x in assumed(machine, dtype) if "efficiency" in x.name}
    assert varied == ({f"efficiency.{key}"} if key in ("float4", "float32") else set())


def test_kernels_reach_the_same_share_of_another_memory_bandwidth():
    """One row by 8K x 8K in half precision reads 128 MiB at 3.16 TB/s, and starts for 4 µs: 46.5 µs."""
    machine = umm.machine("h100-8")
    half = knob(machine, "memory_bandwidth").on(machine, 0.5)
    one, other = (float(gemm_seconds(x, "bfloat16", 1, 8192, 8192, 4)) for x in (machine, half))
    start = machine.gemm_start("bfloat16")
    assert one == pytest.approx(46.5e-6, rel=0.01)
    assert other - start == pytest.approx(2 * (one - start), rel=1e-9)


def test_a_share_grows_to_one_and_a_lost_share_not_quite():
    result = {x.name: x for x in knobs(umm.machine("frontera-rtx"), 8, "float32")}
    assert result["accumulate_efficiency"].most == 1.25
    assert result["interference.accumulate"].most == pytest.approx(9.9)
    assert not result["interference.accumulate"].more_is_faster
    assert result["fabric.bandwidth"].more_is_faster


def test_one_device_has_no_links_to_change():
    assert not any("fabric" in x.name for x in knobs(umm.machine("h200-1"), 1, "float32"))


def test_a_flip_is_where_the_choice_falls_behind_by_the_margin():
    """A hundredth before the factor the choice holds its own, at the factor something is 1 % better."""
    machine = umm.machine("pvc-12")
    space = SPACE.changed(c=("row",))
    answer = sensitivity(space, machine, memory="2x", reach=8.0)
    flips = [x for x in answer.flips if x.factor is not None and x.what != "memory"]
    assert flips
    for flip in flips:
        turned = knob(machine, flip.what)
        for nearer, flipped in ((flip.factor, True), (flip.factor**0.98, False)):
            changed = turned.on(machine, nearer)
            schedule = umm.schedule(answer.choice.problem, changed, stationary=answer.choice.stationary)
            ours = umm.run(schedule).makespan_s
            assert (best(space, changed, "2x")[0] < ours * 0.99) == flipped
    frame = answer.to_frame()
    assert list(frame.columns) == ["what", "now", "factor", "then", "a", "b", "c", "stationary"]
    assert len(frame) == 2 * 11 + 2
    assert str(answer).count("\n") == 24


def test_half_and_twice_of_each_number_are_simulated():
    """Half the peak doubles nearly all of a time that is nearly all compute; the largest effect is first."""
    machine = umm.machine("pvc-12")
    space = SPACE.changed(m=8192, a="row", b="row@12", c="row", stationary="C", partitions=("row",))
    answer = sensitivity(space.changed(replication=None), machine, memory=None, reach=2.0)
    first, now = answer.moves[0], answer.choice.makespan_s
    assert first.what == "peak.float32"
    assert 1.9 * now < first.half_s < 2 * now
    for move in answer.moves:
        for factor, seconds in ((0.5, move.half_s), (move.most, move.most_s)):
            changed = umm.machine("pvc-12", {move.what: f"x{factor!r}"})
            assert seconds == umm.run(answer.choice.schedule(changed)).makespan_s
    assert answer.moves_frame().what.tolist() == [x.what for x in answer.moves]


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
    share = SPACE.on(8).points().share
    assert frame.start[0] == pytest.approx(steps[0].memory_bytes / share)
    assert frame.stop[frame.m == 256].tolist() == [*frame.start[frame.m == 256].tolist()[1:], 3.0]


def test_an_m_for_which_nothing_fits_keeps_the_others_rows():
    """2^24 rows of 3072 float32 are 26 GB a rank on eight H100s; 2^28 are 16 times as many."""
    tight = SPACE.changed(replication=(1,))
    decisions = map_over_memory(tight, "h100-8", [256, 2**28])
    assert {x.m for x in decisions.stretches} == {256}
    assert decisions.without == (2**28,)
    assert decisions.to_dict()["without"] == [2**28]
    assert map_over_number(tight, "h100-8", [2**28, 256], reach=2.0).without == (2**28,)
    with pytest.raises(InfeasibleError, match="nothing fits for m = 268435456"):
        map_over_memory(tight, "h100-8", [2**28])


@pytest.mark.parametrize(("m", "n", "k"), [(64, 48, 40), (1000, 999, 7), (8191, 127, 12289)])
def test_a_maps_start_is_a_budget_that_suffices(m, n, k):
    """bytes / share × share may come out a hair below the bytes; no byte is lost by that."""
    problem = umm.Problem(m=m, n=n, k=k, ranks=7)
    share = problem.unreplicated_share
    for nbytes in range(10**6, 10**6 + 500):
        assert bytes_of_budget(f"{nbytes / share}x", share) == nbytes


def test_a_map_over_a_number_changes_where_searches_do():
    seen = []
    decisions = map_over_number(SPACE, "pvc-12", [256], reach=4.0, progress=lambda *told: seen.append(told))
    assert seen == [("m = 256", 0, 1)]
    assert decisions.stretches[0].start == 0.25
    assert decisions.stretches[-1].stop == 4.0
    for before, after in pairwise(decisions.stretches):
        assert before.stop == after.start
        assert before.label != after.label
    assert decisions.over == "fabric*bandwidth"
    assert decisions.to_dict()["stretches"][0]["start"] == 0.25


def test_the_figure_has_a_bar_for_every_stretch():
    pytest.importorskip("plotly")
    decisions = map_over_memory(SPACE, "h100-8", [256, 1024])
    figure = decision_figure(decisions)
    assert sum(len(trace.x) for trace in figure.data) == len(decisions.stretches)
    assert {trace.name for trace in figure.data} == {x.label for x in decisions.stretches}
    tops = np.concatenate([np.add(trace.base, trace.y) for trace in figure.data])
    assert tops.max() == pytest.approx(4.0)


def test_without_a_budget_nothing_needs_more_memory():
    answer = sensitivity(SPACE.changed(a="row", b="row", c="row"), "h100-8", memory=None, reach=2.0)
    assert [x.now for x in answer.flips[-2:]] == ["without a budget"] * 2
    assert answer.flips[-1].factor is None

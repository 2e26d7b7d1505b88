"""The front of time against memory, and doubts of an expert: each as a law."""

from dataclasses import replace
from itertools import pairwise

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import umm
from umm.executor import executor
from umm.space import Space, frontier, search
from umm.space.search.found import front, knee
from umm.space.search.uncertainty import TOLERANCE, Sure, ties

NAMES = st.sampled_from(("h100-8", "pvc-12", "pvc-12-planes"))
SIZES = st.sampled_from((256, 1024, 3000, 8192))


def fastest(m, n, k, name, **more):
    return search(Space(m=m, n=n, k=k, ranks=4, dtype="bfloat16", **more), name, top=1)


@settings(max_examples=examples(10), deadline=None)
@given(SIZES, SIZES, SIZES, NAMES)
def test_along_the_front_more_memory_is_never_slower(m, n, k, name):
    """Strictly: each point of it has more memory and less time; its last is the fastest there is."""
    result = fastest(m, n, k, name)
    for before, after in pairwise(result.frontier):
        assert before.memory_bytes < after.memory_bytes
        assert before.makespan_s > after.makespan_s
    assert result.frontier[-1].makespan_s == result.top[0].makespan_s
    assert result.knee is None or result.knee in result.frontier[1:-1]


def test_a_front_within_a_reach_is_the_end_of_the_whole_one_and_builds_fewer_schedules():
    """Points that are sure to take longer are not looked at: 80 schedules are enough, of 696."""
    result = search(Space(m=1024, n=12288, k=49152, ranks=12), "pvc-12", top=1)
    near = front(result.pricer, result.limit, reach=1.01)
    few = result.pricer.built
    full = front(result.pricer, result.limit)
    assert near == [x for x in full if x.makespan_s <= 1.01 * full[-1].makespan_s]
    assert few < result.pricer.built / 5


@settings(max_examples=examples(10), deadline=None)
@given(SIZES, SIZES, SIZES, NAMES)
def test_nothing_is_above_the_rate_of_a_gemm(m, n, k, name):
    """Not even the best layout, on the best day of the machine."""
    machine = umm.machine(name)
    result = fastest(m, n, k, name)
    most = max(float(x.values.max()) for x in (machine.efficiency["bfloat16"],))
    assert result.top[0].fraction_of_peak <= most * (1 + 1e-9)
    low, high = result.sure.range(result.top[0])
    assert low <= result.top[0].makespan_s <= high
    assert result.top[0].fraction_of_peak * result.top[0].makespan_s / low <= 1


@settings(max_examples=examples(10), deadline=None)
@given(SIZES, SIZES, SIZES, NAMES)
def test_the_best_by_slices_is_not_slower_than_the_best_by_tiles_by_more_than_requests(m, n, k, name):
    """Slices need more requests, each of which takes the latency of its route."""
    tiles = fastest(m, n, k, name, granularity="tile", final="reduce").top[0]
    slices = fastest(m, n, k, name, granularity="slice", final="reduce").top[0]
    machine = umm.machine(name)
    schedule = slices.schedule(machine)
    requests = int((schedule.src != schedule.dst).sum()) * float(machine.link_latency.max())
    assert slices.makespan_s <= tiles.makespan_s * (1 + 1e-9) + requests


LARGE_AND_SMALL = [
    # machine, ranks, m, n, k, A, B, C, type, stationary: once 92, 37, 103 and 72 % slower by slices
    ("pvc-12", 6, 8192, 768, 3000, "2d:2x3", "2d:1x2@3", "col", "bfloat16", "C"),
    ("pvc-12", 6, 768, 8192, 3000, "2d:6x1", "row@2", "row@2", "float32", "C"),
    ("pvc-12-planes", 12, 1024, 3000, 8192, "row@3", "2d:4x3", "2d:6x2", "float32", "A"),
    ("pvc-12", 12, 4096, 768, 4096, "2d:2x2@3", "2d:1x4@3", "col", "float32", "C"),
]


@pytest.mark.parametrize(
    ("name", "ranks", "m", "n", "k", "a", "b", "c", "dtype", "stationary"), LARGE_AND_SMALL
)
def test_slices_of_one_layout_are_not_slower_than_its_tiles(name, ranks, m, n, k, a, b, c, dtype, stationary):
    """Large slices of A and small ones of B share the lanes evenly, and none is fetched over and over."""
    machine, makespan = umm.machine(name), executor("sim").makespan
    problem = umm.Problem(m=m, n=n, k=k, a=a, b=b, c=c, dtype=dtype, ranks=ranks)
    tiles, slices = (
        umm.schedule(problem, machine, stationary=stationary, granularity=x) for x in ("tile", "slice")
    )
    requests = int((slices.src != slices.dst).sum()) / ranks * float(machine.link_latency.max())
    assert makespan(slices) <= makespan(tiles) * (1 + 1e-9) + requests


def test_the_time_by_replication_factor_does_not_zigzag_where_slices_and_grids_are_searched():
    """pvc-12, m = 1K, B cut both ways with 1, 2, 3, 4, 6 replicas: 4 replicas are no worse than 3 and 6.

    With whole tiles of the most square grid alone they are: the grid of 3 ranks fits nothing.
    """
    best = {}
    for c in (1, 2, 3, 4, 6):
        grids = [f"2d:{r}x{12 // c // r}@{c}" for r in range(1, 13) if 12 // c % r == 0]
        space = Space(m=1024, n=49152, k=12288, a="all", b=grids, c="all", equal_replication=False)
        best[c] = search(space, "pvc-12", top=1).top[0].makespan_s
    assert max(best.values()) < 1.1 * min(best.values())


def test_the_knee_is_furthest_below_the_line_between_the_ends():
    """Of four points the second saves most of the time for little of the memory."""
    result = fastest(1024, 8192, 8192, "pvc-12")
    steps = result.frontier
    if len(steps) > 2:
        memory = steps[-1].memory_bytes - steps[0].memory_bytes
        seconds = steps[0].makespan_s - steps[-1].makespan_s

        def sum_of_shares(x):
            used = (x.memory_bytes - steps[0].memory_bytes) / memory
            return used + (x.makespan_s - steps[-1].makespan_s) / seconds

        assert sum_of_shares(result.knee) == min(map(sum_of_shares, steps))
    assert knee(steps[:2]) is None


def test_a_limit_says_what_a_little_more_memory_buys():
    """Just below a step of the front the next one is named; with all of the device nothing is."""
    space = Space(m=1024, n=12288, k=49152, ranks=12, granularity="tile", final="reduce")
    steps = frontier(space, "pvc-12")
    last = steps[-1]
    result = search(space, "pvc-12", memory=last.memory_bytes - 1, top=1)
    assert result.more is not None
    assert result.limit < result.more.memory_bytes <= 2 * result.limit
    assert result.more.makespan_s < 0.99 * result.top[0].makespan_s
    assert result.frontier == [
        x for x in steps if x.memory_bytes < last.memory_bytes and x in result.frontier
    ]
    assert search(space, "pvc-12", top=1).more is None


def test_what_is_compared_at_one_corner_ties_only_if_a_corner_turns_it_round():
    """Both take 66 to 75 % of the peak, so ranges overlap; the one that moves more is behind at each."""
    machine, makespan = umm.machine("h100-8"), executor("sim").makespan
    space = Space(m=8192, n=8192, k=8192, ranks=8, a=["row@8", "row"], b="col", c=["col", "row"])
    result = search(space, machine, top=20)
    sure = Sure(machine, makespan)
    first, last = result.top[0], result.top[-1]
    assert sure.range(first)[1] > sure.range(last)[0]
    assert sure.lead(first, last) > TOLERANCE
    assert not sure.tie(first, last)
    assert last not in result.tied
    assert sure.lead(first, first) == 0
    assert result.tied[0] == first
    assert sure.lead(last, first) == pytest.approx(
        min(x / y for x, y in zip(sure.seconds(first), sure.seconds(last), strict=True)) - 1
    )


def test_a_host_whose_runs_spread_more_than_its_layouts_differ_says_so():
    """At 60 % all rows shown are alike; without a spread nothing is said."""
    plain = umm.machine("h100-8")
    space = Space(m=1024, n=3072, k=768, ranks=4)
    for spread, output in ((0.0, False), (0.6, True)):
        result = search(space, replace(plain, spread=spread), top=3)
        text = ties(result.sure, result.top)
        assert (
            "Runs of one schedule spread by 60.0 % on this host, more than the rows differ" in text
        ) is output

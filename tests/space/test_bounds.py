"""Bounds: never above the simulated time, and right on problems a hand can check."""

from dataclasses import replace

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import finals, problems, stationaries

import umm
from umm.machines.curves import EfficiencyTable, MessageSizes
from umm.plans.multiply.oplist import op_list
from umm.plans.multiply.options import Options
from umm.plans.multiply.policies import find_policy, policy_names
from umm.schedules.bound import phases, schedule_bound
from umm.schedules.table.details import BARRIER
from umm.space import Space
from umm.space.bounds.closed_form import closed_form
from umm.space.bounds.transfers import least_slowdown, looked_at
from umm.space.pricing.multiplies import MultiplyPricer
from umm.space.search.search import best_of
from umm_sim.executor import SimExecutor

SHIPPED = ("pvc-12", "pvc-12-planes", "h100-8", "h200-1", "dgx-h100x4", "tpu-v5e-16", "localhost")
SIZES = MessageSizes(np.array([3.0, 6.0, 9.0]), np.array([1e9, 3e9, 4e9]), 5e9)
UNEVEN = MessageSizes(np.array([3.0, 6.0, 7.0, 9.0]), np.array([1e9, 4e9, 2e9, 5e9]), 5e9)
AGAIN = MessageSizes(np.array([3.0, 6.0, 9.0]), np.array([1e9, 3e9, 2e9]), 5e9, cached=5e9)
AGAIN_BY_SIZE = replace(AGAIN, cached=np.array([2e9, 5e9, 1e9]))

GEMMS = EfficiencyTable.measured([2, 16], [4], [4], [[[0.3]], [[0.8]]])


@st.composite
def machines(draw):
    """A shipped machine, slower so that small matrices take time, with any latency and interference."""
    apart = draw(st.sampled_from([{}, {}, {"device.0.peak": "x0.2", "device.0.memory_bandwidth": "x0.1"}]))
    machine = umm.machine(draw(st.sampled_from(SHIPPED)), apart)
    slower, latency = draw(st.sampled_from([1.0, 1e3, 1e6])), draw(st.sampled_from([0.0, 0.1, 1.0]))
    peak, loss = draw(st.sampled_from([1.0, 1e-3, 1e-6])), draw(st.sampled_from([0.0, 0.2, 0.5]))
    tables = [(None, 0), (SIZES, 0), (UNEVEN, 2**9), (UNEVEN, 2**40), (AGAIN, 2**10), (AGAIN_BY_SIZE, 2**10)]
    sizes, cache = draw(st.sampled_from(tables))
    strided, refill = draw(st.sampled_from([(1.0, 0.0), (0.5, 0.0), (0.5, 1e6), (1.0, 1e12)]))
    return replace(
        machine,
        name=f"{machine.name} {slower} {latency} {peak} {loss} {sizes is None} {cache} {strided} {refill}",
        link_bandwidth=machine.link_bandwidth / slower,
        link_latency=machine.link_latency * latency,
        launch_s=machine.launch_s * latency,
        peaks={"float32": 50e12 * peak},
        efficiency=draw(st.sampled_from([{}, {"float32": GEMMS}])),
        interference=dict.fromkeys(("get", "put", "broadcast"), loss / 2)
        | dict.fromkeys(("accumulate", "reduce"), loss),
        message_sizes=sizes,
        cache=cache,
        strided_accumulates=strided,
        refill=refill,
    )


options = st.builds(
    Options,
    policy=st.sampled_from(policy_names()),
    prefetch=st.integers(0, 3),
    max_gemms=st.integers(1, 3),
    max_accumulates=st.integers(1, 3),
    offset=st.sampled_from(["none", "index", "rotate"]),
    granularity=st.sampled_from(["tile", "slice"]),
    reuse=st.booleans(),
    final=finals,
)


@settings(max_examples=examples(400), deadline=None)
@given(problems(dtype="float32"), stationaries, machines(), options)
def test_no_bound_is_above_the_simulated_makespan_or_the_memory_allocated(problem, stationary, machine, how):
    """Any layouts on any fabric, devices shared or not, any policy and option: closed form ≤, op list ≤."""
    if problem.p > machine.device_count * machine.ranks_per_device:
        return
    if find_policy(how.policy).searches and np.bincount(op_list(problem, stationary).rank).max() > 6:
        return  # many such would take minutes
    space = Space(
        **{x: getattr(problem, x) for x in ("m", "n", "k", "a", "b", "c", "ranks", "dtype")},
        stationary=stationary,
        **how.to_dict(),
    )
    points = space.points()
    bounds = closed_form(points, machine)
    schedule = points.schedule(0, machine)
    simulated = SimExecutor().makespan(schedule)
    assert bounds.seconds[0] <= simulated
    assert schedule_bound(schedule) <= simulated
    assert bounds.memory[0] <= schedule.memory_bytes.max()


@pytest.mark.parametrize("name", ["pvc-12", "h100-8"])
def test_no_point_of_a_small_space_is_below_its_bounds(name):
    """648 points on 4 ranks with links of a thousandth of their bandwidth, so that tiles got again count."""
    machine = umm.machine(name)
    slow = replace(machine, name=f"slow {name}", link_bandwidth=machine.link_bandwidth / 1e3)
    points = Space(m=192, n=256, k=320, ranks=4).points()
    bounds = closed_form(points, slow)
    assert len(points) == 6**3 * 3
    for i, point in enumerate(points.allowed.tolist()):
        schedule = points.schedule(point, slow)
        simulated = SimExecutor().makespan(schedule)
        assert bounds.seconds[i] <= simulated, points.text(point)
        assert bounds.seconds[i] >= 0.2 * simulated, points.text(point)
        assert bounds.memory[i] <= schedule.memory_bytes.max(), points.text(point)


def one(machine, **choices):
    points = Space(dtype="float32", **choices).points()
    schedule = points.schedule(0, machine)
    return closed_form(points, machine).seconds[0], schedule_bound(schedule), SimExecutor().makespan(schedule)


def test_without_communication_both_bounds_are_the_simulated_time():
    """Each rank has its row of A and all of B: 2·1024³ / 4 flop at 95 % of 22.7 Tflop/s, a launch of 5 µs."""
    machine = umm.machine("pvc-12")
    seconds = 5e-6 + 2 * 1024**3 / 4 / (0.95 * 22.7e12)
    layouts = {"a": "row", "b": "row@4", "c": "row", "stationary": "C"}
    assert one(machine, m=1024, n=1024, k=1024, ranks=4, **layouts) == pytest.approx((seconds,) * 3)


def test_the_op_list_bound_knows_the_first_get_and_the_last_accumulate():
    """One gemm per rank, k split in two: A and B are there, half of C is accumulated into the other rank.

    5 µs + 2·1024³/2 flop at 95 % of 22.7 Tflop/s, then 2 MiB / 0.8 at 230 GB/s after 6 µs.
    """
    machine = umm.machine("pvc-12")
    gemm = [5e-6 + 2 * 512 * 1024 * 512 / (0.95 * 22.7e12)] * 2
    accumulate = 6e-6 + 2**21 / 0.8 / 230e9
    layouts = {"a": "col", "b": "row", "c": "row", "stationary": "B", "offset": "none"}
    closed, ops, simulated = one(machine, m=1024, n=1024, k=1024, ranks=2, **layouts)
    # The remote half of C is the second op of rank 0 but the first of rank 1.
    assert simulated == pytest.approx(sum(gemm) + accumulate, rel=1e-6)
    assert ops == pytest.approx(simulated, rel=1e-6)
    assert closed <= ops


def test_a_link_bounds_what_all_ranks_read_through_it():
    """B is on one rank of 4 (edges): its port up sends 3 copies of 64 MiB, whatever the order."""
    machine = umm.machine("h100-8")
    edges = "edges:0-4096x0-4096:1x4"
    closed, ops, _ = one(machine, m=4096, n=4096, k=4096, ranks=4, a="row", b=edges, c="row", stationary="C")
    assert closed >= 3 * 2**26 / 374e9 * (1 - 1e-8)
    assert ops >= closed


def test_the_whole_space_is_priced_and_equal_layouts_have_equal_bounds():
    points = Space(
        m=8192, n=49152, k=12288, ranks=12, partitions=("row", "col", "2d:1x6", "2d"), a="row"
    ).points()
    bounds = closed_form(points, umm.machine("pvc-12"))
    assert len(bounds.seconds) == len(bounds.memory) == len(points)
    assert (bounds.seconds > 0).all()


@settings(max_examples=examples(60), deadline=None)
@given(problems(dtype="float32"), stationaries, machines(), st.data())
def test_fewer_ranks_looked_at_bound_no_more(problem, stationary, machine, data):
    """The largest over some ranks is at most that over all, and all looked at one by one are all."""
    if problem.p > machine.device_count * machine.ranks_per_device:
        return
    points = Space(
        **{x: getattr(problem, x) for x in ("m", "n", "k", "a", "b", "c", "ranks", "dtype")},
        stationary=stationary,
    ).points()
    some = data.draw(st.sets(st.integers(0, problem.p - 1), min_size=1).map(lambda x: tuple(sorted(x))))
    every, fewer = closed_form(points, machine), closed_form(points, machine, some)
    assert (fewer.seconds <= every.seconds * (1 + 1e-12)).all()
    assert (fewer.memory <= every.memory).all()
    same = closed_form(points, machine, tuple(range(problem.p)))
    assert (same.seconds == every.seconds).all()


def test_a_search_that_looks_at_few_ranks_finds_what_one_that_looks_at_all_finds():
    """32 ranks on 4 nodes: bounds from 4 of them, then from all for points that come up."""
    machine = umm.machine("dgx-h100x4")
    space = Space(m=4096, n=8192, k=2048, partitions=("row", "2d"), ranks=32, dtype="bfloat16")
    points, makespan = space.points(), SimExecutor().makespan
    assert looked_at(machine, 32) == (7, 15, 19, 27)
    some = best_of(space, MultiplyPricer(points, machine, makespan), 2**36, 5)
    every = best_of(space, MultiplyPricer(points, machine, makespan, closed_form(points, machine)), 2**36, 5)
    assert some.proven
    assert some.top == every.top
    assert some.simulated == every.simulated
    assert some.frontier == every.frontier


def test_the_least_slowdown_of_messages_is_that_of_the_largest():
    """Up to 64 bytes a message reaches at most 3 of 5 GB/s."""
    machine = replace(umm.machine("h100-8"), name="by size", message_sizes=SIZES)
    assert least_slowdown(machine.message_sizes, 64) == pytest.approx(5 / 3)
    assert least_slowdown(machine.message_sizes, 2**30) == pytest.approx(5 / 4)
    assert least_slowdown(umm.machine("h100-8").message_sizes, 64) == 1.0
    assert least_slowdown(AGAIN_BY_SIZE, 8) == pytest.approx(5 / 2)  # and up to 64 bytes again all of it
    assert least_slowdown(AGAIN_BY_SIZE, 2**30) == pytest.approx(1.0)


@pytest.mark.parametrize("policy", policy_names())
def test_a_barrier_parts_a_schedule_where_all_before_lead_to_it_and_all_after_follow(policy):
    """C on two replicas: ops, then the reduces; then one action less is waited for, and nothing is parted."""
    problem = umm.Problem(m=24, n=24, k=24, a="row", b="col", c="2d@2", ranks=4)
    schedule = umm.schedule(problem, "h100-8", policy=policy, final="reduce")
    (barrier,) = np.nonzero(schedule.kind == BARRIER)[0].tolist()
    assert phases(schedule) == [range(barrier), range(barrier + 1, len(schedule))]
    offsets = schedule.after_offsets.copy()
    for dropped, first in ((offsets[barrier], barrier), (offsets[barrier + 1], barrier + 1)):
        fewer = replace(
            schedule,
            after=np.delete(schedule.after, dropped),
            after_offsets=offsets - (np.arange(len(offsets)) > first),
        )
        assert phases(fewer) == [range(len(schedule))]


def test_a_schedule_whose_gemms_take_no_time_has_a_bound():
    """As one read from a file may say; its transfers slow down nothing then."""
    schedule = umm.schedule(umm.Problem(m=64, n=48, k=40, a="col", ranks=4), "pvc-12")
    schedule = replace(schedule, interference={"get": 0.5})
    seconds = np.where(schedule.flop > 0, 0.0, schedule.seconds)
    at_once = replace(schedule, seconds=seconds)
    assert 0 < schedule_bound(at_once) <= SimExecutor().makespan(at_once)


@pytest.mark.parametrize("name", ["pvc-12", "pvc-12-planes", "h100-8", "mi300x-8", "cpu-hdr"])
@pytest.mark.parametrize("final", ["all-reduce", "reduce-scatter", "broadcast"])
def test_small_sums_are_not_below_their_bounds(name, final):
    """On pvc-12-planes, whose library has no kernel for few bytes, our own ways do not wait for its start."""
    machine = umm.machine(name)
    for ranks, size in ((2, 1), (2, 64), (3, 64), (4, 1024)):
        choices = {"ranks": ranks, "a": "row", "b": "row", "c": f"row@{ranks}", "final": final}
        closed, _, simulated = one(machine, m=size, n=size, k=size, stationary="A", **choices)
        assert 0 < closed <= simulated

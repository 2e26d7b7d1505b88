"""The simulator: hand-checkable stories, and equality with two independent players of the same semantics."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from time import sleep

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import programs
from reference import exact_replay, process_simulator
from stories import GIGA, story
from strategies import finals, offsets, problems, stationaries

import umm
from umm.errors import ScheduleError
from umm.schedules.bound import schedule_bound
from umm.schedules.table.details import GEMM
from umm.schedules.table.resources import Routes
from umm_sim.executor import SimExecutor
from umm_sim.fabric import routes


def ends(schedule):
    """Finish of every action, from the product's simulator, checked against both references."""
    trace = SimExecutor().run(schedule)
    assert trace.end.tolist() == pytest.approx(process_simulator.simulate(schedule)[1], rel=1e-12)
    assert trace.makespan_s == pytest.approx(float(exact_replay.makespan(schedule)), rel=1e-12)
    return trace.end.tolist()


COPY = (0, "copy_in.0", None)
COPY_1 = (0, "copy_in.1", None)
COMPUTE = (0, "compute", 0)


def test_a_transfer_takes_its_bytes_over_the_bandwidth():
    """1 GB over a 1 GB/s wire is 1 s; the gemm of 2 s follows."""
    schedule = story([(0, "get", [], (1, 0, 1)), (1, "gemm", [0], 2.0)], lanes=[COPY, COMPUTE])
    assert ends(schedule) == [1.0, 3.0]


def test_a_transfer_waits_its_latency_first():
    """0.25 s + 0.5 s of latency on two links, then 1 GB at the slower one's 0.5 GB/s."""
    links = (("near", GIGA, 0.25), ("far", GIGA // 2, 0.5))
    schedule = story([(0, "get", [], (1, 0, 1))], lanes=[COPY], links=links, routes=((1, 0, (0, 1)),))
    assert ends(schedule) == [2.75]


SWITCH = tuple((name, GIGA, 0.0) for name in ("up 0", "up 1", "up 2", "down 0", "down 1", "down 2"))
PORTS = tuple((src, dst, (src, 3 + dst)) for src in range(3) for dst in range(3) if src != dst)


def test_two_gets_from_one_source_share_its_port():
    """Ranks 1 and 2 both read rank 0 through its up port: 1 GB each takes 2 s."""
    lanes = [(1, "copy_in.0", None), (2, "copy_in.0", None)]
    rows = [(0, "get", [], (0, 1, 1)), (1, "get", [], (0, 2, 1))]
    assert ends(story(rows, lanes=lanes, links=SWITCH, routes=PORTS, ranks=3)) == [2.0, 2.0]


def test_two_gets_through_different_ports_do_not_meet():
    """Rank 1 reads 0 and rank 2 reads 1: 1 s each."""
    lanes = [(1, "copy_in.0", None), (2, "copy_in.0", None)]
    rows = [(0, "get", [], (0, 1, 1)), (1, "get", [], (1, 2, 1))]
    assert ends(story(rows, lanes=lanes, links=SWITCH, routes=PORTS, ranks=3)) == [1.0, 1.0]


def test_bandwidth_that_one_flow_cannot_use_goes_to_the_others():
    """0→1, 0→2 and 1→2: up 0 and down 2 carry two flows each; 0→1 ends with the others at 2 s, max-min fair.

    With 0→1 of only 0.5 GB it ends at 1 s; the two left share down 2, so 0→2 and 1→2 still take 2 s.
    """
    lanes = [(1, "copy_in.0", None), (2, "copy_in.0", None), (2, "copy_in.1", None)]
    rows = [(0, "get", [], (0, 1, 0.5)), (1, "get", [], (0, 2, 1)), (2, "get", [], (1, 2, 1))]
    assert ends(story(rows, lanes=lanes, links=SWITCH, routes=PORTS, ranks=3)) == [1.0, 2.0, 2.0]


def eight_gets_and_gemms(depth):
    """Gets of op j wait for gemm j - depth; gemm j waits for its get; two copy lanes on one wire."""
    rows = []
    for op in range(8):
        after = [2 * (op - depth) + 1] if op >= depth else []
        rows += [(op % 2, "get", after, (1, 0, 1)), (2, "gemm", [2 * op], 1.0)]
    return story(rows, lanes=[COPY, COPY_1, COMPUTE])


def test_prefetch_overlaps_gets_with_gemms():
    """8 gets and 8 gemms of one unit: 16 units with prefetch 0; 10 with 1, as the first two gets share."""
    assert max(ends(eight_gets_and_gemms(1))) == 16.0
    assert max(ends(eight_gets_and_gemms(2))) == 10.0


def test_direct_execution_overlaps_as_the_story_says():
    """The same through umm.schedule: 9 ops, the first on a local tile; prefetch 0 hides nothing."""
    problem = umm.Problem(m=64, n=64, k=64, a="col", b="row@4", c="row@4", ranks=4)
    machine = umm.machine("pvc-12")
    spans = {}
    for prefetch in (0, 1):
        schedule = umm.schedule(problem, machine, stationary="C", prefetch=prefetch, max_gemms=1)
        trace = SimExecutor().run(schedule)
        compute = [
            (a, b) for a, b, kind in zip(trace.start, trace.end, schedule.kind, strict=True) if kind == GEMM
        ]
        gets = [
            (a, b) for a, b, kind in zip(trace.start, trace.end, schedule.kind, strict=True) if kind != GEMM
        ]
        spans[prefetch] = sum(1 for a, b in gets for c, d in compute if max(a, c) < min(b, d))
        assert ends(schedule)
    assert spans[0] == 0 or spans[0] < spans[1]


def readers_at_once(offset):
    """Most ranks that read one tile of B in the same instant, over a row x row → row problem."""
    problem = umm.Problem(m=96, n=96, k=96, a="row", b="row", c="row", ranks=8)
    schedule = umm.schedule(problem, "h100-8", stationary="C", offset=offset, prefetch=0, max_gemms=1)
    trace = SimExecutor().run(schedule)
    tile = schedule.touched_tiles(1)[:, 0]
    most = 0
    for at in set(trace.start.tolist()):
        reading = (schedule.kind == 0) & (trace.start <= at) & (at < trace.end)
        most = max([most, *(int((reading & (tile == t)).sum()) for t in range(8))])
    return most


def test_without_offset_all_ranks_read_the_same_tile_at_once():
    """Row x row → row on 8 ranks: 7 remote readers (the owner reads in place) without offset, with it 1."""
    assert readers_at_once("none") == 7
    assert readers_at_once("index") == 1


def test_an_accumulate_slows_its_own_rank_s_gemm_down():
    """A 4 s gemm at half its rate while 1 GB is accumulated: 1 s at 0.5, then 3.5 s."""
    lanes = [(1, "accumulate.0", None), (1, "compute", 0)]
    rows = [(0, "accumulate", [], (1, 0, 1)), (1, "gemm", [], 4.0)]
    schedule = story(rows, lanes=lanes, interference={"get": 0.0, "accumulate": 0.5, "reduce": 0.0})
    assert ends(schedule) == [1.0, 4.5]


def test_ranks_on_one_device_share_its_engine():
    """Gemms of 1 s and 3 s on one engine: the first ends at 2 s, the second at 4 s."""
    lanes = [(0, "compute", 0), (1, "compute", 0)]
    assert ends(story([(0, "gemm", [], 1.0), (1, "gemm", [], 3.0)], lanes=lanes)) == [2.0, 4.0]


def test_engines_may_have_any_numbers():
    """Two gemms of 1 s and 3 s on the last engine that a file can number: room for so many is not taken."""
    compute = [(rank, "compute", 2**63 - 1) for rank in (0, 1)]
    schedule = story([(0, "gemm", [], 1.0), (1, "gemm", [], 3.0)], lanes=compute)
    assert SimExecutor().run(schedule).end.tolist() == [2.0, 4.0]
    assert schedule_bound(schedule) == pytest.approx(4.0, rel=1e-9)


def test_a_barrier_waits_for_all_and_takes_no_time():
    lanes = [COMPUTE, (1, "compute", 1)]
    rows = [(0, "gemm", [], 1.0), (1, "gemm", [], 3.0), (-1, "barrier", [0, 1], None), (0, "gemm", [2], 1.0)]
    assert ends(story(rows, lanes=lanes)) == [1.0, 3.0, 3.0, 4.0]


def test_a_barrier_waits_for_a_barrier():
    rows = [(0, "gemm", [], 1.0), (-1, "barrier", [0], None), (-1, "barrier", [1], None)]
    assert ends(story([*rows, (0, "gemm", [2], 1.0)], lanes=[COMPUTE])) == [1.0, 1.0, 1.0, 2.0]


def test_a_transfer_waits_its_seconds_before_its_latency_and_takes_no_bandwidth_meanwhile():
    """Both 1 GB: one goes 0.25 s … 1.25 s alone; the other waits 1 s + 0.25 s, then goes alone too."""
    rows = [(0, "get", [], (1, 0, 1)), (1, "get", [], (1, 0, 1, 1.0))]
    wire = (("wire", GIGA, 0.25),)
    assert ends(story(rows, lanes=[COPY, COPY_1], links=wire)) == [1.25, 2.25]


def test_a_transfer_slows_its_rank_s_gemm_down_from_its_start_on():
    """1 s of waiting and 1 s of bytes, both at half the rate: 1 s of the gemm's 4 s is done, 3 are left."""
    lanes = [(1, "accumulate.0", None), (1, "compute", 0)]
    rows = [(0, "accumulate", [], (1, 0, 1, 1.0)), (1, "gemm", [], 4.0)]
    assert ends(story(rows, lanes=lanes, interference={"accumulate": 0.5})) == [2.0, 5.0]


def test_a_transfer_slows_its_own_rank_down_alone_where_ranks_share_a_device():
    """Two gemms of 2 s share one engine; in the 1 s of rank 0's get they do .25 s and .5 s.

    Rank 1's then ends at 4 s, and rank 0's last quarter second has the engine to itself.
    """
    lanes = [(0, "copy_in.0", None), (0, "compute", 0), (1, "compute", 0)]
    rows = [(0, "get", [], (1, 0, 1)), (1, "gemm", [], 2.0), (2, "gemm", [], 2.0)]
    assert ends(story(rows, lanes=lanes, interference={"get": 0.5})) == [1.0, 4.25, 4.0]


def test_the_means_of_a_transfer_says_what_its_rank_loses():
    """A put by a kernel takes a quarter of the rate, one by a copy engine nothing; without means, half."""
    lanes = [(1, "copy_out.0", None), (1, "compute", 0)]
    taken = []
    for more in ((), (0.0, 0), (0.0, 1)):
        rows = [(0, "put", [], (1, 0, 1, *more)), (1, "gemm", [], 4.0)]
        means = (("copy_engine", 0.0), ("kernel", 0.25))
        taken.append(max(ends(story(rows, lanes=lanes, interference={"put": 0.5}, means=means))))
    assert taken == [4.5, 4.0, 4.25]


def test_maps_and_copies_within_a_rank_share_the_engine_of_their_lane():
    """Three lanes on one engine: 1 s each takes 3 s; a fence of 1 s on a fourth takes 1 s."""
    lanes = [(0, "compute", 0), (0, "map", 0), (1, "compute", 0), (1, "fence", 0)]
    rows = [
        (0, "gemm", [], 1.0),
        (1, "map", [], 1.0),
        (2, "get", [], (1, 1, 1, 1.0)),
        (3, "local", [], 1.0),
    ]
    assert ends(story(rows, lanes=lanes)) == [3.0, 3.0, 3.0, 1.0]


def test_maps_and_copies_within_a_rank_take_their_seconds_on_a_lane_without_an_engine():
    """Neither slows the gemm down, nor does it slow them, however much a transfer disturbs the rank."""
    lanes = [(1, "compute", 0), (1, "map", None), (1, "copy_in.0", None), (1, "accumulate.0", None)]
    rows = [
        (0, "gemm", [], 1.0),
        (1, "map", [], 1.0),
        (2, "get", [], (1, 1, 1, 1.0)),
        (3, "accumulate", [], (1, 0, 1)),
    ]
    shares = {"get": 0.5, "accumulate": 0.5}
    assert ends(story(rows, lanes=lanes, interference=shares)) == [1.5, 1.0, 1.0, 1.0]


def test_a_map_on_an_engine_is_disturbed_as_a_gemm_is():
    lanes = [(1, "compute", 0), (1, "accumulate.0", None)]
    rows = [(0, "map", [], 1.0), (1, "accumulate", [], (1, 0, 1))]
    assert ends(story(rows, lanes=lanes, interference={"accumulate": 0.5})) == [1.5, 1.0]


MACHINES = st.sampled_from(["h100-8", "pvc-12", "pvc-12-planes", "h200-1", "localhost"])


@settings(max_examples=examples(150))
@given(
    problems(max_ranks=8, dtype="float32"),
    stationaries,
    offsets,
    MACHINES,
    st.integers(0, 2),
    st.integers(1, 2),
    st.integers(1, 2),
    finals,
)
def test_every_player_of_the_semantics_agrees(
    problem, stationary, offset, machine, prefetch, gemms, updates, final
):
    """The product, the process version and exact rational arithmetic give one makespan."""
    problem = (
        dataclasses.replace(problem, **{x: getattr(problem, x) * 97 for x in "mnk"})
        if _scales(problem)
        else problem
    )
    schedule = umm.schedule(
        problem, machine, stationary=stationary, offset=offset, prefetch=prefetch, max_gemms=gemms,
        max_accumulates=updates, final=final,
    )  # fmt: skip
    result = SimExecutor().makespan(schedule)
    if len(schedule) <= 80:
        assert result == pytest.approx(float(exact_replay.makespan(schedule)), rel=1e-9)
    if len(schedule) <= 150:
        assert result == pytest.approx(max(process_simulator.simulate(schedule)[1]), rel=1e-9)


@settings(max_examples=examples(60))
@given(programs(16))
def test_every_player_agrees_on_any_program(schedule):
    """Maps, copies within a rank on engines, means, waits and signals, several ranks on a device."""
    result = SimExecutor().makespan(schedule)
    assert result == pytest.approx(max(process_simulator.simulate(schedule)[1], default=0.0), rel=1e-9)
    if len(schedule) <= 60:
        assert result == pytest.approx(float(exact_replay.makespan(schedule)), rel=1e-9)


def _scales(problem):
    return not any(str(text).startswith(("edges", "cyclic")) for text in (problem.a, problem.b, problem.c))


@given(problems(max_ranks=8, dtype="float32"), stationaries, st.sampled_from(["h100-8", "pvc-12"]))
def test_the_makespan_is_at_least_every_lower_bound(problem, stationary, machine):
    """Compute roofline of every rank, and the busiest link's bytes over its bandwidth."""
    schedule = umm.schedule(problem, machine, stationary=stationary)
    result = SimExecutor().makespan(schedule) * (1 + 1e-12)
    for rank in range(problem.p):
        assert result >= schedule.seconds[(schedule.kind == GEMM) & (schedule.rank == rank)].sum()
    carried = dict.fromkeys(range(len(schedule.links.names)), 0)
    for src, dst, nbytes in zip(
        schedule.src.tolist(), schedule.dst.tolist(), schedule.nbytes.tolist(), strict=True
    ):
        for link in schedule.routes[src, dst] if src != dst else ():
            carried[link] += nbytes
    for link, nbytes in carried.items():
        assert result >= nbytes / schedule.links.bandwidth[link]


@given(problems(max_ranks=12, dtype="float32"), stationaries)
def test_json_gives_the_same_makespan(problem, stationary):
    """schedule.from_json(schedule.to_json()) performs the same, to the bit."""
    schedule = umm.schedule(problem, "pvc-12", stationary=stationary)
    again = umm.Schedule.from_json(schedule.to_json())
    assert SimExecutor().makespan(again) == SimExecutor().makespan(schedule)


def test_a_book_of_many_ranks_numbers_the_pairs_of_each_schedule_anew(monkeypatch):
    """As of more than 2,048 ranks; the makespan of 56 pairs is the same."""
    problem = umm.Problem(m=64, n=64, k=64, a="col", b="col", c="col", ranks=8)
    schedule = umm.schedule(problem, "h100-8")
    expected = SimExecutor().makespan(schedule)
    assert len(schedule.used_pairs()) == 56
    monkeypatch.setattr(routes, "MOST_NUMBERED", 12)
    anew = dataclasses.replace(schedule, routes=Routes(schedule.routes.links))
    assert SimExecutor().makespan(anew) == expected


def test_a_schedule_takes_the_same_time_to_the_last_bit_whatever_was_simulated_before():
    """On a ring of four: no two of its routes share a link, two of the other schedule do."""
    shape = {"m": 471, "n": 1445, "k": 1588, "ranks": 4, "dtype": "bfloat16"}
    machine = umm.machine("tpu-v5e-4")
    schedule = umm.schedule(umm.Problem(**shape, a="row", b="row@2", c="row@2"), machine)
    first = SimExecutor().makespan(schedule)
    across = umm.schedule(umm.Problem(**shape, a="row", b="row", c="row@2"), machine, stationary="A")
    assert across.routes is schedule.routes
    SimExecutor().makespan(across)
    assert SimExecutor().makespan(schedule) == first


def test_threads_that_simulate_at_once_see_complete_routes(monkeypatch):
    """One looks routes up slowly while others of the same fabric come."""
    problem = umm.Problem(m=64, n=64, k=64, a="col", b="col", c="col", ranks=8)
    schedule = umm.schedule(problem, "h100-8")
    expected, look_up = SimExecutor().makespan(schedule), routes.RouteBook._found
    monkeypatch.setattr(routes.RouteBook, "_found", lambda *args: (sleep(0.05), look_up(*args))[1])
    anew = dataclasses.replace(schedule, routes=Routes(schedule.routes.links))
    routes.book_of(anew)
    with ThreadPoolExecutor(4) as pool:
        assert {*pool.map(SimExecutor().makespan, [anew] * 4)} == {expected}


def test_columns_of_other_types_or_that_lie_apart_are_the_same_schedule():
    problem = umm.Problem(m=64, n=64, k=64, a="col", b="row", c="2d", ranks=4)
    schedule = umm.schedule(problem, "h100-8")
    apart = np.repeat(schedule.src, 2)[::2]
    columns = {"nbytes": schedule.nbytes.astype(np.float64), "kind": schedule.kind.astype(np.int64)}
    for changed in (columns, {"src": apart}):
        other = dataclasses.replace(schedule, **changed)
        assert SimExecutor().makespan(other) == SimExecutor().makespan(schedule) > 0


def test_a_makespan_of_what_never_finishes_is_refused():
    schedule = story([(0, "get", [], (1, 0, 1)), (1, "gemm", [0], 2.0)], lanes=[COPY, COMPUTE])
    waiting = dataclasses.replace(schedule, after_offsets=np.array([0, 1, 2]), after=np.array([1, 0]))
    with pytest.raises(ScheduleError, match="action 0 never finishes"):
        SimExecutor().makespan(waiting)

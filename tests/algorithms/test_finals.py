"""What becomes of a replicated C: summed by collectives into every replica, or cut over them."""

import numpy as np
import pytest
from examples import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import umm
from umm.algorithms.collectives.registry import ways
from umm.algorithms.registry import choices_in_words
from umm.algorithms.universal.options import Options
from umm.algorithms.universal.replicas import how_summed
from umm.schedules.table.kinds import BARRIER, REDUCE
from umm.traces.traffic import bytes_by_kind
from umm_hw.numpy.executor import NumpyExecutor
from umm_sim.executor import SimExecutor

SHIPPED = ("h100-8", "pvc-12", "pvc-12-planes", "dgx-h100x4", "frontera-rtx")
FINALS = ("reduce", "broadcast", "all-reduce", "reduce-scatter")


def replicated(m, n, k, c, ranks, **types):
    return umm.Problem(m=m, n=n, k=k, a="col", b="row", c=c, ranks=ranks, **types)


def test_row_parallel_sums_as_a_ring_does_not_through_one_port():
    """128 MiB of float32 on each of 8 H100s: after a collective's start 7/8 of it each way, at a copy's rate.

    Through replica 0 its port takes in 7 times 128 MiB, at 0.8 of its bandwidth, and gives them out again.
    """
    problem = replicated(4096, 8192, 28672, "row@8", 8, dtype="bfloat16")
    machine, seconds = umm.machine("h100-8"), {}
    for final in FINALS:
        schedule = umm.schedule(problem, machine, final=final)
        (first, *_) = np.nonzero(schedule.kind == BARRIER)[0].tolist()
        trace = umm.run(schedule)
        seconds[final] = trace.makespan_s - trace.end[first]
    nbytes, width, adds = 4096 * 8192 * 4, 374e9, machine.accumulate_efficiency
    into_one = 7 * nbytes / adds / width
    assert seconds["reduce"] == pytest.approx(into_one, rel=0.01)
    assert seconds["broadcast"] == pytest.approx(into_one + 7 * nbytes / width, rel=0.01)
    start, one_way = machine.collective_start_s, 7 / 8 * nbytes / width
    assert seconds["reduce-scatter"] == pytest.approx(start + one_way, rel=0.05)
    assert seconds["all-reduce"] == pytest.approx(start + 2 * one_way, rel=0.05)


@pytest.mark.parametrize("text", ["row@3", "2d:1x2@3:interleaved", "cyclic:2x3:2x1@3", "col@6"])
def test_an_all_reduce_completes_every_replica_and_a_scatter_a_part_of_each(text):
    """7x11 over 6 ranks, tiles of 1 to 7 rows: parts of ⌊h/3⌋ or one more rows, some of none."""
    problem = replicated(7, 11, 5, text, 6, dtype="float64")
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-8, 9, problem.shape(x)).astype(float) for x in "AB")
    everywhere = umm.schedule(problem, "pvc-12", final="all-reduce")
    results = NumpyExecutor(replica=None).run(everywhere, (a, b)).result
    assert np.array_equal(results, np.broadcast_to(a @ b, results.shape))
    cut = umm.schedule(problem, "pvc-12", final="reduce-scatter")
    assert np.array_equal(NumpyExecutor().run(cut, (a, b)).result, a @ b)
    every = NumpyExecutor(replica=None).run(cut, (a, b)).result
    layout = problem.layout("C")
    for start, stop in zip(layout.row_edges[:-1], layout.row_edges[1:], strict=True):
        for replica, held in enumerate(every):
            low, high = (start + (stop - start) * x // layout.replicas for x in (replica, replica + 1))
            assert np.array_equal(held[low:high], (a @ b)[low:high])
    assert not np.array_equal(every[0], a @ b)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(SHIPPED),
    st.sampled_from([2, 3, 4, 8, 16, 32]),
    st.sampled_from([(16, 32), (512, 512), (4096, 8192)]),
    st.sampled_from(["row", "col", "2d"]),
    st.data(),
)
def test_an_all_reduce_is_no_slower_than_through_the_origin(name, ranks, sizes, partition, data):
    """To 2 %, after its start: ways are compared by their longest path and busiest link, not simulated."""
    machine = umm.machine(name)
    assume(ranks <= machine.device_count)
    replicas = data.draw(st.sampled_from([c for c in range(2, ranks + 1) if ranks % c == 0]))
    problem = replicated(*sizes, 1024, f"{partition}@{replicas}", ranks)
    through, by_collective = (
        SimExecutor().makespan(umm.schedule(problem, machine, final=final))
        for final in ("broadcast", "all-reduce")
    )
    assert by_collective <= machine.collective_start_s + 1.02 * through


def test_the_way_is_the_one_that_takes_least_here():
    """Between nodes by nodes, a few bytes in two steps; the schedule and its words name it."""
    for (m, n), way in (((4096, 8192), "hierarchical"), ((16, 32), "star")):
        problem = replicated(m, n, 1024, "row@32", 32)
        schedule = umm.schedule(problem, "dgx-h100x4", final="all-reduce")
        assert schedule.options["sums_by"] == way
        found = how_summed(problem, umm.machine("dgx-h100x4"), Options(final="all-reduce"))
        assert min(found.seconds, key=found.seconds.get) == way
        assert set(found.seconds) < set(ways())
    assert choices_in_words(schedule).endswith("C summed into every replica, sums by star")


def test_a_collective_of_several_tiles_counts_as_reduces_and_broadcasts():
    """Each rank adds 3/4 of its two 8x8 tiles of C to others': 2 · 64 · 8 B · 3/4 a rank, 8 ranks."""
    problem = replicated(32, 8, 4, "cyclic:8x8:2x1@4", 8, dtype="float64")
    schedule = umm.schedule(problem, "h100-8", final="reduce-scatter", stationary="C")
    assert bytes_by_kind(schedule)["reduce"] == 8 * 2 * 64 * 8 * 3 // 4
    plain = umm.schedule(replicated(32, 8, 4, "row", 8, dtype="float64"), "h100-8", final="all-reduce")
    assert "sums_by" not in plain.options
    assert not np.any(plain.kind == REDUCE)

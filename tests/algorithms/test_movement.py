"""Multiplies by collectives: right and race-free, whatever is gathered, shared or summed."""

import numpy as np
import pytest
from drawn_ways import assert_case, assert_on_processes, machines_of_nodes

import umm
from umm.schedules.table.details import ACCUMULATE, GET
from umm_hw.mpi.executor import MpiExecutor
from umm_hw.mpi.job.job import MpiJob


@pytest.fixture(scope="session")
def nodes(tmp_path_factory):
    return machines_of_nodes(tmp_path_factory.mktemp("nodes"))


@pytest.mark.parametrize("seed", range(30))
def test_multiplies_by_collectives_are_right_and_race_free(seed, nodes):
    assert_case(seed, nodes)


@pytest.fixture(scope="module")
def mpi():
    job = MpiJob(4, timeout=120)
    yield MpiExecutor(job=job, replica=None)
    job.close()


@pytest.mark.mpi
def test_every_way_is_right_on_processes(nodes, mpi):
    for seed in range(40):
        assert_on_processes(seed, nodes, mpi)


def crossing(schedule, kinds, size=8):
    """Bytes that actions of some kinds move between nodes of so many ranks."""
    moves = np.isin(schedule.kind, kinds) & (schedule.src // size != schedule.dst // size)
    return int(schedule.payload[moves].sum())


@pytest.mark.parametrize(
    ("a", "b", "c", "stationary", "kind", "moved"),
    [("row", "col", "col", "C", GET, 512 * 256), ("col", "row", "row", "B", ACCUMULATE, 512 * 384)],
)
def test_on_two_levels_each_byte_crosses_once_for_a_node(a, b, c, stationary, kind, moved):
    """Four nodes of 8: A by rows is got, or C by rows added to, once by every other node; flat 8 times."""
    problem = umm.Problem(m=512, n=384, k=256, a=a, b=b, c=c, ranks=32)
    crossed = {}
    for movement in ("flat", "two-level"):
        schedule = umm.schedule(problem, "dgx-h100x4", stationary=stationary, movement=movement)
        crossed[movement] = crossing(schedule, [kind])
    assert crossed == {"flat": 8 * 3 * moved * 4, "two-level": 3 * moved * 4}


def test_on_one_node_two_levels_are_the_flat_schedule():
    problem = umm.Problem(m=512, n=384, k=256, a="row", b="col", c="2d@2", ranks=8)
    flat, two = (umm.schedule(problem, "h100-8", movement=x) for x in ("flat", "two-level"))
    assert umm.run(flat).makespan_s == umm.run(two).makespan_s
    assert len(flat) == len(two)


def test_gathered_and_chunks_are_quicker_than_flat_between_nodes():
    """A by rows is needed by all 32 ranks: 31/32 of it by each through its own card, or once a node."""
    problem = umm.Problem(m=8192, n=8192, k=8192, dtype="bfloat16", a="row", b="col", c="col", ranks=32)

    def seconds(movement):
        return umm.run(umm.schedule(problem, "dgx-h100x4", stationary="C", movement=movement)).makespan_s

    flat = seconds("flat")
    assert all(seconds(x) < flat / 4 for x in ("two-level", "gathered", "chunks"))

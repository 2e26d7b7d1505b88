"""The MPI executor: the conformance suite on real processes, more of them than cores."""

from functools import partial

import numpy as np
import pytest
from conformance.executor_suite import integer_operands, laws, scheduled
from conformance.fewer_examples import FewerPrograms, fewer
from conformance.program_suite import ProgramConformance
from examples import examples
from hypothesis import given, settings
from strategies import problems, schedule_options, stationaries

import umm
from umm_hw.mpi.executor import MpiExecutor

pytestmark = pytest.mark.mpi


class TestSharedMemory(fewer(ranks=12, examples=examples(60)), ProgramConformance):
    ranks = (2, 3, 4, 6)
    many = 12

    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls, lent):
        return partial(MpiExecutor, job=lent(12))


@pytest.fixture(scope="module")
def remote_job(lent):
    """Ranks that reach each other as if on different hosts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UMM_MPI_WINDOW", "remote")
        return lent(8)


@pytest.fixture(scope="module")
def remote(remote_job):
    return MpiExecutor(job=remote_job)


class TestProgramsAcrossHosts(FewerPrograms):
    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls, remote_job):
        return partial(MpiExecutor, job=remote_job)


@settings(laws, max_examples=examples(25))
@given(problem=problems(max_ranks=8), stationary=stationaries, options=schedule_options)
def test_the_way_across_hosts_gives_the_same_product(remote, problem, stationary, options):
    schedule = scheduled(problem, stationary, options)
    a, b = integer_operands(problem)
    assert np.array_equal(remote.run(schedule, (a, b)).result, a @ b)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_every_type_is_accumulated_across_hosts(remote, dtype):
    """Eight ranks add to each other's tiles of C, float16 too."""
    problem = umm.Problem(m=24, n=16, k=40, a="col", b="row", c="2d", ranks=8, dtype=dtype, c_dtype=dtype)
    a, b = integer_operands(problem)
    result = remote.run(umm.schedule(problem, "h100-8", stationary="A"), (a, b)).result
    assert result.dtype == dtype
    assert np.array_equal(result, a.astype(np.float64) @ b.astype(np.float64))


def test_runs_of_one_schedule_give_a_trace_each(remote):
    schedule = umm.schedule(umm.Problem(m=16, n=16, k=16, b="col", ranks=4), "h100-8")
    traces = remote.runs(schedule, repeat=3)
    assert len({trace.makespan_s for trace in traces}) == 3
    assert all(trace.result is traces[0].result for trace in traces)

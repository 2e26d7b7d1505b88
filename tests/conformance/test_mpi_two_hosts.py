"""Programs on MPI processes of two hosts, launched by one mpiexec: every hop of a ring crosses the cable."""

from functools import partial

import numpy as np
import pytest
from conformance.executor_suite import MACHINE, integer_operands
from conformance.fewer_examples import FewerPrograms
from conformance.two_hosts import NamespaceError, two_hosts

import umm
from umm_hw.mpi.executor import MpiExecutor
from umm_hw.mpi.job.job import MpiJob

pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Six ranks, the even ones on one host, the odd ones on the other."""
    with pytest.MonkeyPatch.context() as patch:
        try:
            hosts = two_hosts(tmp_path_factory.mktemp("hosts"))
            mpiexec = hosts.__enter__().mpiexec
        except NamespaceError as error:
            pytest.skip(f"NOT TESTED ON TWO HOSTS: {error}")
        patch.setattr("umm_hw.mpi.job.job.find_mpiexec", lambda: mpiexec)
        try:
            made = MpiJob(6, timeout=120)
            yield made
            made.close()
        finally:
            hosts.__exit__(None, None, None)


class TestTwoHosts(FewerPrograms):
    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls, job):
        return partial(MpiExecutor, job=job)


def test_neighbouring_ranks_are_on_different_hosts(job):
    hosts = [host for host, _ in job.processes]
    assert hosts == [hosts[0], hosts[1]] * 3
    assert hosts[0] != hosts[1]


@pytest.mark.parametrize(
    ("algorithm", "ranks", "options"),
    [
        ("cannon", 4, {}),
        ("summa", 6, {"broadcast": "ring", "chunks": 2}),
        ("ring", 5, {}),
        ("2.5d", 4, {}),
        ("universal", 6, {}),
    ],
)
def test_an_algorithm_is_exact_across_hosts(job, algorithm, ranks, options):
    problem = umm.Problem(m=13, n=11, k=14, a="row", b="col", c="2d", ranks=ranks, dtype="float64")
    a, b = integer_operands(problem)
    schedule = umm.schedule(problem, MACHINE, algorithm=algorithm, **options)
    assert np.array_equal(MpiExecutor(job=job).run(schedule, (a, b)).result, a @ b)

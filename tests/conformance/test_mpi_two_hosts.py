"""Programs on MPI processes of two hosts, launched by one mpiexec: every hop of a ring crosses the cable."""

from functools import partial

import pytest
from conformance.fewer_examples import FewerPrograms
from conformance.two_hosts import NamespaceError, two_hosts

from umm_hw.mpi.executor import MpiExecutor
from umm_hw.mpi.job.job import MpiJob

pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Six ranks, the even ones on one host, the odd ones on the other."""
    with pytest.MonkeyPatch.context() as patch:
        try:
            hosts = two_hosts(tmp_path_factory.mktemp("hosts"))
            mpiexec = hosts.__enter__()
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

"""The MPI transport: the conformance suite through shared memory, and through the way across hosts."""

import pytest
from conformance.transport_suite import TransportConformance

from umm_hw.mpi.job.job import MpiJob

pytestmark = pytest.mark.mpi


class TestSharedMemory(TransportConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def run_ranks(cls):
        job = MpiJob(12, timeout=120)
        yield job.call
        job.close()


class TestRemoteMemory(TransportConformance):
    """Rget, Rput and Raccumulate, as between hosts, though all ranks are on this one."""

    @pytest.fixture(scope="class")
    @classmethod
    def run_ranks(cls):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("UMM_MPI_WINDOW", "remote")
            job = MpiJob(12, timeout=120)
        yield job.call
        job.close()

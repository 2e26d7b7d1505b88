"""The MPI transport: the conformance suite through shared memory, and through the way across hosts."""

import pytest
from conformance.transport_suite import TransportConformance
from examples import WHOLE

pytestmark = pytest.mark.mpi


class TestSharedMemory(TransportConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def run_ranks(cls, lent):
        return lent(12).call


class TestRemoteMemory(TransportConformance):
    """Rget, Rput and Raccumulate, as between hosts, though all ranks are on this one."""

    most = 12 if WHOLE else 8

    @pytest.fixture(scope="class")
    @classmethod
    def run_ranks(cls, lent):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("UMM_MPI_WINDOW", "remote")
            return lent(cls.most).call

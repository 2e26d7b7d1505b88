"""The MPI executor: the conformance suite on real processes, more of them than cores."""

from functools import partial

import pytest
from conformance.executor_suite import ExecutorConformance

from umm_hw.mpi_executor import MpiExecutor
from umm_hw.mpi_job import MpiJob

pytestmark = pytest.mark.mpi


class TestSharedMemory(ExecutorConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls):
        job = MpiJob(16, timeout=120)
        yield partial(MpiExecutor, job=job)
        job.close()

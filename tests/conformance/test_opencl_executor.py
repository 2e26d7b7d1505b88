"""The OpenCL executor on a real device: the conformance suites, by PoCL on the cores of this host.

Without pyopencl all of it is skipped, loudly; ``make test-opencl`` installs it from wheels.
"""

import pytest

pytest.importorskip(
    "pyopencl", reason="pyopencl is not installed: the OpenCL executor was NOT tested; make test-opencl does"
)

from functools import partial

from conformance.executor_suite import ExecutorConformance
from conformance.program_suite import ProgramConformance

from umm_hw.opencl.executor import OpenClExecutor


class TestOneDevice(ExecutorConformance, ProgramConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls):
        return partial(OpenClExecutor, device="cpu")

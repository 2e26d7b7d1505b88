"""Every algorithm on every executor: NumPy in row and random order, MPI, and doubles of CUDA and NVSHMEM.

``UMM_TEST_GPU=1`` (make test-gpu) runs them on real GPUs too.
"""

import os
from functools import partial

import pytest
from conformance.algorithm_suite import AlgorithmConformance, all_replicas_are_right, requests, scheduled
from conformance.executor_suite import MACHINE, laws
from conformance.test_cuda_executor import fake_executor
from conformance.test_nvshmem_executor import FakeNvshmem
from examples import WHOLE, examples
from hypothesis import given, settings
from hypothesis import strategies as st

import umm
from umm.algorithms.scheduling import algorithms
from umm_hw.cuda.executor import CudaExecutor
from umm_hw.mpi.executor import MpiExecutor
from umm_hw.numpy.executor import NumpyExecutor


class TestRowOrder(AlgorithmConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls):
        return NumpyExecutor


class TestRandomOrder(AlgorithmConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls):
        return partial(NumpyExecutor, order="random", seed=5)


@settings(laws, max_examples=examples(40))
@given(requests(), st.integers(0, 2**32))
def test_any_order_that_the_dependencies_allow_gives_the_product(request, seed):
    """Whatever the algorithm, its options and the layouts, in all replicas."""
    assert all_replicas_are_right(scheduled(request), NumpyExecutor("random", seed, replica=None))


class TestCudaOneDevice(AlgorithmConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls):
        return partial(fake_executor, 1)


class TestCudaFourDevices(AlgorithmConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls):
        return partial(fake_executor, 4)


if os.environ.get("UMM_TEST_GPU"):

    class TestRealDevices(AlgorithmConformance):
        @pytest.fixture(scope="class")
        @classmethod
        def executor(cls):
            return CudaExecutor


# Ranks of NVSHMEM's double are threads that poll: each class takes half of the numbers of ranks.
class TestNvshmemOneNode(AlgorithmConformance):
    numbers = slice(None) if WHOLE else slice(0, None, 2)

    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls):
        return FakeNvshmem


class TestNvshmemTwoRanksPerNode(AlgorithmConformance):
    numbers = slice(None) if WHOLE else slice(1, None, 2)

    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls):
        return partial(FakeNvshmem, 2)


@pytest.mark.mpi
class TestMpi(AlgorithmConformance):
    most = 16 if WHOLE else 12

    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls, lent):
        return partial(MpiExecutor, job=lent(cls.most))

    @pytest.mark.parametrize(
        ("name", "ranks", "options"),
        [
            ("cannon", 4, {}),
            *(("ring", ranks, {}) for ranks in range(2, 7)),
            *(("ring", ranks, {"collective": "reduce-scatter"}) for ranks in range(2, 7)),
            *(("summa", ranks, {"broadcast": "ring", "panel": 3, "prefetch": 2}) for ranks in range(2, 7)),
        ],
    )
    def test_processes_wait_for_what_others_pass_on(self, executor, name, ranks, options):
        """Rings, shifts and pipelined broadcasts: almost every action waits for one of another rank."""
        algorithm, size = algorithms()[name], {"m": 24, "n": 30, "k": 36, "dtype": "float64"}
        native = algorithm.native(umm.Problem(**size, ranks=ranks), **algorithm.chosen(options))
        problem = umm.Problem(**size, a=native.a, b=native.b, c=native.c)
        schedule = umm.schedule(problem, MACHINE, algorithm=name, **options)
        assert all_replicas_are_right(schedule, executor(replica=None))

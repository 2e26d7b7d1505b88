"""The calls of the NVSHMEM library exist in NVSHMEM4Py, where it is installed; no GPU is needed to look."""

import inspect
import re

import numpy as np
import pytest
from conformance.fake_nvshmem4py import Bindings, Core

bindings = pytest.importorskip("nvshmem.bindings", reason="pip install 'umm-sim[nvshmem]' brings NVSHMEM4Py")


def parameters(function):
    return [name for name in inspect.signature(function).parameters if name != "self"]


@pytest.mark.parametrize("name", [name for name in vars(Bindings) if name[0].islower()])
def test_its_calls_take_their_arguments_as_the_tests_do(name):
    """Each docstring begins with a signature."""
    signature = getattr(bindings, name).__doc__.splitlines()[0]
    inside = re.search(r"\((.*?)\)", signature)[1]
    assert [argument.split()[-1] for argument in inside.split(", ")] == parameters(getattr(Bindings, name))


@pytest.mark.parametrize("name", ["get_unique_id", "init", "init_status", "finalize"])
def test_starting_and_ending_take_their_arguments_as_in_the_tests(name):
    core = pytest.importorskip("nvshmem.core")
    assert parameters(getattr(core, name)) == parameters(getattr(Core, name))


def test_a_unique_id_is_128_bytes_and_the_states_of_having_started_are_2_to_4():
    assert bindings.uniqueid()._data.view(np.int8).shape == (128,)
    names = ("STATUS_IS_INITIALIZED", "STATUS_LIMITED_MPG", "STATUS_FULL_MPG")
    assert [int(bindings.Init_status[name]) for name in names] == [2, 3, 4]
    assert int(bindings.Signal_op.SIGNAL_SET) == Bindings.Signal_op.SIGNAL_SET


def test_the_driver_waits_for_values_of_64_bits():
    driver = pytest.importorskip("cuda.bindings.driver")
    assert driver.cuStreamWaitValue64.__doc__.splitlines()[0] == (
        "cuStreamWaitValue64(stream, addr, value, unsigned int flags)"
    )
    flags = driver.CUstreamWaitValue_flags
    assert int(flags.CU_STREAM_WAIT_VALUE_GEQ) == 0
    assert int(flags.CU_STREAM_WAIT_VALUE_FLUSH) == 1 << 30

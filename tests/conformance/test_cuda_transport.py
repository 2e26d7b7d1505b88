"""The CUDA transport over GPUs that are NumPy underneath: the conformance suite and tests of its own."""

import os
from concurrent.futures import ThreadPoolExecutor
from threading import BrokenBarrierError

import numpy as np
import pytest
from conformance.fake_device import FakeDevice, FakeWorld
from conformance.transport_suite import TransportConformance

import umm_hw
from umm.errors import ExecutorUnavailableError, InputError
from umm.layouts.layout import Layout
from umm_hw.bfloat16 import BFLOAT16, to_bfloat16, to_float32
from umm_hw.devices.transport import DeviceTransport, owner_devices
from umm_hw.gpu.visible import visible_gpus
from umm_hw.matrix import DistributedMatrix
from umm_hw.transport import Block


def run_ranks(first, program):
    """A thread for each virtual rank; a failing one fails them all."""

    def run(rank):
        try:
            return program(first.as_rank(rank))
        except BaseException:
            first.abort()
            raise

    with ThreadPoolExecutor(max_workers=first.size) as threads:
        futures = [threads.submit(run, rank) for rank in range(first.size)]
    errors = [future.exception() for future in futures if future.exception() is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, BrokenBarrierError)):
        raise error
    first.close()
    return [future.result() for future in futures]


class TestOneDevice(TransportConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def run_ranks(cls):
        return lambda size, program: run_ranks(
            DeviceTransport(size, FakeWorld(fail_on_deadlock=False).devices(1)), program
        )


class TestThreeDevices(TransportConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def run_ranks(cls):
        return lambda size, program: run_ranks(
            DeviceTransport(size, FakeWorld(eager=0.0, fail_on_deadlock=False).devices(3)), program
        )


if os.environ.get("UMM_TEST_GPU"):

    class TestRealDevices(TransportConformance):
        @pytest.fixture(scope="class")
        @classmethod
        def run_ranks(cls):
            return lambda size, program: run_ranks(DeviceTransport(size, visible_gpus()), program)


def test_neighbouring_ranks_share_a_device_and_spare_devices_stay_empty():
    """8 ranks on 3 devices: 3, 3 and 2; 2 ranks on 3 devices: one each."""
    assert owner_devices(8, "abc") == list("aaabbbcc")
    assert owner_devices(2, "abc") == list("ab")


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BFLOAT16])
def test_half_precision_is_accumulated_into_float32_without_losing_bits(dtype):
    """2048 + 1 in float32; in float16 it would be 2048."""
    transport = DeviceTransport(2, FakeWorld().devices(2))
    heap = transport.allocate([0, 16])
    target = Block(1, heap, 0, 1, 4, 4, np.dtype(np.float32))
    for value in (2048.0, 1.0):
        array = np.full((1, 4), value, np.float32)
        transport.accumulate(to_bfloat16(array) if dtype == BFLOAT16 else array.astype(dtype), target)
    sums = np.empty((1, 4), np.float32)
    transport.get(target, sums)
    assert sums.tolist() == [[2049.0] * 4]


def test_bfloat16_is_accumulated_into_bfloat16():
    transport = DeviceTransport(1, FakeWorld().devices(1))
    block = Block(0, transport.allocate([4]), 0, 1, 2, 2, BFLOAT16)
    for value in (1.5, 2.25):
        transport.accumulate(to_bfloat16(np.full((1, 2), value)), block)
    sums = np.empty((1, 2), BFLOAT16)
    transport.get(block, sums)
    assert to_float32(sums).tolist() == [[3.75, 3.75]]


def test_arrays_of_the_device_are_got_put_and_accumulated_there():
    transport = DeviceTransport(2, FakeWorld().devices(2))
    heap = transport.allocate([32, 32])
    source, target = (Block(rank, heap, 0, 2, 2, 2, np.dtype(np.float64)) for rank in (0, 1))
    view = transport.view(source)
    view[...] = 3.0
    transport.put(view, target)
    transport.accumulate(view, target)
    transport.get(target, view)
    assert view.tolist() == [[6.0, 6.0], [6.0, 6.0]]


def test_a_link_without_atomic_adds_is_refused_unless_copies_land():
    devices = FakeWorld().devices(2)
    devices[0].reach = lambda other: "the link from GPU 0 to GPU 1 carries no atomic adds"
    with pytest.raises(ExecutorUnavailableError, match="no atomic adds; accumulate=landing copies instead"):
        DeviceTransport(2, devices)
    DeviceTransport(2, devices, accumulate="landing")
    DeviceTransport(1, devices)


def test_an_unknown_way_to_accumulate_is_refused():
    with pytest.raises(InputError, match="accumulate 'push' is unknown; choose from kernel, landing"):
        DeviceTransport(1, FakeWorld().devices(1), accumulate="push")
    with pytest.raises(InputError, match="blocks = 0 is not possible"):
        DeviceTransport(1, FakeWorld().devices(1), blocks=0)


def test_memory_of_another_rank_is_not_viewed():
    transport = DeviceTransport(2, FakeWorld().devices(1))
    heap = transport.allocate([8, 8])
    with pytest.raises(InputError, match="rank 0 cannot view memory of rank 1; get copies it"):
        transport.view(Block(1, heap, 0, 1, 1, 1, np.dtype(np.float64)))


def test_all_ranks_free_together():
    """Then the next heap is number 0 again."""

    def program(transport):
        heaps = [transport.allocate([8, 8])]
        transport.free()
        return [*heaps, transport.allocate([4, 4])]

    world = FakeWorld(fail_on_deadlock=False)
    assert run_ranks(DeviceTransport(2, world.devices(2)), program) == [[0, 0], [0, 0]]
    assert world.memory == {}


def test_all_memory_is_given_back():
    world = FakeWorld()
    transport = DeviceTransport(3, world.devices(2))
    transport.allocate([8, 8, 8])
    transport.accumulate(np.ones((1, 1)), Block(2, 0, 0, 1, 1, 1, np.dtype(np.float64)))
    assert [transport.as_rank(rank).nbytes for rank in range(3)] == [8, 8, 8]
    transport.close()
    assert world.memory == {}


class Opaque(FakeDevice):
    """A GPU whose arrays NumPy cannot read."""

    def view(self, region):
        return object()


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), BFLOAT16])
def test_matrices_of_gpus_are_saved_and_loaded_through_the_host(tmp_path, dtype):
    """Four ranks on two GPUs save, two on one load in another layout, bit for bit."""
    array = np.random.default_rng(0).standard_normal((7, 5)).astype(np.float32)
    array = to_bfloat16(array) if dtype == BFLOAT16 else array

    def save(transport):
        matrix = DistributedMatrix(transport, Layout.parse("2d@2", (7, 5), 4), dtype)
        for tile in matrix.layout.tiles_of(transport.rank):
            rows, cols = matrix.tile_bounds(tile)
            transport.put(array[rows.slice, cols.slice], matrix.block(tile))
        umm_hw.save(tmp_path, {"X": matrix})

    def load(transport):
        matrix = DistributedMatrix(transport, Layout.parse("col", (7, 5), 2), dtype)
        umm_hw.load(tmp_path, {"X": matrix})
        return [matrix.get_tile(tile) for tile in matrix.layout.tiles_of(transport.rank)]

    for size, devices, program in ((4, 2, save), (2, 1, load)):
        world = FakeWorld(fail_on_deadlock=False)
        result = run_ranks(DeviceTransport(size, [Opaque(world, x) for x in range(devices)]), program)
    assert np.hstack([tile for tiles in result for tile in tiles]).tobytes() == array.tobytes()

"""Layouts against the real torch and JAX: each rank's piece, uneven sizes included, and there and back."""

import os
from math import prod

import numpy as np
import pytest
from examples import examples
from framework_words import MESHES, dtensors, held
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import SIZES, layout_texts

from umm import Layout
from umm.errors import LayoutError

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=12"
torch = pytest.importorskip("torch", reason="torch is not installed; make test-frameworks has it")
jax = pytest.importorskip("jax", reason="jax is not installed; make test-frameworks has it")
dist = torch.distributed
RANKS = 12
settings.register_profile("real", deadline=None, max_examples=examples(60))
settings.load_profile("real")


@pytest.fixture(scope="module", autouse=True)
def group():
    """A process group of which this process is rank 0 and nobody else is there."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    yield
    dist.destroy_process_group()


def real_mesh(ranks):
    from torch.distributed.device_mesh import DeviceMesh

    return DeviceMesh("cpu", torch.tensor(ranks), _init_backend=False)


def real_placements(texts):
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.placement_types import _StridedShard

    names = {
        "Shard": Shard,
        "Replicate": Replicate,
        "_StridedShard": lambda d, s: _StridedShard(d, split_factor=s),
    }
    return [
        names[text.partition("(")[0]](*[int(x) for x in text.partition("(")[2].strip(")").split(",") if x])
        for text in texts
    ]


def torch_holds(mesh, placements, shape):
    """Rows and columns of each rank as torch's own splitting gives them."""
    from torch.distributed.tensor import Replicate

    result = [None] * mesh.size
    for at in np.ndindex(mesh.shape):
        index = [torch.arange(size) for size in shape]
        for i, parts, placement in zip(at, mesh.shape, placements, strict=True):
            if isinstance(placement, Replicate):
                continue
            full = index[placement.dim].reshape((-1, 1) if placement.dim == 0 else (1, -1))
            pieces, _ = placement._split_tensor(full, parts, with_padding=False)
            index[placement.dim] = pieces[i].reshape(-1)
        sides = [sorted(side.tolist()) for side in index]
        result[int(mesh[at])] = sides if all(sides) else [[], []]
    return result


@given(dtensors())
def test_each_rank_holds_what_torch_gives_it_and_placements_come_back(asked):
    shape_of_mesh, texts, shape = asked
    ranks = np.arange(prod(shape_of_mesh)).reshape(shape_of_mesh)
    mesh, placements = real_mesh(ranks), real_placements(texts)
    layout = Layout.from_dtensor(mesh, placements, shape)
    assert held(layout) == torch_holds(ranks, placements, shape)
    again = layout.to_dtensor(mesh)
    assert torch_holds(ranks, again, shape) == held(layout)
    assert Layout.from_dtensor(mesh, again, shape) == layout
    result = layout.to_dtensor()
    ranks = np.array(result.mesh).reshape(result.shape)
    assert Layout.from_dtensor(real_mesh(ranks), real_placements(result.placements), shape) == layout


@given(dtensors())
def test_local_shapes_and_offsets_are_those_of_dtensor(asked):
    from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset as of_torch

    mesh, texts, shape = asked
    placements = real_placements(texts)
    for rank, (at, sides) in enumerate(zip(np.ndindex(mesh), held(Layout.from_dtensor(*asked)), strict=True)):
        local, offset = of_torch(shape, mesh, list(at), placements)
        if all(sides):
            assert (local, offset) == (tuple(map(len, sides)), tuple(side[0] for side in sides)), rank
        else:
            assert 0 in local


@given(st.data(), SIZES, SIZES, st.sampled_from([1, 2, 3, 4, 6, 8, 12]))
def test_any_layout_that_can_be_said_is_so_in_torch(data, m, n, ranks):
    layout = Layout.parse(data.draw(layout_texts((m, n), ranks)), (m, n), ranks)
    try:
        result = layout.to_dtensor()
    except LayoutError:
        return
    mesh = np.array(result.mesh).reshape(result.shape)
    assert torch_holds(mesh, real_placements(result.placements), (m, n)) == held(layout)


def test_a_dtensor_itself_says_its_layout():
    from torch.distributed.tensor import distribute_tensor

    mesh = real_mesh(np.arange(4).reshape(2, 2))
    x = distribute_tensor(
        torch.zeros(5, 6), mesh, real_placements(["Shard(1)", "Shard(0)"]), src_data_rank=None
    )
    layout = Layout.from_dtensor(x)
    assert str(layout) == "2d:2x2:colmajor"
    assert list(x.placements) == layout.to_dtensor(mesh)
    assert tuple(x.to_local().shape) == layout.tile_shape((0, 0))
    assert Layout.from_dtensor(x._spec) == layout


def test_a_mesh_that_cannot_have_a_layout_is_refused():
    with pytest.raises(LayoutError, match="2d cannot be had on a mesh of 4; to_dtensor"):
        Layout.parse("2d", (8, 8), ranks=4).to_dtensor(real_mesh(np.arange(4)))


# JAX ----------------------------------------------------------------------------------------------


def jax_holds(sharding, shape):
    """Rows and columns of each device."""
    result = {}
    for device, index in sharding.devices_indices_map(shape).items():
        result[device.id] = [
            list(range(*side.indices(size))) for side, size in zip(index, shape, strict=True)
        ]
    return [result[number] for number in sorted(result)]


@given(MESHES, st.data())
def test_each_device_holds_what_jax_gives_it_and_shardings_come_back(shape_of_mesh, data):
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    names = tuple("xyz"[: len(shape_of_mesh)])
    ranks = data.draw(st.permutations(range(prod(shape_of_mesh))))
    mesh = Mesh(np.array(jax.devices())[np.array(ranks)].reshape(shape_of_mesh), names)
    order = data.draw(st.permutations(names))
    cuts = sorted(data.draw(st.tuples(*[st.integers(0, len(names))] * 2)))
    spec = tuple(order[: cuts[0]]), tuple(order[cuts[0] : cuts[1]])
    shape = data.draw(st.tuples(st.sampled_from([5, 6, 12, 24]), st.sampled_from([4, 12, 36])))
    sharding = NamedSharding(mesh, PartitionSpec(*(axes or None for axes in spec)))
    try:
        real = jax_holds(sharding, shape)
    except ValueError:  # sizes that do not divide: refused there and here
        with pytest.raises(LayoutError, match="JAX shards only sizes that divide"):
            Layout.from_jax(sharding, shape=shape)
        return
    layout = Layout.from_jax(sharding, shape=shape)
    assert held(layout) == real
    assert layout.to_jax(mesh).is_equivalent_to(sharding, 2)
    assert Layout.from_jax(layout.to_jax(mesh), shape=shape) == layout
    result = layout.to_jax()
    devices = np.array(jax.devices())[np.array(result.mesh)].reshape([n for _, n in result.axes])
    again = NamedSharding(Mesh(devices, [name for name, _ in result.axes]), PartitionSpec(*result.spec))
    assert jax_holds(again, shape) == real


@given(st.data(), st.sampled_from([1, 2, 3, 4, 6, 8, 12]))
def test_any_layout_that_can_be_said_is_so_in_jax(data, ranks):
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    shape = data.draw(st.tuples(st.sampled_from([5, 12, 24, 48]), st.sampled_from([7, 12, 48])))
    layout = Layout.parse(data.draw(layout_texts(shape, ranks)), shape, ranks)
    try:
        result = layout.to_jax()
    except LayoutError:
        return
    devices = np.array(jax.devices())[np.array(result.mesh)].reshape([n for _, n in result.axes])
    sharding = NamedSharding(Mesh(devices, [name for name, _ in result.axes]), PartitionSpec(*result.spec))
    assert jax_holds(sharding, shape) == held(layout)


def test_an_array_itself_says_its_layout():
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("x", "y"))
    x = jax.device_put(np.zeros((8, 8)), NamedSharding(mesh, PartitionSpec("y")))
    assert str(Layout.from_jax(x)) == "row@2"
    with pytest.raises(LayoutError, match="2d cannot be had on a mesh of x:8; to_jax"):
        Layout.parse("2d", (8, 8), ranks=8).to_jax(Mesh(np.array(jax.devices()[:8]), ("x",)))
    with pytest.raises(LayoutError, match="SingleDeviceSharding is no NamedSharding"):
        Layout.from_jax(jax.numpy.zeros((4, 4)))

"""umm's cost in the place of torch's: real specs, and a DTensor that chooses by it."""

from itertools import product

import pytest

import umm
from umm.errors import InputError
from umm.torch import installed, redistribute_cost

torch = pytest.importorskip("torch", reason="torch is not installed; make test-frameworks has it")
dist = torch.distributed


@pytest.fixture(scope="module", autouse=True)
def group():
    """This process as rank 0 of eight that are not there."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
    yield
    dist.destroy_process_group()


def dtensor(shape, *placements):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import distribute_tensor

    mesh = DeviceMesh("cpu", torch.arange(4).reshape(2, 2))
    return distribute_tensor(torch.zeros(shape), mesh, placements, src_data_rank=None)


def test_real_specs_are_taken_and_obey_the_triangle_inequality():
    from torch.distributed.tensor import Replicate, Shard

    machine = umm.machine("h100-8")
    every = list(product((Replicate(), Shard(0), Shard(1)), repeat=2))
    specs = [dtensor((64, 96), *x)._spec for x in every]
    costs = [[redistribute_cost(a, b, machine=machine) for b in specs] for a in specs]
    for x, y, z in product(range(len(specs)), repeat=3):
        assert costs[x][z] <= (costs[x][y] + costs[y][z]) * (1 + 1e-12)
    assert all(costs[x][x] == 0 for x in range(len(specs)))


def test_dtensor_chooses_by_it_within_the_block():
    from torch.distributed.tensor import Shard, _collective_utils
    from torch.distributed.tensor._ops import utils

    theirs = _collective_utils.redistribute_cost
    a, b = dtensor((64, 96), Shard(0), Shard(1)), dtensor((96, 32), Shard(0), Shard(0))
    with installed("h100-8"):
        assert utils.redistribute_cost.func is redistribute_cost
        c = torch.mm(a, b)
    assert c.shape == (64, 32)
    assert utils.redistribute_cost is _collective_utils.redistribute_cost is theirs


def test_a_torch_without_a_private_name_is_refused_in_a_line(monkeypatch):
    """Nothing is replaced then."""
    from torch.distributed.tensor import _collective_utils

    theirs = _collective_utils.redistribute_cost
    monkeypatch.delattr(torch._C, "_clear_DTensor_sharding_propagator_cache")
    with pytest.raises(InputError, match=r"PyTorch 2\.13 has it: pip install"), installed("h100-8"):
        pass
    assert _collective_utils.redistribute_cost is theirs

"""DTensor's matmul against umm's model of it: ways chosen, collectives issued, local shapes."""

from collections import Counter
from itertools import product

import numpy as np
import pytest

import umm
from umm.algorithms.dtensor.algorithm import DeviceMesh
from umm.algorithms.dtensor.choice import Mesh, chosen_way, redistribute_cost, steps

torch = pytest.importorskip("torch", reason="torch is not installed; make test-frameworks has it")
dist = torch.distributed
RANKS = 8
MESHES = [(4,), (8,), (2, 2), (2, 3), (4, 2), (2, 2, 2), (4, 1), (2, 1, 3)]
COLLECTIVE = {
    ("Shard", "Replicate"): "all_gather",
    ("Shard", "Shard"): "all_gather",  # on CPUs DTensor gathers and cuts in place of an all-to-all
    ("Partial", "Replicate"): "all_reduce",
    ("Partial", "Shard"): "reduce_scatter",
}


@pytest.fixture(scope="module", autouse=True)
def eight_gpus_on_a_host():
    """This process as rank 0 of eight that are not there, on a host that is said to have eight devices."""
    from torch.distributed.tensor import _collective_utils
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    resources = _collective_utils._mesh_resources
    counted, resources.num_devices_per_host = resources.num_devices_per_host, lambda device: RANKS
    yield
    resources.num_devices_per_host = counted
    dist.destroy_process_group()


@pytest.fixture
def chosen(monkeypatch):
    """The strategies that DTensor selects, in order."""
    from torch.distributed.tensor import _sharding_prop

    result, select = [], _sharding_prop._select_min_cost_strategy

    def recorded(*args, **named):
        result.append(select(*args, **named))
        return result[-1]

    monkeypatch.setattr(_sharding_prop, "_select_min_cost_strategy", recorded)
    return result


def real(name):
    from torch.distributed.tensor import Replicate, Shard

    return Replicate() if name == "Replicate" else Shard(int(name[6]))


def named(placements):
    """Placements as umm names them."""
    names = {"Partial": "Partial", "Replicate": "Replicate"}
    return tuple(names.get(type(x).__name__) or f"Shard({x.dim})" for x in placements)


def dtensor(shape, mesh, placements):
    """A DTensor of rank 0, whose numbers do not matter."""
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    placements = [real(x) for x in placements]
    local, _ = compute_local_shape_and_global_offset(torch.Size(shape), mesh, placements)
    return DTensor.from_local(
        torch.zeros(local), mesh, placements, run_check=False, shape=torch.Size(shape), stride=(shape[1], 1)
    )


def device_mesh(shape):
    from torch.distributed.device_mesh import DeviceMesh as Real

    return Real("cpu", torch.arange(int(np.prod(shape))).reshape(shape))


def drawn(seed, count):
    """Meshes, sizes and placements of A, B and C."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        shape = MESHES[rng.integers(len(MESHES))]
        sizes = tuple(int(x) for x in rng.choice([5, 16, 63, 512, 1024], 3))
        placements = [
            tuple(rng.choice(["Shard(0)", "Shard(1)", "Replicate"], len(shape)).tolist()) for _ in "ABC"
        ]
        yield shape, sizes, placements


def issued(mesh, *redistributions):
    """The collectives of redistributions; narrowing needs none, nor does an axis of one rank."""
    transitions = [x for pair in redistributions for x in steps(*pair, mesh) if mesh[x.axis] > 1]
    kinds = [(x.now.partition("(")[0], x.then.partition("(")[0]) for x in transitions]
    return Counter(COLLECTIVE[kind] for kind in kinds if kind[0] != "Replicate")


def test_ways_collectives_and_local_shapes_are_those_of_dtensor(chosen):
    from torch.distributed.tensor.debug import CommDebugMode

    seen = 0
    for shape, (m, n, k), (pa, pb, pc) in drawn(0, 80):
        mesh, ours = device_mesh(shape), DeviceMesh(np.arange(int(np.prod(shape))).reshape(shape))
        a, b = dtensor((m, k), mesh, pa), dtensor((k, n), mesh, pb)
        way = chosen_way(((m, k), (k, n)), 4, pa, pb, Mesh.of(umm.machine("h100-8"), shape))
        chosen.clear()
        with CommDebugMode() as comm:
            c = torch.mm(a, b)
        if chosen:  # else it has remembered the choice of a case like it
            strategy = chosen[0]
            assert tuple(named(x.placements) for x in (*strategy.input_specs, strategy.output_spec)) == way
            seen += 1
        assert named(c.placements) == way.c
        counts = _counts(comm)
        assert counts == issued(shape, (pa, way.a), (pb, way.b)), (shape, (m, n, k), pa, pb)
        box = ours.box((m, n), way.c, 0)
        assert tuple(c.to_local().shape) == (box[0].size, box[1].size)
        with CommDebugMode() as comm:
            moved = c.redistribute(placements=[real(x) for x in pc])
        assert _counts(comm) == issued(shape, (way.c, pc)), (shape, way.c, pc)
        box = ours.box((m, n), pc, 0)
        assert tuple(moved.to_local().shape) == (box[0].size, box[1].size)
    assert seen > 60


def _counts(comm):
    """The collectives that were issued, by kind."""
    result = Counter()
    for op, count in comm.get_comm_counts().items():
        kind = next(x for x in ("all_gather", "all_reduce", "reduce_scatter") if x in str(op))
        result[kind] += count
    return result


def test_costs_are_those_of_dtensor():
    from torch.distributed.tensor._collective_utils import redistribute_cost as of_torch

    for shape in ((4,), (2, 2), (2, 3), (4, 1), (2, 1, 3)):
        mesh, assumed = device_mesh(shape), Mesh.of(umm.machine("h100-8"), shape)
        every = list(product(("Replicate", "Shard(0)", "Shard(1)"), repeat=len(shape)))
        specs = {x: dtensor((600, 512), mesh, x)._spec for x in every}
        for now, then in product(every, repeat=2):
            # Of ways that cost as much the rounding decides, so it is the same too.
            assert of_torch(specs[now], specs[then]) == redistribute_cost(600 * 512 * 4, now, then, assumed)


def test_every_combination_on_two_axes_is_accepted():
    """DTensor multiplies whatever placements A and B have, and so does umm's model."""
    mesh = device_mesh((2, 2))
    every = list(product(("Replicate", "Shard(0)", "Shard(1)"), repeat=2))
    for pa, pb in product(every, repeat=2):
        c = torch.mm(dtensor((9, 11), mesh, pa), dtensor((11, 10), mesh, pb))
        way = chosen_way(((9, 11), (11, 10)), 4, pa, pb, Mesh.of(umm.machine("h100-8"), (2, 2)))
        assert named(c.placements) == way.c

"""Costs of DTensor's redistributions on a machine: the triangle inequality, and each step as umm has it."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

import umm
from umm.errors import LayoutError, MachineError
from umm.executor import executor
from umm.torch import redistribute_cost

MACHINE = umm.machine("h100-8")


class Placement:
    """As PyTorch's, by its name and its attributes."""

    def __init__(self, *values):
        self.__dict__.update(zip(("dim", "split_factor"), values, strict=False))

    def __eq__(self, other):
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None


class Shard(Placement):
    pass


class Replicate(Placement):
    pass


class Partial(Placement):
    pass


def spec(mesh, *placements, shape=(64, 48), itemsize=4):
    """A DTensorSpec, as far as it is asked."""
    return SimpleNamespace(
        mesh=mesh,
        placements=placements,
        shape=shape,
        tensor_meta=SimpleNamespace(dtype=SimpleNamespace(itemsize=itemsize)),
    )


class Mesh:
    """A DeviceMesh, as far as it is asked."""

    def __init__(self, ranks):
        self.mesh = ranks


def mesh_of(*sizes):
    return Mesh(np.arange(int(np.prod(sizes))).reshape(sizes))


def cost(mesh, now, then, **more):
    return redistribute_cost(spec(mesh, *now, **more), spec(mesh, *then, **more), machine=MACHINE)


class _StridedShard(Placement):
    pass


def test_an_axis_of_one_rank_and_no_elements_cost_nothing():
    """A Shard or a Partial along one rank is all there is, beside another axis too; torch says 0 as well."""
    one, beside = mesh_of(1), mesh_of(4, 1)
    for placement in (Shard(0), Partial(), _StridedShard(1, 2)):
        assert cost(one, [placement], [Replicate()]) == cost(one, [Replicate()], [placement]) == 0.0
        assert cost(beside, [Shard(0), placement], [Replicate(), Shard(1)]) == cost(
            mesh_of(4), [Shard(0)], [Replicate()]
        )
        assert cost(mesh_of(4), [placement], [Replicate()], shape=(0, 4)) == 0.0


@pytest.mark.parametrize("shape", [(64, 48), (5, 7), (1, 8)])
def test_a_sum_of_what_is_cut_in_strides_costs_as_one_cut_in_one_go(shape):
    """Each rank has as much; strides to another cut of the same dimension are gathered first."""
    mesh = mesh_of(2, 2)
    strided, plain = [_StridedShard(0, 2), Partial()], [Shard(0), Partial()]
    assert cost(mesh, strided, [_StridedShard(0, 2), Replicate()], shape=shape) == pytest.approx(
        cost(mesh, plain, [Shard(0), Replicate()], shape=shape)
    )
    if shape == (64, 48):
        assert 0.0 < cost(mesh, strided, plain, shape=shape) < float("inf")
        assert 0.0 < cost(mesh, plain, strided, shape=shape) < float("inf")


def test_ranks_without_elements_gather_by_doubling_too():
    """One row of eight elements cut by rows leaves groups in which nobody has any."""
    machine, mesh = umm.machine("pvc-12"), mesh_of(2, 2)
    now, then = (spec(mesh, *x, shape=(1, 8)) for x in ([Shard(1), Partial()], [Shard(0), Shard(1)]))
    assert 0.0 < redistribute_cost(now, then, machine=machine) < 100.0


@pytest.mark.parametrize(
    ("mesh", "kinds", "shape"),
    [((3,), 4, (64, 48)), ((4,), 4, (5, 7)), ((2, 2), 3, (5, 7)), ((2, 2), 4, (8, 8))],
    ids=str,
)
def test_no_detour_is_cheaper_and_staying_costs_nothing(mesh, kinds, shape):
    """All triples of placements, unfinished sums among them; narrowing a full tensor is free."""
    mesh = mesh_of(*mesh)
    states = list(product((Replicate(), Shard(0), Shard(1), Partial())[:kinds], repeat=mesh.mesh.ndim))
    if len(states) == 16:  # one of each two that differ by the axis alone
        states = states[::3]
    costs = np.array([[cost(mesh, now, then, shape=shape) for then in states] for now in states])
    assert (costs.diagonal() == 0).all()
    assert np.isfinite(costs).all()
    detours = (costs[:, :, None] + costs[None]).min(axis=1)
    assert (costs <= detours * (1 + 1e-12)).all()
    assert (costs[0] == 0).all()


@pytest.mark.parametrize("shape", [(4096, 4096), (4099, 1000)])
def test_on_one_axis_it_is_the_fastest_schedule_of_umm(shape):
    """8 GPUs: rows to everywhere and rows to columns, in microseconds."""
    mesh = mesh_of(8)
    row, col, full = (umm.Layout.parse(text, shape, 8) for text in ("row", "col", "row@8"))
    for then, layout in ((Replicate(), full), (Shard(1), col)):
        schedule = umm.redistribute(row, layout, machine=MACHINE)
        seconds = executor("sim").makespan(schedule)
        assert cost(mesh, [Shard(0)], [then], shape=shape) == pytest.approx(1e6 * seconds, rel=1e-12)


def test_sums_are_collectives():
    """An all-reduce of 16 MiB, and a reduce-scatter of as much, take the library's time, to 10 %."""
    mesh, sim = mesh_of(8), executor("sim")
    for then, what in ((Replicate(), "all-reduce"), (Shard(0), "reduce-scatter")):
        schedule = umm.collective(what, nbytes=2**24, machine=MACHINE, algorithm="library")
        result = cost(mesh, [Partial()], [then], shape=(2048, 2048))
        assert result == pytest.approx(1e6 * sim.makespan(schedule), rel=0.1)


def test_other_tensors_are_folded_to_a_matrix():
    """Of four dimensions those that are cut count; an element stands for the 8 others, of 4 bytes each."""
    mesh = mesh_of(3)
    many = cost(mesh, [Shard(1)], [Shard(-1)], shape=(2, 7, 4, 5))
    assert many == pytest.approx(cost(mesh, [Shard(0)], [Shard(1)], shape=(7, 5), itemsize=32), rel=1e-12)
    assert cost(mesh, [Shard(0)], [Replicate()], shape=(7,)) > 0
    with pytest.raises(LayoutError, match="dimensions 0, 1, 2 are cut; a layout cuts two of them"):
        cost(mesh_of(2, 2), [Shard(0), Shard(1)], [Shard(2), Replicate()], shape=(4, 4, 4))


def test_another_mesh_is_infinitely_far_and_a_small_machine_is_refused():
    one, other = spec(mesh_of(4), Shard(0)), spec(Mesh(np.arange(4)[::-1]), Shard(0))
    assert redistribute_cost(one, other, machine=MACHINE) == float("inf")
    with pytest.raises(MachineError):
        cost(mesh_of(4, 4), [Shard(0), Shard(1)], [Replicate()] * 2)

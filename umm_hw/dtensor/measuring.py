"""Curves of torch's process group: redistributions by DTensor, local multiplies, multiplies in place."""

from collections.abc import Callable, Sequence
from functools import partial
from math import ceil
from random import Random
from time import perf_counter
from typing import Any

from umm.errors import InputError
from umm_hw.arrays.dtensor import multiply, work
from umm_hw.dtensor.ways import Costs, Curve

EDGES = (32, 128, 512, 1024, 2048)  # rows and columns of the float32 squares that are moved: 4 KiB to 16 MiB
PRODUCTS = (16, 64, 256, 512, 1024)
STREAMED, FEW_ROWS = (64, 256, 1024, 2048), 8
"""Edges of the squares that few rows are multiplied by: bytes take longer than flop."""
IN_PLACE = (32, 128, 256, 512, 1024)
ROUNDS = 9
KINDS = ("S0>R", "S1>R", "P>R", "P>S0", "P>S1", "R>S0", "R>S1", "S0>S1", "S1>S0")


def slowest(actions: Sequence[Callable[[], object]], rounds: int) -> list[list[float]]:
    """Return the seconds of each action in each round, until the last rank is done; collective."""
    # All actions take turns, so that what disturbs the host for a while disturbs all alike, and in another
    # order each round: caches and threads are as the action before has left them.
    import torch
    import torch.distributed as dist

    seconds = torch.zeros(rounds, len(actions), dtype=torch.float64)
    for action in actions:  # what is made or planned at a first call
        action()
    for turn, times in enumerate(seconds):
        for number in Random(turn).sample(range(len(actions)), len(actions)):  # the same on every rank
            dist.barrier()
            begin = perf_counter()
            actions[number]()
            times[number] = perf_counter() - begin
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    columns: list[list[float]] = seconds.T.tolist()
    return columns


def measure() -> Costs:
    """Measure the default process group, on CPUs; collective, some seconds. Every rank gets the same.

    The quickest call counts, each until the last rank is done. InputError without a process group, or with
    one rank.
    """
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    if not dist.is_available() or not dist.is_initialized():
        raise InputError("torch has no process group yet; call torch.distributed.init_process_group first")
    world = dist.get_world_size()
    if world < 2:
        raise InputError("torch's process group has one rank; there is nothing to choose")
    calls = dict[tuple[Any, ...], list[tuple[float, Callable[[], object]]]]()
    for ranks in (x for x in range(2, world + 1) if world % x == 0):
        others = world // ranks
        for axis, distance in ((0, others), (1, 1))[others == 1 :]:
            mesh = init_device_mesh("cpu", (ranks, others) if axis == 0 else (others, ranks))
            calls |= {(kind, ranks, distance): _redistributions(mesh, axis, kind) for kind in KINDS}
    squares = [torch.ones(n, n) for n in PRODUCTS]
    calls["product",] = [(2.0 * len(x) ** 3, partial(torch.mm, x, x)) for x in squares]
    calls["stream",] = [
        (4.0 * (n * n + 2 * n * FEW_ROWS), partial(torch.mm, torch.ones(FEW_ROWS, n), torch.ones(n, n)))
        for n in STREAMED
    ]
    mesh = init_device_mesh("cpu", (world,))
    for edge in (x for x in IN_PLACE if x >= world):
        for dims in ((0, 0, 0), (1, 1, 1), (0, 1, 0)):
            a, b = (distribute_tensor(torch.ones(edge, edge), mesh, [Shard(dim)]) for dim in dims[:2])
            placements = [Shard(dims[2])]
            call = work(a, b, placements), partial(multiply, a, b, placements)
            calls.setdefault(("in place", edge), []).append(call)
    times = iter(slowest([action for some in calls.values() for _, action in some], ROUNDS))
    points = {key: [(size, min(next(times))) for size, _ in some] for key, some in calls.items()}
    # Plans of equal work differ in what they wait for: the slowest of a size stands for all.
    squares_in_place = [
        tuple(map(max, zip(*some, strict=True))) for key, some in points.items() if key[0] == "in place"
    ]
    moves = {key: _curve(some) for key, some in points.items() if len(key) == 3}
    return Costs(moves, _curve(points["product",]), _curve(points["stream",]), _curve(squares_in_place))


def _curve(points: list[tuple[float, float]]) -> Curve:
    """Return a curve through points, none above a larger size's: that one was disturbed."""
    sizes, seconds = zip(*points, strict=True)
    return Curve(sizes, tuple(min(seconds[i:]) for i in range(len(seconds))))


def _redistributions(mesh: Any, axis: int, kind: str) -> list[tuple[float, Callable[[], object]]]:
    """Return the bytes and calls of redistributions along one axis, the other replicated."""
    import torch
    from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
    from torch.distributed.tensor._redistribute import redistribute_local_tensor
    from torch.distributed.tensor.placement_types import Partial, Replicate, Shard

    uses = {"R": Replicate(), "P": Partial(), "S0": Shard(0), "S1": Shard(1)}
    before, after = kind.split(">")
    length = mesh.size(axis)
    calls: list[tuple[float, Callable[[], object]]] = []
    for edge in EDGES:
        edge = length * ceil(edge / length)
        meta = TensorMeta(torch.Size((edge, edge)), (edge, 1), torch.float32)
        placements = [[Replicate()] * axis + [uses[x]] + [Replicate()] * (1 - axis) for x in (before, after)]
        specs = [DTensorSpec(mesh, tuple(x), meta) for x in placements]
        local = torch.ones([edge // length if before == f"S{dim}" else edge for dim in (0, 1)])
        calls.append((4.0 * edge * edge, partial(redistribute_local_tensor, local, *specs)))
    return calls

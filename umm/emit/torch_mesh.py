"""A multiply in torch where one device mesh has all its layouts: DTensor, each redistribution explicit."""

from collections.abc import Sequence

from umm.emit.described import HEAD, SIZES, TAIL, Described, listed
from umm.layouts.frameworks.mesh import Meshed

PARTIAL = "Partial()"
# By what a mesh axis cuts of the matrix that stays (0 rows, 1 columns, None nothing): what A, B and the
# product are on this axis while ranks multiply. None cuts the dimension that both others share.
IN_PLACE: dict[str, dict[int | None, tuple[str, str, str]]] = {
    "A": {
        0: ("Shard(0)", "Replicate()", "Shard(0)"),
        1: ("Shard(1)", "Shard(0)", PARTIAL),
        None: ("Replicate()", "Shard(1)", "Shard(1)"),
    },
    "B": {
        0: ("Shard(1)", "Shard(0)", PARTIAL),
        1: ("Replicate()", "Shard(1)", "Shard(1)"),
        None: ("Shard(0)", "Replicate()", "Shard(0)"),
    },
    "C": {
        0: ("Shard(0)", "Replicate()", "Shard(0)"),
        1: ("Replicate()", "Shard(1)", "Shard(1)"),
        None: ("Shard(1)", "Shard(0)", PARTIAL),
    },
}

BODY = '''from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor<parallel>
<sizes>
<mesh>
# What each axis of the mesh does to the matrices where they lie ...
A = <a_lies>
B = <b_lies>
C = <c_lies>
# ... and to A and B while ranks multiply: <stationary> stays in place<product>.
A_THERE = <a_there>
B_THERE = <b_there>


def multiply(a: DTensor, b: DTensor) -> DTensor:
    """Return C = AB where it shall lie; all communication is in the three redistributions."""
    a = a.redistribute(placements=A_THERE)
    b = b.redistribute(placements=B_THERE)
    return <matmul>.redistribute(placements=C)

<layer>
def main(rank: int, store: str | None) -> None:
    device = joined(rank, store)
    mesh = DeviceMesh(device.type, MESH)
    a, b = operands()
    lying = [
        distribute_tensor(x.to(device), mesh, placements, src_data_rank=None)
        for x, placements in ((a, A), (b, B))
    ]
    c = multiply(*lying)
    assert list(c.placements) == C and c.shape == (M, N) and c.dtype == C_DTYPE
    if "--check" in sys.argv:
        said = checked(c.full_tensor(), a, b)
<check_layer>        if rank == 0:
            print(said)
    dist.destroy_process_group()
    # DTensor's collectives keep threads alive; one that drops a tensor while Python ends would abort it.
    sys.stdout.flush()
    os._exit(0)
'''

LAYER = '''
def layer(mesh: DeviceMesh, b: torch.Tensor) -> torch.nn.Module:
    """Return the same multiply as a layer, whose weight is B transposed."""
    linear = torch.nn.Linear(K, N, bias=False, device=b.device, dtype=DTYPE)
    with torch.no_grad():
        linear.weight.copy_(b.T)
    plan = <plan>(input_layouts=A[0], output_layouts=C[0], use_local_output=False)
    return parallelize_module(linear, mesh, plan)

'''
CHECK_LAYER = "        checked(layer(mesh, b.to(device))(lying[0]).full_tensor(), a, b)\n"
PLANS: dict[tuple[tuple[str, ...], tuple[str, ...]], str] = {
    (("Replicate()",), ("Shard(1)",)): "ColwiseParallel",
    (("Shard(1)",), ("Shard(0)",)): "RowwiseParallel",
}
"""What parallelize_module calls a multiply, by what A and B are on the one axis of a mesh meanwhile."""


def program(asked: Described, meshes: Sequence[Meshed]) -> str:
    """Return the program.

    Args:
        meshes: What the axes of one mesh do to A, B and C, and to the matrix that stays in place.
    """
    *lying, stays = meshes
    ways = [IN_PLACE[asked.stationary][use and use.dim] for use in stays.uses]
    half = asked.problem.c_dtype != asked.problem.dtype
    sums = any(way[2] == PARTIAL for way in ways)
    lies = {
        f"{name}_lies": _written([("Replicate()" if use is None else f"Shard({use.dim})") for use in x.uses])
        for name, x in zip("abc", lying, strict=True)
    }
    a_there, b_there = tuple(way[0] for way in ways), tuple(way[1] for way in ways)
    lies_there = _written(b_there) == lies["b_lies"]
    plan = PLANS.get((a_there, b_there)) if lies_there else None
    parallel = f"\nfrom torch.distributed.tensor.parallel import {plan}, parallelize_module"
    return asked.filled(
        HEAD + BODY + TAIL,
        layer=LAYER.replace("<plan>", plan) if plan else "",
        check_layer=CHECK_LAYER if plan else "",
        parallel=parallel if plan else "",
        sizes=asked.filled(SIZES),
        mesh=listed(meshes[0].ranks.tolist(), "MESH") + "  # the rank at each place",
        **lies,
        a_there=_written(a_there),
        b_there=_written(b_there),
        product=", and partial sums of C are added up" if sums else "",
        matmul="(a @ b).to(C_DTYPE)" if half else "(a @ b)",
    )


def _written(placements: Sequence[str]) -> str:
    return f"[{', '.join(placements)}]"

"""A multiply of DTensors: their local tensors are the matrices, the ranks those of torch's processes."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umm.errors import InputError, UmmError
from umm.layouts.frameworks.dtensor import parts
from umm.layouts.layout import Layout
from umm_hw.arrays.exchange import exchange_of
from umm_hw.arrays.group import Group, Message
from umm_hw.arrays.local import Part
from umm_hw.arrays.matrix import WrappedMatrix, wrapped
from umm_hw.arrays.plan import multiply as multiply_arrays
from umm_hw.arrays.plan import op_of, plan
from umm_hw.arrays.sharing import sum_dtype
from umm_hw.bfloat16 import dtype_name, numpy_bfloat16


class TorchGroup:
    """The ranks of torch's default process group."""

    def __init__(self) -> None:
        import torch.distributed as dist

        self.rank: int = dist.get_rank()
        self.size: int = dist.get_world_size()
        self.numbers = range(self.size)
        self.names_killed = False
        self.look: Callable[[Sequence[int], str], None] | None = None

    def allgather(self, content: Any) -> list[Any]:
        """Return the contents of all ranks, by rank."""
        import torch.distributed as dist

        contents: list[Any] = [None] * self.size
        dist.all_gather_object(contents, content)
        return contents

    def send(self, array: NDArray[np.uint8], to: int, tag: int) -> Message:
        """Start to send bytes."""
        import torch
        import torch.distributed as dist

        return _TorchMessage(dist.isend(torch.from_numpy(array), to, tag=tag))

    def receive(self, array: NDArray[np.uint8], source: int, tag: int) -> Message:
        """Start to receive bytes."""
        import torch
        import torch.distributed as dist

        return _TorchMessage(dist.irecv(torch.from_numpy(array), source, tag=tag))

    def end(self, code: int) -> None:
        """End this process: the launcher of torch ends the others."""
        import os

        os._exit(code)

    def on_host(self) -> None:
        """Return None: torch's other groups are not asked."""


class _TorchMessage:
    """Gloo moves messages on by itself; one counts as done once it has been waited for."""

    def __init__(self, work: Any) -> None:
        self._work = work

    def done(self) -> bool:
        self._work.wait()
        return True


MOST_KNOWN = 64  # pairs of tensors whose facts a rank keeps
_GROUPS: dict[int, Group] = {}


def group_of_torch() -> Group:
    """Return the group of all ranks, the same until torch's process group is another one."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        raise InputError("torch has no process group yet; call torch.distributed.init_process_group first")
    key = id(dist.group.WORLD)
    if key not in _GROUPS:
        _GROUPS.clear()
        _GROUPS[key] = TorchGroup()
    return _GROUPS[key]


def multiply(
    a: Any,
    b: Any,
    placements: Sequence[Any] | None = None,
    *,
    alpha: float = 1,
    trans_a: bool | str = False,
    trans_b: bool | str = False,
    memory: int | str | None = None,
) -> Any:
    """Return α·op(A)·op(B) of two DTensors on CPUs as a DTensor; collective. A and B stay as they are.

    Local tensors are multiplied where they are, by the same plan as :func:`umm.multiply`; of half precision
    the product is summed in float32 and comes out in the type of A and B. There is no gradient.

    Args:
        a: A DTensor of two dimensions on a mesh of all ranks of the default process group.
        b: Another on the same mesh.
        placements: Of the product; None takes A's rows and B's columns as they are cut.
        alpha: Factor of the product.
        trans_a: True or ``T`` to read A transposed.
        memory: Most bytes of a rank beside its local tensors.

    Raises:
        InputError: on every rank, for tensors that cannot be multiplied.
    """
    group = group_of_torch()
    error: UmmError | None = None
    asked, ops = [], ("N", "N")
    kind: Any = None
    try:
        ops = op_of(trans_a, "trans_a"), op_of(trans_b, "trans_b")
        asked = [part_of(x, name, group.size) for x, name in ((a, "A"), (b, "B"))]
        kind = asked[0].local.dtype
        placements = tuple(_chosen(a, b, ops) if placements is None else placements)
    except UmmError as refused:
        error = refused
    left, right = wrapped_tensors(group, asked, error)
    shape = left.operand(ops[0]).shape[0], right.operand(ops[1]).shape[1]
    target: Any = None
    try:
        target = layout_of(a.device_mesh, placements, shape)
    except UmmError as refused:
        error = refused
        left.exchange.begin(b"", "", error)
    product = multiply_arrays(left, right, target, alpha=alpha, trans_a=ops[0], trans_b=ops[1], memory=memory)
    return tensor_of(np.ascontiguousarray(product.local), a.device_mesh, placements, shape, kind)


@lru_cache(maxsize=1024)
def layout_of(mesh: Any, placements: tuple[Any, ...], shape: tuple[int, int]) -> Layout:
    """Return the layout of a matrix with placements on a mesh."""
    return Layout.of_parts(parts(mesh, placements, shape), shape)


def work(a: Any, b: Any, placements: Sequence[Any]) -> float:
    """Return the flop of the slowest rank when such DTensors are multiplied; collective."""
    # A byte that it copies or sums counts as 10 flop of float64, as where ways of a plan are compared.
    asked = [part_of(x, name, a.device_mesh.size()) for x, name in ((a, "A"), (b, "B"))]
    left, right = wrapped_tensors(group_of_torch(), asked, None)
    made = plan(left, right, layout_of(a.device_mesh, tuple(placements), (left.shape[0], right.shape[1])))
    return made.considered[made.way]


def wrapped_tensors(group: Group, asked: Sequence[Part], refusal: UmmError | None) -> list[WrappedMatrix]:
    """Wrap local tensors; collective. Facts that all ranks have gathered once are not gathered again."""
    # A gather among torch's processes takes milliseconds. So each rank numbers what it gathers: where all
    # have the same number for what they give now, it is as it was then.
    exchange: Any = exchange_of(group)
    known: dict[Any, tuple[int, list[WrappedMatrix]]] = exchange.__dict__.setdefault("wraps", {})
    key = tuple((str(x.layout), x.local.dtype, x.local.shape, x.local.strides) for x in asked)
    number, before = known.get(key, (0, []))
    if exchange.agreed(0 if refusal else number):
        return [matrix.over(part.local) for matrix, part in zip(before, asked, strict=True)]
    made = wrapped(group, asked, refusal)
    gathered = exchange.__dict__["gathered"] = exchange.__dict__.get("gathered", 0) + 1
    if not any(matrix.copied for matrix in made):
        if len(known) >= MOST_KNOWN:
            known.pop(next(iter(known)))
        known[key] = gathered, [matrix.over(np.zeros((0, 0), matrix.dtype)) for matrix in made]
    return made


def part_of(x: Any, name: str, ranks: int, call: str = "multiply") -> Part:
    """Return the local tensor of a DTensor as a part to wrap, for a call of umm.torch."""
    if not all(hasattr(x, word) for word in ("to_local", "device_mesh", "placements")):
        raise InputError(
            f"{name} is a {type(x).__name__}; give a DTensor: distribute_tensor(x, mesh, placements)"
        )
    if x.ndim != 2:
        raise InputError(f"{name} has {x.ndim} dimensions; fold them into two before: x.flatten(0, -2)")
    if x.device_mesh.size() != ranks:
        raise InputError(
            f"the mesh of {name} has {x.device_mesh.size()} ranks, but the process group has {ranks}; "
            f"umm.torch.{call} takes a mesh of all of them"
        )
    local = x.to_local().detach()
    if local.device.type != "cpu":
        raise InputError(f"{name} is on {local.device}; umm.torch.{call} takes tensors on CPUs")
    shape = (int(x.shape[0]), int(x.shape[1]))
    layout = layout_of(x.device_mesh, tuple(x.placements), shape)
    return Part(layout, shape, _array(local), copy=True)


def _array(local: Any) -> NDArray[Any]:
    """Return a tensor as an array on the same memory; torch's bfloat16 as that of ml_dtypes."""
    import torch

    if local.dtype == torch.bfloat16:
        bits: NDArray[Any] = local.view(torch.int16).numpy()
        return bits.view(numpy_bfloat16())
    array: NDArray[Any] = local.numpy()
    return array


def _chosen(a: Any, b: Any, ops: tuple[str, str]) -> list[Any]:
    """Return placements that keep A's rows and B's columns where they are."""
    from torch.distributed.tensor import Replicate, Shard

    rows, cols = (0 if ops[0] == "N" else 1), (1 if ops[1] == "N" else 0)
    placements: list[Any] = []
    for of_a, of_b in zip(a.placements, b.placements, strict=True):
        if getattr(of_a, "dim", None) in (rows, rows - 2):
            placements.append(Shard(0))
        elif getattr(of_b, "dim", None) in (cols, cols - 2):
            placements.append(Shard(1))
        else:
            placements.append(Replicate())
    return placements


def tensor_of(
    local: NDArray[Any], mesh: Any, placements: Any, shape: tuple[int, int], kind: np.dtype[Any]
) -> Any:
    """Return a local matrix as a DTensor of a type."""
    import torch
    from torch.distributed.tensor import DTensor

    if dtype_name(kind) == "bfloat16":
        tensor = torch.from_numpy(local.astype(np.float32)).to(torch.bfloat16)
    else:
        tensor = torch.from_numpy(local if kind == sum_dtype(kind) else local.astype(kind))
    return DTensor.from_local(tensor, mesh, placements, run_check=False, shape=shape, stride=(shape[1], 1))

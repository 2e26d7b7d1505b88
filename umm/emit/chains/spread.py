"""The parallelism of a chain's layouts: data, tensor or split weights for each axis of their mesh."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from umm.arrays import Ints
from umm.emit.chains.forward import Forward
from umm.errors import InputError
from umm.layouts.frameworks.mesh import Meshed
from umm.layouts.frameworks.words import shared_mesh
from umm.program import Multiply
from umm.program.statements import of_kind

DP, FSDP, TP = "dp", "fsdp", "tp"
NAMES = {DP: "data parallel", FSDP: "weights split and gathered", TP: "tensor parallel"}


@dataclass(frozen=True)
class Spread:
    """A chain's layouts as axes of a mesh."""

    forward: Forward  # the chain's forward part
    ranks: Ints  # the rank at each place of the mesh: data parallel, then split weights, then tensor parallel
    roles: tuple[str, ...]  # the role of each axis, in this order
    # By tensor, the dimension that each axis cuts; None where it replicates.
    uses: dict[str, tuple[int | None, ...]]

    def size(self, role: str) -> int:
        """Ranks of an axis; 1 if there is none."""
        return int(self.ranks.shape[self.roles.index(role)]) if role in self.roles else 1

    def use(self, tensor: str, role: str) -> int | None:
        """The dimension that an axis cuts of a tensor."""
        return self.uses[tensor][self.roles.index(role)] if role in self.roles else None

    @cached_property
    def sequence_parallel(self) -> bool:
        """Whether tensor parallel ranks share the tokens of inputs too."""
        return any(self.use(x, TP) == 0 for x in self.forward.inputs)

    @property
    def words(self) -> str:
        """The axes in words: ``tensor parallel 8 with split tokens, data parallel 4``."""
        parts = [
            f"{NAMES[role]} {n}{' with split tokens' if role == TP and self.sequence_parallel else ''}"
            for role, n in zip(self.roles, self.ranks.shape, strict=False)  # one rank has no role
        ]
        return ", ".join(reversed(parts)) or "one rank"


def mesh_of(forward: Forward) -> Sequence[Meshed]:
    """Return each used tensor's uses of one mesh; InputError if there is no such mesh."""
    used = forward.used()
    meshes = shared_mesh([x.layout for x in used])
    if meshes is None:
        raise InputError(
            f"the layouts of {forward.chain.name} have no one mesh of ranks, which frameworks need; choose a "
            "scheme by name, or save the chain with --save-chain"
        )
    return meshes


def spread_of(forward: Forward) -> Spread:
    """Return the axes of a chain's layouts by their roles.

    InputError for an axis that is none of data, tensor or split-weight parallel, naming its tensors.
    """
    meshes = mesh_of(forward)
    used = forward.used()
    uses = {
        x.name: tuple(None if use is None else use.dim for use in one.uses)
        for x, one in zip(used, meshes, strict=True)
    }
    shape = meshes[0].ranks.shape
    roles = [_role(forward, {name: x[axis] for name, x in uses.items()}, n) for axis, n in enumerate(shape)]
    kept = [axis for axis, role in enumerate(roles) if role]
    order = sorted(kept, key=lambda axis: ((DP, FSDP, TP).index(roles[axis]), axis))
    for name in forward.inputs:
        cuts = [axis for axis in kept if uses[name][axis] == 0]
        if any(roles[axis] == TP for axis in cuts[:-1]):
            raise InputError(
                f"tensor parallel ranks cut {name} before data parallel ones; frameworks cut it after them"
            )
    ranks = meshes[0].ranks.transpose([*order, *(x for x in range(len(shape)) if x not in order)])
    grouped: list[tuple[str, int]] = []
    for axis in order:
        if grouped and grouped[-1][0] == roles[axis]:
            grouped[-1] = (roles[axis], grouped[-1][1] * shape[axis])
        else:
            grouped.append((roles[axis], shape[axis]))
    by_role = {
        name: tuple(next(x[axis] for axis in order if roles[axis] == role) for role, _ in grouped)
        for name, x in uses.items()
    }
    for name, x in uses.items():
        for axis in order:
            if x[axis] != by_role[name][[role for role, _ in grouped].index(roles[axis])]:
                raise InputError(
                    f"two axes of the mesh are both {NAMES[roles[axis]]}, but cut {name} otherwise"
                )
    sizes = tuple(n for _, n in grouped) or (1,)
    mesh = np.asarray(ranks).reshape(-1)[: prod(sizes)].reshape(sizes)
    return Spread(forward, mesh, tuple(role for role, _ in grouped), by_role)


def _role(forward: Forward, use: dict[str, int | None], ranks: int) -> str:
    """Return the role of an axis; empty if it has one rank."""
    # use: the dimension that it cuts of each tensor. ranks: its length.
    if ranks == 1:
        return ""
    weights = [use[x] for x in forward.weights]
    activations = [x.name for x in forward.used() if x.name not in (*forward.weights, *forward.scales)]
    by_tokens = all(use[x] == 0 for x in activations)
    if by_tokens and all(x is None for x in weights):
        return DP
    if by_tokens and all(x is not None for x in weights):
        return FSDP
    multiplies = of_kind(Multiply, forward.statements)
    columns = [use[x.b] == 1 and use[x.out] == 1 and use[x.a] != 1 for x in multiplies]
    rows = [use[x.b] == 0 and use[x.a] == 1 and use[x.out] != 1 for x in multiplies]
    if weights and all(x or y for x, y in zip(columns, rows, strict=True)):
        return TP
    shown = ", ".join(f"{x} {('rows', 'columns')[y] if y is not None else 'whole'}" for x, y in use.items())
    raise InputError(
        f"an axis of {ranks} ranks is no data, tensor or split-weight parallelism, which frameworks name "
        f"({shown[:160]}); --emit jax takes any layouts of one mesh"
    )

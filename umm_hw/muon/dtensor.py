"""An update of DTensors: their local tensors are the momenta, the ranks those of torch's processes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from umm.errors import InputError, UmmError
from umm.muon.planning import MuonPlan
from umm_hw.arrays.dtensor import group_of_torch, part_of, tensor_of, wrapped_tensors
from umm_hw.muon.update import update


def muon(plan: MuonPlan, momentum: Mapping[str, Any]) -> dict[str, Any]:
    """Return momenta of DTensors on CPUs orthogonalised, with their own placements; collective.

    InputError on every rank, for tensors that are not the plan's, or on other devices.

    Args:
        plan: Where each matrix goes; its grid has all ranks of the default process group.
        momentum: For each weight of the plan a DTensor of two dimensions, or a list where it has several.

    Returns:
        For each name a new DTensor, or a list of them.
    """
    group = group_of_torch()
    error: UmmError | None = None
    names: list[str] = []
    parts: list[Any] = []
    given: dict[str, Sequence[Any]] = {}
    try:
        if not isinstance(momentum, Mapping) or not momentum:
            raise InputError("umm.torch.muon takes DTensors by the plan's names, as in {'w1': tensor}")
        for name, tensors in momentum.items():
            given[name] = tensors if isinstance(tensors, (list, tuple)) else [tensors]
            names += [name] * len(given[name])
            parts += [part_of(x, name, group.size, "muon") for x in given[name]]
    except UmmError as refused:
        error = refused
    wrapped = wrapped_tensors(group, parts, error)
    matrices: dict[str, list[Any]] = {}
    for name, matrix in zip(names, wrapped, strict=True):
        matrices.setdefault(name, []).append(matrix)
    results = update(plan, matrices)
    tensors_of: dict[str, Any] = {}
    for name, tensors in given.items():
        made = [
            tensor_of(
                np.ascontiguousarray(result.local), x.device_mesh, x.placements, result.shape, result.dtype
            )
            for result, x in zip(results[name], tensors, strict=True)
        ]
        tensors_of[name] = made if isinstance(momentum[name], (list, tuple)) else made[0]
    return tensors_of

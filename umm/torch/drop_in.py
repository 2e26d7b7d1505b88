"""``redistribute_cost`` with the signature of torch's own, and how DTensor is made to choose by it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.torch.cost import matter, seconds

NAME = "redistribute_cost"


def redistribute_cost(current_spec: Any, target_spec: Any, *, machine: Machine | str = "localhost") -> float:
    """Return the cost of a redistribution in microseconds, as torch's own function of this name does.

    What it costs is the makespan of the fastest schedule that umm has for it on a machine, detours over other
    placements included; so it obeys the triangle inequality. Equal arguments are answered from memory.

    Args:
        current_spec: A ``DTensorSpec``: the placements of a tensor on a mesh, Partial among them or not.
        target_spec: What it shall be.
        machine: A machine, its name, or its file; ``umm machine calibrate`` writes one of this host, which
            ``localhost`` then is.

    Returns:
        Infinite for another mesh, as torch says.

    Raises:
        LayoutError: for a tensor of which three dimensions are cut.
        MachineError: for an unknown machine, or more ranks than it holds.
    """
    if current_spec.mesh != target_spec.mesh:
        return float("inf")
    if tuple(current_spec.placements) == tuple(target_spec.placements):
        return 0.0
    tensor, now, then = matter(current_spec, target_spec)
    found = machine if isinstance(machine, Machine) else find_machine(machine)
    found.check_ranks(len(tensor.ranks))
    return 1e6 * seconds(tensor, now, then, found)


@contextmanager
def installed(machine: Machine | str) -> Iterator[None]:
    """Have DTensor choose by the costs on a machine within a ``with`` block.

    What it has chosen before it remembers; so begin before the first multiply.

    Args:
        machine: A machine, its name, or its file.
    """
    import torch.distributed.tensor
    from torch.distributed.tensor import _collective_utils

    theirs = getattr(_collective_utils, NAME)
    ours = partial(
        redistribute_cost, machine=machine if isinstance(machine, Machine) else find_machine(machine)
    )
    modules = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith(torch.distributed.tensor.__name__) and getattr(module, NAME, None) is theirs
    ]
    for module in modules:
        setattr(module, NAME, ours)
    try:
        yield
    finally:
        for module in modules:
            setattr(module, NAME, theirs)

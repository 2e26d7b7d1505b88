"""For users of PyTorch: modules as chains, costs of moving a DTensor, a multiply, and Muon, of DTensors."""

from typing import Any

from umm.torch.cost import installed, redistribute_cost
from umm.torch.module import chain

__all__ = ["chain", "installed", "multiply", "muon", "redistribute_cost"]


def __getattr__(name: str) -> Any:
    if name not in ("multiply", "muon"):
        raise AttributeError(f"module 'umm.torch' has no attribute {name!r}")
    from umm.executor import offered_name

    return offered_name(f"torch.{name}")

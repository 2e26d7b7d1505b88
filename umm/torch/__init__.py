"""For users of PyTorch: modules as chains, costs of moving a DTensor, multiplies and Muon of DTensors."""

from typing import Any

from umm.torch.cost import installed, redistribute_cost
from umm.torch.module import chain

_OFFERED = ("install", "multiply", "muon", "uninstall")
__all__ = ["chain", "install", "installed", "multiply", "muon", "redistribute_cost", "uninstall"]


def __getattr__(name: str) -> Any:
    if name not in _OFFERED:
        raise AttributeError(f"module 'umm.torch' has no attribute {name!r}")
    from umm.executor import offered_name

    return offered_name(f"torch.{name}")

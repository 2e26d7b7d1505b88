"""For users of PyTorch: the cost of redistributing a DTensor on a machine; a multiply, Muon of DTensors."""

from typing import Any

from umm.torch.cost import installed, redistribute_cost

__all__ = ["installed", "multiply", "muon", "redistribute_cost"]


def __getattr__(name: str) -> Any:
    if name not in ("multiply", "muon"):
        raise AttributeError(f"module 'umm.torch' has no attribute {name!r}")
    from umm.executor import offered_name

    return offered_name(f"torch.{name}")

"""For users of PyTorch: the cost of redistributing a DTensor on a machine, and a multiply of DTensors."""

from typing import Any

from umm.torch.cost import installed, redistribute_cost

__all__ = ["installed", "multiply", "redistribute_cost"]


def __getattr__(name: str) -> Any:
    if name != "multiply":
        raise AttributeError(f"module 'umm.torch' has no attribute {name!r}")
    from umm.executor import offered_name

    return offered_name("torch.multiply")

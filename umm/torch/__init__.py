"""For users of PyTorch: what a redistribution of DTensor costs, on a machine that umm knows."""

from umm.torch.drop_in import installed, redistribute_cost

__all__ = ["installed", "redistribute_cost"]

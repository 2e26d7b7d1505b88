"""DTensors orthogonalised by umm on four processes over gloo; prints how many were right, or raises."""

import numpy as np
import torch
from over_gloo import start
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import umm
from umm.muon import Matrix
from umm.muon.program import JORDAN
from umm_hw.bfloat16 import numpy_bfloat16
from umm_hw.muon.newton_schulz import orthogonalized

PLACEMENTS = ("duplicated", "owners", "layers", "gram", "two-axis", None)


def plain(x):
    """The update of one process, in torch's type."""
    if x.dtype == torch.bfloat16:
        bits = x.view(torch.int16).numpy().view(numpy_bfloat16())
        return torch.from_numpy(orthogonalized(bits, JORDAN).astype(np.float32)).to(torch.bfloat16)
    return torch.from_numpy(orthogonalized(x.numpy(), JORDAN))


def rank(number):
    weights = [Matrix("up", 12, 20, 2), Matrix("down", 21, 9, 1)]
    done = 0
    for axes, grid in (((4,), "fsdp4"), ((2, 2), "tp2-fsdp2")):
        mesh = init_device_mesh("cpu", axes)
        ways = [[Shard(0)] * len(axes), [Shard(1)] * len(axes), [Replicate()] * (len(axes) - 1) + [Shard(0)]]
        ways += [[Shard(0), Shard(1)]] if len(axes) == 2 else []
        for kind in (torch.float64, torch.float32, torch.bfloat16):
            momenta = [
                torch.randn(x.rows, x.cols, dtype=torch.float64).to(kind)
                for x in weights
                for _ in range(x.count)
            ]
            for placements in ways:
                tensors = [distribute_tensor(x, mesh, placements) for x in momenta]
                for only in PLACEMENTS[: None if len(axes) == 2 else 4]:
                    plan = umm.muon.plan(weights, grid, "localhost", only=only)
                    results = umm.torch.muon(plan, {"up": tensors[:2], "down": tensors[2]})
                    for result, x in zip([*results["up"], results["down"]], momenta, strict=True):
                        assert isinstance(result, DTensor)
                        assert result.placements == tuple(placements)
                        assert result.dtype == kind
                        if only in PLACEMENTS[:3]:
                            assert torch.equal(result.full_tensor(), plain(x)), (only, kind)
                        else:
                            near = 0.3 if kind == torch.bfloat16 else 1e-4
                            torch.testing.assert_close(result.full_tensor(), plain(x), atol=near, rtol=near)
                    done += 1
    try:
        umm.torch.muon(plan, {"up": momenta[:2], "down": momenta[2]})
    except umm.errors.InputError as error:
        words = str(error)
    return f"{done} right; {words}"


if __name__ == "__main__":
    start(rank)

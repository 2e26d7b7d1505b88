"""DTensors multiplied by umm on four processes over gloo; prints the right cases, or raises."""

import itertools

import torch
from over_gloo import start
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import umm


def rank(number):
    x, y = torch.randn(37, 50, dtype=torch.float64), torch.randn(50, 29, dtype=torch.float64)
    done = 0
    for axes in ((4,), (2, 2)):
        mesh = init_device_mesh("cpu", axes)
        ways = list(itertools.product([Shard(0), Shard(1), Replicate()], repeat=len(axes)))
        for a, b, c in [*itertools.product(ways, repeat=3)][:: 1 if len(axes) == 1 else 61]:
            left, right = distribute_tensor(x, mesh, a), distribute_tensor(y, mesh, b)
            product = umm.torch.multiply(left, right, placements=c)
            same = left @ right
            assert isinstance(product, DTensor)
            assert product.placements == tuple(c)
            assert product.shape == same.shape
            torch.testing.assert_close(product.full_tensor(), x @ y)
            torch.testing.assert_close(left.full_tensor(), x)
            done += 1
    mesh = init_device_mesh("cpu", (4,))
    half = distribute_tensor(x.bfloat16(), mesh, [Shard(0)])
    turned = umm.torch.multiply(half, half, trans_b=True)
    assert turned.dtype == torch.bfloat16
    torch.testing.assert_close(
        turned.full_tensor().double(),
        half.full_tensor().double() @ half.full_tensor().double().T,
        rtol=0.01,
        atol=0.05,
    )
    try:
        umm.torch.multiply(half, x)
    except umm.errors.InputError as error:
        result = str(error)
    return f"{done} right; {result}"


if __name__ == "__main__":
    start(rank)

"""DTensors multiplied by umm on four processes over gloo; prints what was right, or raises."""

import itertools
import os
import socket

import torch
import torch.multiprocessing as processes
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import umm

RANKS = 4


def rank(number, port):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(number)}
    os.environ["WORLD_SIZE"] = str(RANKS)
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
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
        said = str(error)
    if number == 0:
        print(f"{done} right; {said}", flush=True)
    distributed.barrier()
    os._exit(0)  # threads that DTensor keeps abort if they drop a tensor while Python ends


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    processes.spawn(rank, (number,), nprocs=RANKS)

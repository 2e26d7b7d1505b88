"""PyTorch DTensor over gloo, a process with one BLAS thread per rank: A @ B, then C as its layout wants."""

import os
import sys

os.environ |= {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}

import torch
import torch.multiprocessing as processes
from problems import LAYOUTS, RANKS, REPLICATED, SHAPES, best, say
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

PLACEMENT = {"row": Shard(0), "col": Shard(1), "all": Replicate()}


def rank(number, shapes, repeats, port):
    os.environ |= {"RANK": str(number), "WORLD_SIZE": str(RANKS), "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (RANKS,))
    for shape in shapes:
        m, n, k = SHAPES[shape]
        for layouts in LAYOUTS + REPLICATED:
            a, b, c = (PLACEMENT[name] for name in layouts.split(","))
            left = distribute_tensor(torch.full((m, k), 1e-3), mesh, [a])
            right = distribute_tensor(torch.full((k, n), 1e-3), mesh, [b])

            def multiply(left=left, right=right, c=c):
                distributed.barrier()
                (left @ right).redistribute(mesh, [c]).to_local()
                distributed.barrier()

            seconds = best(multiply, repeats)
            if number == 0:
                say("DTensor", shape, layouts, seconds)
    distributed.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # threads that DTensor keeps abort if they drop a tensor while Python ends


if __name__ == "__main__":
    processes.spawn(rank, (sys.argv[2:], int(sys.argv[1]), 29571), nprocs=RANKS)

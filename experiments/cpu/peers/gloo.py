"""PyTorch on two processes over gloo: local multiplies, redistributions, and DTensor's matmul.

Run by a Python that has torch, as ``gloo.py ROUNDS PORT``; imports nothing of umm. A line of JSON for each
measurement of each round: what it is, its sizes, and the seconds until the last rank is done.
"""

import json
import os
import sys
from itertools import product
from time import perf_counter

os.environ |= {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}

import torch
import torch.multiprocessing as processes
from dtensor import PLACEMENT
from problems import LAYOUTS, RANKS, SHAPES
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

SIZES = (128, 512, 2048)  # m, n and k of local multiplies take all of them
EDGES = (128, 512, 1024, 2048)  # of square matrices that are redistributed, in float32
CHANGES = {
    "all-gather": [(Shard(0), Replicate()), (Shard(1), Replicate())],
    "reduce-scatter": [(Partial(), Shard(0)), (Partial(), Shard(1))],
    "all-to-all": [(Shard(0), Shard(1)), (Shard(1), Shard(0))],
}
MLPS = [shape for name, shape in SHAPES.items() if name.startswith("mlp")]


def rank(number, rounds, port):
    os.environ |= {"RANK": str(number), "WORLD_SIZE": str(RANKS), "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (RANKS,))
    actions = [*multiplies(), *redistributions(mesh), *problems(mesh)]
    for action, _ in actions:
        action()
    for _ in range(rounds):
        for action, what in actions:
            distributed.barrier()
            began = perf_counter()
            action()
            distributed.barrier()
            if number == 0:
                print(json.dumps(what | {"seconds": perf_counter() - began}), flush=True)
    distributed.destroy_process_group()
    os._exit(0)  # threads that DTensor keeps abort if they drop a tensor while Python ends


def multiplies():
    """Yield local multiplies, on all ranks at once."""
    for m, n, k in product(SIZES, SIZES, SIZES):
        a, b = torch.full((m, k), 1e-3), torch.full((k, n), 1e-3)
        yield lambda a=a, b=b: a @ b, {"what": "gemm", "m": m, "n": n, "k": k}
    yield lambda: None, {"what": "nothing"}


def redistributions(mesh):
    """Yield functions that move a square matrix from one placement to another."""
    for what, ends in CHANGES.items():
        for edge, (before, after) in product(EDGES, ends):
            shape = [edge, edge]
            if isinstance(before, Shard):
                shape[before.dim] //= RANKS
            array = DTensor.from_local(torch.full(shape, 1e-3), mesh, [before], run_check=False)
            yield (
                lambda array=array, after=after: array.redistribute(mesh, [after]).to_local(),
                {"what": what, "bytes": 4 * edge * edge},
            )


def problems(mesh):
    """Yield A @ B, and C as its layout wants, for each shape and layout."""
    for (m, n, k), text in product(MLPS, LAYOUTS):
        layouts = text.split(",")
        a, b, c = (PLACEMENT[name] for name in layouts)
        left = distribute_tensor(torch.full((m, k), 1e-3), mesh, [a])
        right = distribute_tensor(torch.full((k, n), 1e-3), mesh, [b])
        yield (
            lambda left=left, right=right, c=c: (left @ right).redistribute(mesh, [c]).to_local(),
            {"what": "problem", "m": m, "n": n, "k": k, "layouts": layouts},
        )


if __name__ == "__main__":
    processes.spawn(rank, (int(sys.argv[1]), int(sys.argv[2])), nprocs=RANKS)

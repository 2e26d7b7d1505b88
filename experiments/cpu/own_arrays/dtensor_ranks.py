"""DTensor over gloo, a process with one thread a rank: ``python dtensor_ranks.py CASES REPEAT RANKS``."""

import json
import os
import sys
import time

os.environ |= {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29577"}

import torch
import torch.multiprocessing as processes
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import umm


def best(action, repeat):
    """Seconds of the quickest call, from when all ranks begin until all have ended."""
    times = []
    for _ in range(repeat):
        distributed.barrier()
        begin = time.perf_counter()
        action()
        distributed.barrier()
        times.append(time.perf_counter() - begin)
    return min(times)


def rank(number, cases, repeat, ranks):
    os.environ |= {"RANK": str(number), "WORLD_SIZE": str(ranks)}
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    result = {}
    for case in cases:
        if case["placements"] is None:
            continue
        mesh = init_device_mesh("cpu", tuple(case["mesh"]))
        shapes = ((case["m"], case["k"]), (case["k"], case["n"]))
        places = [[Shard(int(x)) for x in dims] for dims in case["placements"]]
        left, right = (
            distribute_tensor(torch.full(shape, 1e-3, dtype=torch.float64), mesh, place)
            for shape, place in zip(shapes, places, strict=False)
        )

        def theirs(left=left, right=right, mesh=mesh, place=places[2]):
            (left @ right).redistribute(mesh, place).to_local()

        def ours(left=left, right=right, place=places[2]):
            umm.torch.multiply(left, right, placements=place).to_local()

        result[case["name"]] = {"DTensor": best(theirs, repeat), "umm.torch": best(ours, repeat)}
    if number == 0:
        print(json.dumps(result))
        sys.stdout.flush()
    distributed.destroy_process_group()
    os._exit(0)  # threads that DTensor keeps abort if they drop a tensor while Python ends


if __name__ == "__main__":
    processes.spawn(
        rank, (json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])), nprocs=int(sys.argv[3])
    )

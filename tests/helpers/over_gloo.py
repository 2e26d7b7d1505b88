"""Four processes joined over gloo on this host, for programs on DTensors."""

import os
import socket

import torch
import torch.multiprocessing as processes
from torch import distributed

RANKS = 4


def start(program):
    """Run ``program(rank)`` on all of them; rank 0 prints the text that it returns."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes.spawn(_joined, (port, program), nprocs=RANKS)


def _joined(rank, port, program):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank)}
    os.environ["WORLD_SIZE"] = str(RANKS)
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    text = program(rank)
    if rank == 0:
        print(text, flush=True)
    distributed.barrier()
    os._exit(0)  # threads that DTensor keeps abort if they drop a tensor while Python ends

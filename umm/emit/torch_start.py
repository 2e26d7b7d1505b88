"""What emitted programs for torch share: processes that start, operands, and the check of the product."""

HEAD = '''"""<what>

torchrun --nproc-per-node <ranks> FILE runs it; python FILE starts <ranks> processes on this host's
CPUs itself. With --check the product is held against the whole matrices.
"""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
'''

TAIL = '''

def joined(rank: int, store: str | None) -> torch.device:
    """Join the other processes, those of torchrun or this program's own, and return the device to use."""
    if store is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
        return torch.device("cpu")
    if int(os.environ["WORLD_SIZE"]) != RANKS:
        raise SystemExit(f"{os.environ['WORLD_SIZE']} processes do not fit; start {RANKS}")
    if not torch.cuda.is_available():
        dist.init_process_group("gloo")
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    return device


def operands() -> tuple[torch.Tensor, torch.Tensor]:
    """Return A and B, uniform in [-1, 1): the same on every rank."""
    generator = torch.Generator().manual_seed(0)
    return tuple((2 * torch.rand(shape, generator=generator) - 1).to(DTYPE) for shape in ((M, K), (K, N)))


def checked(product: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> str:
    """Return how far a product is from the true one; end the program if that is too far."""
    true = a.double() @ b.double()
    error = ((product.double().cpu() - true).abs().max() / true.abs().max()).item()
    said = f"largest error {error:.1e} of its largest element ({TOLERANCE:.0e} allowed)"
    if not error <= TOLERANCE:
        raise SystemExit(f"C is wrong: {said}")
    return f"C is right: {said}"


if __name__ == "__main__":
    if "RANK" in os.environ:
        main(int(os.environ["RANK"]), None)
    else:
        with tempfile.TemporaryDirectory() as folder:
            processes.spawn(main, (os.path.join(folder, "store"),), nprocs=RANKS)
'''

SIZES = """
RANKS, M, N, K = <ranks>, <m>, <n>, <k>
DTYPE, C_DTYPE = torch.<dtype>, torch.<c_dtype>
TOLERANCE = <tolerance>  # what rounding may be off, as a share of the largest element of C
"""

"""The problem a program is emitted for, and the start of a torch program."""

from dataclasses import dataclass
from textwrap import indent, wrap

from umm.checks import TOLERANCE
from umm.layouts.layout import Layout
from umm.program.problem import MATRICES, Problem
from umm.quoting import python

WIDTH = 88


@dataclass(frozen=True)
class Described:
    """A multiply as a program needs it."""

    problem: Problem  # sizes, type and layouts
    stationary: str  # the matrix that stays in place
    note: str  # what is known of it, in a line or several

    def filled(self, template: str, **more: object) -> str:
        """Fill a template's ``<angles>`` with sizes, types, layouts and more."""
        # What a check allows goes by the operands' type: in it frameworks sum the parts of C.
        problem = self.problem
        texts: dict[str, object] = {
            **{x: getattr(problem, x) for x in ("m", "n", "k", "dtype", "c_dtype", "a", "b", "c")},
            "ranks": problem.p,
            "tolerance": TOLERANCE[problem.dtype],
            "stationary": self.stationary,
            "what": python.docstring(self.what),
            **more,
        }
        return python.filled(template, texts)

    @property
    def stays(self) -> Layout:
        """The layout of the matrix that stays in place while ranks multiply."""
        return self.problem.layout(self.stationary)

    @property
    def what(self) -> str:
        """The first lines of a program: its multiply, and the note about it."""
        problem = self.problem
        outside = dict(zip(MATRICES, problem.outside, strict=True))
        layouts = ", ".join(f"{x} {outside[x]}" for x in MATRICES)
        moved = outside[self.stationary] != self.stays
        place = f"{self.stationary} {f'is brought to {self.stays} and ' if moved else ''}stays in place."
        lines = [
            f"C = AB on {problem.p} ranks: m={problem.m}, n={problem.n}, k={problem.k}, {problem.dtype}.",
            "",
            *wrap(f"{layouts}; {place} {self.note}", WIDTH),
        ]
        return "\n".join(lines)


def listed(values: object, name: str) -> str:
    """Return an assignment of a list, a line for each of its members where it is long.

    >>> listed([1, 2], "RANKS")
    'RANKS = [1, 2]'
    """
    line = f"{name} = {values!r}"
    if len(line) <= WIDTH + 12 or not isinstance(values, list):
        return line
    return f"{name} = [\n" + "".join(indent(f"{value!r},\n", "    ") for value in values) + "]"


HEAD = '''"""<what>

torchrun --nproc-per-node <ranks> FILE runs it; python FILE starts <ranks> processes on this host's
CPUs itself. With --check the product is checked against the whole matrices.
"""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
'''

JOINED = '''
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
'''
STARTED = """

if __name__ == "__main__":
    if "RANK" in os.environ:
        main(int(os.environ["RANK"]), None)
    else:
        with tempfile.TemporaryDirectory() as folder:
            processes.spawn(main, (os.path.join(folder, "store"),), nprocs=RANKS)
"""
TAIL = (
    "\n"
    + JOINED
    + '''

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
'''
    + STARTED
)

SIZES = """
RANKS, M, N, K = <ranks>, <m>, <n>, <k>
DTYPE, C_DTYPE = torch.<dtype>, torch.<c_dtype>
TOLERANCE = <tolerance>  # what rounding may be off, as a share of the largest element of C
"""

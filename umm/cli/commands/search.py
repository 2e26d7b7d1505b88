"""``umm search``: the best layouts for a problem and a machine, proven by bounds."""

from pathlib import Path
from typing import Any

import click

from umm.cli.flags.chain import ChainSearched
from umm.cli.flags.declared import command, flag
from umm.cli.flags.framework import OfFramework
from umm.cli.flags.options import WRITE, Answering, Budgeted, Limited, Noisy, Paged
from umm.cli.flags.scaling import Scaled
from umm.cli.flags.schedule import SearchedAxes
from umm.cli.flags.values import dimension_list


@command("umm.cli.answers.search:search", machine="h100-8")
class Search(
    OfFramework, SearchedAxes, ChainSearched, Scaled, Budgeted, Noisy, Paged, Limited, Answering,
    heading="Space",
):  # fmt: skip
    """Find the best layouts for a problem and a machine: the front of time against memory, with proof.

    Without further flags: row, col and 2d on every process grid with every replication factor for A, B and C,
    every stationary matrix, whole tiles and slices, every way to end a replicated C. Points are priced by a
    lower bound and simulated from the lowest up, until no bound left can beat what was found. A comma list
    makes an axis: --a row,col@2 --prefetch 1,2. Ctrl-C prints the best found so far, marked as not proven.

    With --chain the best layouts of all its tensors together. A gradient shares its tensor's layout, and a
    map's output its input's. Every multiply keeps its largest matrix in place, or with --stationary best the
    fastest one. With several --movement or --prefetch each multiply has its own; of movements within a node
    without the flag too, where the best with one for all is not proven and others make it faster. Memory is
    of all --layers, those of a --model if not given, and times are of one in the middle.

    Several sizes (-m 1K,2K,4K) or settings (--set fabric.bandwidth=x0.5,x1) have one answer each; several
    --nodes or --ranks one table: time, speed-up, efficiency, device time and, with --price, dollars.

    --emit prints the winner as a program: DTensor or torch.distributed, JAX shardings and jit, or umm.
    """

    m: Any = flag(
        "-m", callback=dimension_list, metavar="LIST", usual=True, help="Rows of A and C: 1K,2K,4K.",
    )  # fmt: skip
    grids: str = flag(
        type=click.Choice(["all", "square"]), default="all",
        help="Process grids to try for 2d and cyclic: every one, or the most square.",
    )  # fmt: skip
    balanced: bool = flag(
        help="Also try balanced row, col and 2d, whose tiles differ by one row or column at most.",
    )  # fmt: skip
    interleaved: bool = flag(help="Also try interleaved replicas, on every c-th rank.")
    top: int | None = flag(
        usual=True, help="List this many of the fastest instead of the front of time and memory.",
    )  # fmt: skip
    emit: str | None = flag(
        type=click.Choice(("torch", "jax", "umm", "torchtitan", "megatron", "nccl")), usual=True,
        help="Print only a program that sets up the winner; of a chain torch, jax, torchtitan's TOML, "
        "Megatron-LM's flags or lines of NCCL's tuner.",
    )  # fmt: skip
    save_chain: Path | None = flag(
        type=WRITE, metavar="FILE.toml",
        help="Write the chain with the best layouts, called best, for --chain of other commands.",
    )  # fmt: skip

    @property
    def many(self) -> bool:
        """Whether several sizes or settings are asked for, which have one answer each."""
        return len(self.m or []) > 1 or any("," in text for text in self.changes)

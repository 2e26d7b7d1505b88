"""``umm simulate``: predict one multiply, or a chain, on one machine."""

from pathlib import Path

import click

from umm.cli.flags.asked import ToSchedule
from umm.cli.flags.declared import command, flag
from umm.cli.flags.framework import OfFrameworkLayers
from umm.cli.flags.options import WRITE, Answering, FromFile, Noisy, Paged
from umm.cli.flags.scaling import Scaled


@command("umm.cli.answers.simulate:simulate", machine="h100-8")
class Simulate(OfFrameworkLayers, Scaled, ToSchedule, Noisy, FromFile, Paged, Answering, heading="Output"):
    """Predict one multiply, or a chain of them, on one machine.

    Several --nodes or --ranks have one table: time, speed-up, efficiency and, with --price, dollars.

    Prints the makespan, the fraction of peak, where the time goes, bytes moved, memory, and what limits it.
    """

    explain: str | None = flag(
        type=click.Choice(["time", "plan"]), is_flag=False, flag_value="time", metavar="[time|plan]",
        help="Explain step by step what limits the slowest rank, and on which link; plan: who computes "
        "which piece and what moves, as umm plan does.",
    )  # fmt: skip
    save_schedule: Path | None = flag(type=WRITE, help="Write the schedule, .json or .npz.")
    save_trace: Path | None = flag(type=WRITE, help="Write the trace, for 'umm compare'.")
    perfetto: Path | None = flag(type=WRITE, help="Write the trace for ui.perfetto.dev.")
    chakra: Path | None = flag(
        type=WRITE, metavar="PREFIX", help="Write Chakra traces PREFIX.RANK.et, which ASTRA-sim takes.",
    )  # fmt: skip
    emit: str | None = flag(
        type=click.Choice(("torch", "jax", "torchtitan", "megatron", "nccl")),
        help="Print a chain's layouts as a program (torch: parallelize_module and fully_shard; jax), as "
        "torchtitan's TOML, Megatron-LM's flags, or lines of NCCL's tuner, alone.",
    )  # fmt: skip

"""``umm machine new`` and ``umm machine import``: a commented machine file, to be filled in."""

from pathlib import Path

import click

from umm.cli.flags.declared import argument, command, flag
from umm.cli.flags.options import WRITE, Printed
from umm.cli.flags.values import among, bandwidth, machines


class Written(Printed):
    """A machine file, and the machine that its other numbers are of."""

    other: str | None = flag(
        "--from", metavar="NAME|FILE", shell_complete=among(machines),
        help="Machine to take all other numbers from; the most similar one.",
    )  # fmt: skip
    nodes: int | None = flag(type=click.IntRange(1), metavar="N", help="Nodes.")
    changes: tuple[str, ...] = flag(
        "--set", multiple=True, metavar="KEY=VALUE",
        help="Set a machine number to a value or times a factor: fabric.bandwidth=x0.5.",
    )  # fmt: skip
    source: str = flag(default="", metavar="TEXT", help="Source of the numbers of --set.")
    path: Path | None = flag(
        "-o", "--output", type=WRITE, metavar="FILE",
        help="Machine file to write, as of calibrate, instead of NAME or FILE.toml; - prints it.",
    )  # fmt: skip
    force: bool = flag(help="Overwrite an existing file.")


@command("umm.cli.answers.new_machine:new")
class New(Written):
    """Write a commented machine file to fill in from data sheets.

    NAME becomes one of your own machines; a FILE has .toml or a folder in it; - prints the file. Numbers
    are copied from another machine and marked as copied until you replace them: 'umm machine check' lists
    those left. Kernels keep their shares of the peak and of the memory's bandwidth. Those of an engine get
    ranges of 20 % at least: laws of H100 are off by 10 to 13 % on H200, of B200 by 10 to 21 % on B300; of
    another family by 24 to 70 % and more.
    """

    name: str | None = argument(metavar="NAME|FILE", required=False)
    devices: int | None = flag(type=click.IntRange(1), metavar="N", help="Devices of a node.")
    other: str = flag(
        "--from", required=True, metavar="NAME|FILE", shell_complete=among(machines),
        help="Machine to take all other numbers from; the most similar one.",
    )  # fmt: skip
    kernels: str | None = flag(metavar="ENGINE", help="Whose kernels of the other machine to take: vllm.")


@command("umm.cli.answers.new_machine:import_machine", name="import")
class Import(Written):
    """Write a machine file from topology tools or benchmark logs.

    FILE is the output of 'nvidia-smi topo -m' or 'lstopo --of xml'; - is stdin. It gives the devices and the
    links between them; the other numbers are copied from --from and marked as copied until you replace them.

    Or FILES are logs: nccl-tests, rccl-tests, nvbandwidth, OSU micro-benchmarks, a table of XLA, a CSV of
    GEMMs. The output shows the fitted numbers, the error of each row, and what the logs could not determine.
    Without a NAME no file is written. By default --from is the machine whose device the logs name.
    """

    files: tuple[str, ...] = argument(nargs=-1, metavar="FILE… [NAME|FILE.toml]")
    nvlink: float = flag(
        default="25GB/s", callback=bandwidth, metavar="RATE",
        help="Bandwidth of one NVLink in one direction, which nvidia-smi does not print: 25GB/s for NVLink 2 "
        "to 4, 50GB/s for NVLink 5.",
    )  # fmt: skip
    ranks: int | None = flag(
        type=click.IntRange(2), metavar="P", help="Number of ranks, if a log does not state it, as OSU's.",
    )  # fmt: skip
    as_kernels: bool = flag(
        "--kernels",
        help="FILES are tables of measured multiplies, or AIConfigurator's of attention and experts (which "
        "umm serve takes), Parquet or CSV: they count beside the machine file, written with the numbers of "
        "--from.",
    )  # fmt: skip
    aic: str | None = flag(
        metavar="SYSTEM/ENGINE[/VERSION]",
        help="Tables of multiplies, attention and experts of AIConfigurator (extra aic), such as "
        "h100_sxm/vllm; no FILE is needed.",
    )  # fmt: skip

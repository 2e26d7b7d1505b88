"""``umm fuse``: whether to fuse a multiply with the collective before or after it."""

from typing import Any

import click

from umm.cli.flags.options import option, output_options, problem_options
from umm.cli.printed.output import Output

LINE = "{:<20} {:>12} {:>12}  {}"


@click.command()
@problem_options(machine="h100-8", layouts=False)
@option(
    "--collective", type=click.Choice(["all-gather", "reduce-scatter"]), default="all-gather",
    show_default=True, help="Before the multiply: A's rows are gathered. After: C's sums are scattered.",
)  # fmt: skip
@output_options()
def fuse(collective: str, as_json: bool, quiet: bool, no_color: bool, **flags: Any) -> None:
    """Compare ways to multiply beside a collective, and say whether to fuse.

    m, n and k are those of all ranks. Unfused is the library's collective, then its multiply; the others
    overlap the two: a ring in chunks from the host, the same queued on the device, and kernels that wait tile
    by tile. C has the type of A and B, or bfloat16 of 8-bit ones, unless --c-dtype says.
    """
    from umm.cli.flags.asked import asked_machine
    from umm.errors import InputError
    from umm.space.fusing import fusing
    from umm.units import format_seconds

    sizes = {name: flags[name] for name in "mnk"}
    missing = [f"-{name}" for name, size in sizes.items() if size is None]
    if missing:
        raise InputError(f"{', '.join(missing)} missing; give m, n and k, or --preset")
    if flags["given"]:
        raise InputError("--given says nothing here: A lies in rows, or C shall; leave it out")
    machine = asked_machine(flags)
    found = fusing(
        machine,
        **sizes,
        what=collective,
        dtype=flags["dtype"],
        c_dtype=flags["c_dtype"],
        ranks=flags["ranks"],
    )
    output = Output(as_json, quiet, no_color)
    if as_json:
        output.json("fuse", found.record())
        return
    console = output.console()
    console.print(
        f"{collective} and a multiply, m={found.m}, n={found.n}, k={found.k}, {found.dtype}, "
        f"C {found.c_dtype}, {found.ranks} ranks on {found.machine}: "
        f"alone {format_seconds(found.collective_s)} and {format_seconds(found.gemm_s)}"
    )
    console.print(LINE.format("way", "time", "exposed", "").rstrip(), style="bold")
    for way in found.ways:
        console.print(
            LINE.format(way.name, format_seconds(way.seconds), format_seconds(way.exposed_s), way.note)
        )
    console.print(found.verdict)

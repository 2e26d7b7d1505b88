"""``umm machine``: list, show and check machines, and the commands that write their files."""

import click

from umm.cli.commands.calibrate import Calibrate
from umm.cli.commands.new_machine import Import, New
from umm.cli.flags.declared import argument, command, flag
from umm.cli.flags.options import Answering, Located


@click.group(invoke_without_command=True)
@click.pass_context
def machine(ctx: click.Context) -> None:
    """List, show and check machines; write new ones, and calibrate this one."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@command("umm.cli.answers.machine:show")
class Show(Located, Answering):
    """Show a machine, and the source of every number.

    Its devices, and the bandwidth between them, come first.
    """

    machine: str = argument(metavar="NAME_OR_FILE")
    as_toml: bool = flag("--toml", help="Print its machine file, as a start for another.")


@command("umm.cli.answers.machine:export")
class Export(Located):
    """Write a table of collectives for XLA or NCCL's example tuner."""

    machine: str = argument(metavar="NAME_OR_FILE")
    xla: bool = flag(help="The table of collectives that XLA reads, as protocol buffer text.")
    platform: str | None = flag(metavar="KEY", help="XLA's key of the device: sm_90, gfx950 …")
    nccl_tuner: bool = flag(help="The CSV of NCCL's example tuner.")


@command("umm.cli.answers.machine:check")
class Check(Answering):
    """Check machine files: all that is missing or wrong, at once.

    Every key, every number, and a route between every two devices; of a right file, which of its numbers are
    still another machine's.
    """

    names_or_files: tuple[str, ...] = argument(nargs=-1, required=True)


@command("umm.cli.answers.machine:list_machines", name="list")
class ListMachines(Answering):
    """List the machines that are known by name.

    A file that describes none is marked broken.
    """


for each in (ListMachines, Show, Check, Export, New, Import, Calibrate):
    machine.add_command(each.command)

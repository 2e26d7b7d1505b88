"""``umm machine``: list, show and check machines, and the commands that write their files."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from umm.cli.commands.calibrate import calibrate
from umm.cli.commands.new_machine import import_machine, new
from umm.cli.flags.declared import argument, command, flag
from umm.cli.flags.options import Answering, Located
from umm.errors import InputError, MachineError
from umm.files import read_text, shortened
from umm.quoting.terminal import visible

if TYPE_CHECKING:
    from umm.machines import Machine


@click.group(invoke_without_command=True)
@click.pass_context
def machine(ctx: click.Context) -> None:
    """List, show and check machines; write new ones, and calibrate this one."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@command(Answering, name="list")
def list_machines(asked: Answering) -> None:
    """List the machines that are known by name.

    A file that describes none is marked broken.
    """
    from umm.cli.printed.machine_page import machine_record, print_machines
    from umm.machines import machine as find_machine
    from umm.machines import machine_names
    from umm.machines.files import named_file

    machines: list[Machine] = []
    broken: list[dict[str, str]] = []
    for name in machine_names():
        try:
            machines.append(find_machine(name))
        except MachineError as error:
            broken.append({"name": name, "file": str(named_file(name)), "error": str(error)})
    asked.answer(
        lambda: {"machines": [machine_record(x) for x in machines], "broken": broken},
        lambda console: print_machines(console, machines, broken),
    )


class Show(Located, Answering):
    """A machine, and whether its file is printed."""

    machine: str = argument(metavar="NAME_OR_FILE")
    as_toml: bool = flag("--toml", is_flag=True, help="Print its machine file, as a start for another.")


@command(Show)
def show(asked: Show) -> None:
    """Show a machine, and the source of every number.

    Its devices, and the bandwidth between them, come first.
    """
    from umm.cli.printed.machine_page import print_machine, shown_record
    from umm.machines.drafts.scaffold import text

    machine = asked.hardware
    if asked.as_toml:
        if asked.output.as_json:
            raise InputError("--toml and --json are two forms; keep one")
        as_it_is = machine.name == machine.source_path.stem
        click.echo(read_text(machine.source_path) if as_it_is else text(machine.document), nl=False)
        return
    for pair in machine.fabric.without_route():
        machine.route(*pair)  # which says why
    asked.answer(lambda: shown_record(machine), lambda console: print_machine(console, machine))


class Export(Located):
    """A machine, and which table of it is printed."""

    machine: str = argument(metavar="NAME_OR_FILE")
    xla: bool = flag(is_flag=True, help="The table of collectives that XLA reads, as protocol buffer text.")
    platform: str | None = flag(metavar="KEY", help="XLA's key of the device: sm_90, gfx950 …")
    nccl_tuner: bool = flag(is_flag=True, help="The CSV of NCCL's example tuner.")


@command(Export)
def export(asked: Export) -> None:
    """Write a table of collectives for XLA or NCCL's example tuner."""
    from umm.emit import collective_tables
    from umm.machines.drafts.logs import GPUS

    if asked.xla == asked.nccl_tuner:
        raise InputError("name one table: --xla or --nccl-tuner")
    machine = asked.hardware
    if asked.nccl_tuner:
        click.echo(collective_tables.nccl_tuner(machine), nl=False)
        return
    keys = {name: key for key, name in GPUS.items() if key.startswith(("sm_", "gfx"))}
    key = asked.platform or keys.get(machine.source_path.stem)
    if key is None:
        raise InputError(f"XLA's key for {machine.name} is not known; give --platform, such as sm_90")
    click.echo(collective_tables.xla_table(machine, key), nl=False)


class Check(Answering):
    """Machine files."""

    names_or_files: tuple[str, ...] = argument(nargs=-1, required=True)


@command(Check)
def check(asked: Check) -> None:
    """Check machine files: all that is missing or wrong, at once.

    Every key, every number, and a route between every two devices; of a right file, which of its numbers are
    still another machine's.
    """
    from umm.cli.printed.machine_page import copied_in_words
    from umm.machines import machine as find_machine
    from umm.machines.drafts.scaffold import copied
    from umm.machines.files import mistakes

    rows: list[dict[str, Any]] = []
    for name in asked.names_or_files:
        file = Path(name).name
        try:
            wrong = [f"{file}: {line}" for line in mistakes(name)]
        except MachineError as error:
            wrong = [str(error) if file in str(error) else f"{name}: {error}"]
        if wrong:
            rows.append({"machine": name, "ok": False, "error": wrong[0], "errors": wrong})
            for line in wrong:
                click.echo(f"error: {shortened(visible(line), 500)}", err=True)
            continue
        machine = find_machine(name)
        others = copied(machine.facts)
        rows.append({"machine": name, "ok": True, "error": None, "errors": [], "copied": others})
        if not asked.output.as_json:
            counts = f"{machine.device_count} devices, {len(machine.link_names)} links"
            for line in (f"{name}: ok, {counts}", *copied_in_words(others)):
                click.echo(visible(line))
    if asked.output.as_json:
        asked.output.json("machine check", {"machines": rows})
    if not all(row["ok"] for row in rows):
        asked.ctx.exit(InputError.exit_code)


for each in (list_machines, show, check, export, new, import_machine, calibrate):
    machine.add_command(each)

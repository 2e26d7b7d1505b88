"""``umm machine``: list, show, check and calibrate machines."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from umm.cli.commands.calibrate import calibrate
from umm.cli.flags.options import output_options
from umm.cli.printed.output import Output
from umm.errors import InputError, MachineError

if TYPE_CHECKING:
    from umm.machines import Machine


@click.group(invoke_without_command=True)
@click.pass_context
def machine(ctx: click.Context) -> None:
    """List, show, check and calibrate machines."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@machine.command("list")
@output_options()
def list_machines(as_json: bool, quiet: bool, no_color: bool) -> None:
    """List the machines that are known by name; a file that describes none is marked broken."""
    from umm.cli.printed.machine_page import machine_record, print_machines
    from umm.machines import machine as find_machine
    from umm.machines import machine_names
    from umm.machines.files import named_file

    output = Output(as_json, quiet, no_color)
    machines: list[Machine] = []
    broken: list[dict[str, str]] = []
    for name in machine_names():
        try:
            machines.append(find_machine(name))
        except MachineError as error:
            broken.append({"name": name, "file": str(named_file(name)), "error": str(error)})
    if as_json:
        records = [machine_record(found) for found in machines]
        output.json("machine list", {"machines": records, "broken": broken})
        return
    print_machines(output.console(), machines, broken)


@machine.command()
@click.argument("name_or_file")
@output_options()
def show(name_or_file: str, as_json: bool, quiet: bool, no_color: bool) -> None:
    """Show a machine: its devices, the bandwidth between them, and the source of every number."""
    from umm.cli.printed.machine_page import machine_record, print_machine
    from umm.machines import machine as find_machine

    output = Output(as_json, quiet, no_color)
    found = find_machine(name_or_file)
    matrix = found.bandwidth_matrix()
    if not as_json:
        print_machine(output.console(), found, matrix)
        return
    facts = [fact._asdict() for fact in found.facts]
    links = [link._asdict() for link in found.links]
    record = machine_record(found) | {"bandwidth": matrix.tolist(), "links": links, "facts": facts}
    output.json("machine show", {"machine": record})


@machine.command()
@click.argument("names_or_files", nargs=-1, required=True)
@output_options()
@click.pass_context
def check(
    ctx: click.Context, names_or_files: tuple[str, ...], as_json: bool, quiet: bool, no_color: bool
) -> None:
    """Check topology files: every key, every number, and a route between every two devices."""
    from umm.machines import machine as find_machine

    output = Output(as_json, quiet, no_color)
    rows: list[dict[str, Any]] = []
    for name in names_or_files:
        try:
            found = find_machine(name)
            found.bandwidth_matrix()  # finds the route of every pair
        except MachineError as error:
            said = str(error) if Path(name).name in str(error) else f"{name}: {error}"
            rows.append({"machine": name, "ok": False, "error": said})
            click.echo(f"error: {said}", err=True)
        else:
            rows.append({"machine": name, "ok": True, "error": None})
            if not as_json:
                click.echo(f"{name}: ok, {found.device_count} devices, {len(found.link_names)} links")
    if as_json:
        output.json("machine check", {"machines": rows})
    if not all(row["ok"] for row in rows):
        ctx.exit(InputError.exit_code)


machine.add_command(calibrate)

"""``umm machine``: list, show and check machines, and the commands that write their files."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from umm.cli.commands.calibrate import calibrate
from umm.cli.commands.new_machine import import_machine, new
from umm.cli.flags.options import kernels_option, nodes_option, option, output_options, set_option
from umm.cli.printed.output import Output
from umm.errors import InputError, MachineError
from umm.files import read_text, shortened
from umm.quoting.terminal import visible

if TYPE_CHECKING:
    from umm.machines import Machine


MOST_SHOWN = 1024
"""Devices of a machine whose bandwidths --json has."""


@click.group(invoke_without_command=True)
@click.pass_context
def machine(ctx: click.Context) -> None:
    """List, show and check machines; write new ones, and calibrate this one."""
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
@nodes_option()
@set_option()
@kernels_option()
@option("--toml", "as_toml", is_flag=True, help="Print its machine file, as a start for another.")
@output_options()
def show(name_or_file: str, as_toml: bool, as_json: bool, quiet: bool, no_color: bool, **flags: Any) -> None:
    """Show a machine: its devices, the bandwidth between them, and the source of every number."""
    from umm.cli.flags.asked import asked_machine
    from umm.cli.printed.machine_page import machine_record, print_machine
    from umm.machines.drafts.scaffold import text

    output = Output(as_json, quiet, no_color)
    found = asked_machine(flags | {"machine": name_or_file})
    if as_toml:
        if as_json:
            raise InputError("--toml and --json are two forms; keep one")
        as_it_is = found.name == found.source_path.stem
        shown = read_text(found.source_path) if as_it_is else text(found.document)
        click.echo(shown, nl=False)
        return
    for pair in found.fabric.without_route():
        found.route(*pair)  # which says why
    if not as_json:
        print_machine(output.console(), found)
        return
    matrix = found.bandwidth_matrix().tolist() if found.device_count <= MOST_SHOWN else None
    facts = [fact._asdict() for fact in found.facts]
    links = [link._asdict() for link in found.links]
    record = machine_record(found) | {"bandwidth": matrix, "links": links, "facts": facts}
    output.json("machine show", {"machine": record})


@machine.command()
@click.argument("name_or_file")
@nodes_option()
@set_option()
@kernels_option()
@option("--xla", is_flag=True, help="The table of collectives that XLA reads, as protocol buffer text.")
@option("--platform", default=None, metavar="KEY", help="XLA's key of the device: sm_90, gfx950 …")
@option("--nccl-tuner", is_flag=True, help="The CSV of NCCL's example tuner.")
def export(name_or_file: str, xla: bool, platform: str | None, nccl_tuner: bool, **flags: Any) -> None:
    """Write a machine's collectives as a table that XLA or NCCL's example tuner reads."""
    from umm.cli.flags.asked import asked_machine
    from umm.emit import collective_tables
    from umm.machines.drafts.logs import GPUS

    if xla == nccl_tuner:
        raise InputError("name one table: --xla or --nccl-tuner")
    found = asked_machine(flags | {"machine": name_or_file})
    if nccl_tuner:
        click.echo(collective_tables.nccl_tuner(found), nl=False)
        return
    keys = {name: key for key, name in GPUS.items() if key.startswith(("sm_", "gfx"))}
    key = platform or keys.get(found.source_path.stem)
    if key is None:
        raise InputError(f"XLA's key for {found.name} is not known; give --platform, such as sm_90")
    click.echo(collective_tables.xla_table(found, key), nl=False)


@machine.command()
@click.argument("names_or_files", nargs=-1, required=True)
@output_options()
@click.pass_context
def check(
    ctx: click.Context, names_or_files: tuple[str, ...], as_json: bool, quiet: bool, no_color: bool
) -> None:
    """Check machine files: all that is missing or wrong, at once.

    Every key, every number, and a route between every two devices; of a right file, which of its numbers are
    still another machine's.
    """
    from umm.cli.printed.machine_page import copied_in_words
    from umm.machines import machine as find_machine
    from umm.machines.drafts.scaffold import copied
    from umm.machines.files import mistakes

    output = Output(as_json, quiet, no_color)
    rows: list[dict[str, Any]] = []
    for name in names_or_files:
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
        found = find_machine(name)
        others = copied(found.facts)
        rows.append({"machine": name, "ok": True, "error": None, "errors": [], "copied": others})
        if not as_json:
            click.echo(visible(f"{name}: ok, {found.device_count} devices, {len(found.link_names)} links"))
            for line in copied_in_words(others):
                click.echo(visible(line))
    if as_json:
        output.json("machine check", {"machines": rows})
    if not all(row["ok"] for row in rows):
        ctx.exit(InputError.exit_code)


for command in (new, import_machine, calibrate):
    machine.add_command(command)

"""``umm machine new`` and ``umm machine import``: a commented machine file, to be filled in."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from umm.cli.flags.options import Command, all_of, option, output_options, set_option
from umm.cli.flags.values import among, bandwidth, machines
from umm.cli.printed.output import Output
from umm.errors import InputError

if TYPE_CHECKING:
    from umm.machines import Machine

CARD_OF = "dgx-h100x4"
"""The machine whose network card stands for one that is not known yet."""


def file_options() -> Callable[[Command], Command]:
    """Return a decorator that adds what both commands take."""
    return all_of(
        [
            option(
                "--from",
                "other",
                required=True,
                metavar="NAME|FILE",
                shell_complete=among(machines),
                help="Machine whose numbers stand in until others are known; the most similar one.",
            ),
            option("--nodes", type=click.IntRange(1), metavar="N", help="Nodes."),
            set_option(),
            option("--source", default="", metavar="TEXT", help="Where the numbers of --set are from."),
            option("--force", is_flag=True, help="Write over a file that is there."),
            output_options(),
        ]
    )


@click.command()
@click.argument("name", metavar="NAME|FILE")
@option("--devices", type=click.IntRange(1), metavar="N", help="Devices of a node.")
@file_options()
def new(devices: int | None, nodes: int | None, source: str, **flags: Any) -> None:
    """Write a commented machine file, to be filled in from data sheets.

    NAME is one of your own machines from then on; a FILE has .toml or a folder in it. Its numbers are those
    of another machine, and each says so until it is replaced: 'umm machine check' lists which still are.
    """
    from umm.machines.drafts.scaffold import scaffold

    def content(other: "Machine", card: dict[str, Any], settings: dict[str, str]) -> dict[str, Any]:
        return scaffold(other, card, nodes=nodes, devices=devices, settings=settings, source=source)

    _write(content, **flags)


@click.command("import")
@click.argument("described", type=click.File("r", encoding="utf-8"), metavar="FILE")
@click.argument("name", metavar="NAME|FILE")
@option(
    "--nvlink",
    default="25GB/s",
    show_default=True,
    callback=bandwidth,
    metavar="RATE",
    help="One NVLink, one direction: 25GB/s of NVLink 2 to 4, 50GB/s of NVLink 5; for nvidia-smi, which does "
    "not say.",
)
@file_options()
def import_machine(described: IO[str], nvlink: float, nodes: int | None, source: str, **flags: Any) -> None:
    """Write a machine file from what nvidia-smi or hwloc says of a node.

    FILE is what 'nvidia-smi topo -m' prints or 'lstopo --of xml' writes; - is stdin. It gives the devices and
    the links between them; all else is another machine's, and says so until it is replaced.
    """
    from umm.machines.drafts.imports import imported, read

    node = read(described.read(), nvlink)

    def content(other: "Machine", card: dict[str, Any], settings: dict[str, str]) -> dict[str, Any]:
        return imported(node, other, card, nodes=nodes or 1, settings=settings, source=source)

    _write(content, **flags)


def _write(
    content_of: Callable[["Machine", dict[str, Any], dict[str, str]], dict[str, Any]],
    name: str,
    other: str,
    changes: tuple[str, ...],
    force: bool,
    as_json: bool,
    quiet: bool,
    no_color: bool,
) -> None:
    """Write the file of a new machine, if what it holds is a machine.

    Raises:
        InputError: for a file that is there already, or a name that cannot be one.
        MachineError: for what cannot be.
    """
    from umm.cli.printed.machine_page import machine_record, print_new_machine
    from umm.files import whole_file
    from umm.machines import machine as find_machine
    from umm.machines.build import build
    from umm.machines.drafts.scaffold import copied, marked, text
    from umm.machines.files import named_file, user_folder
    from umm.machines.settings import read_setting

    output = Output(as_json, quiet, no_color)
    is_path = name.endswith(".toml") or os.sep in name
    if not is_path and not re.fullmatch(r"[\w][\w.+-]*", name):
        raise InputError(f"{name!r} is not a machine's name; take letters, digits, - and _, or a file.toml")
    path = Path(name) if is_path else user_folder() / f"{name}.toml"
    there = path if is_path else named_file(name)
    if there.exists() and not force:
        raise InputError(f"{there} is there already; choose another name, or write over it with --force")
    card = marked(find_machine(CARD_OF).document["fabric"]["nic"], CARD_OF)
    content = content_of(find_machine(other), card, dict(map(read_setting, changes)))
    made = build(content, path, path.stem)
    written = text(content)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as partial:
        partial.write_text(written, encoding="utf-8")
    if as_json:
        output.json("machine new", {"machine": machine_record(made) | {"copied": copied(made.facts)}})
    else:
        print_new_machine(output.console(), made, name)

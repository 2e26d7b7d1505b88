"""``umm machine new`` and ``umm machine import``: a commented machine file, to be filled in."""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from umm.cli.flags.options import WRITE, Command, all_of, option, output_options, set_option
from umm.cli.flags.values import among, bandwidth, machines
from umm.cli.printed.output import Output
from umm.errors import InputError
from umm.files import read_text

if TYPE_CHECKING:
    from umm.machines import Machine

STDOUT = "-"
LIBRARY_OF = "h100-8"
"""The machine whose library's ways stand for those of one that has none."""
MOST_LOG = 2**26
"""Bytes of a log that are read."""
CARD_OF = "dgx-h100x4"
"""The machine whose network card stands for one that is not known yet."""


def file_options(required: bool = True) -> Callable[[Command], Command]:
    """Return a decorator that adds what both commands take."""
    return all_of(
        [
            option(
                "--from",
                "other",
                required=required,
                metavar="NAME|FILE",
                shell_complete=among(machines),
                help="Machine to take all other numbers from; the most similar one.",
            ),
            option("--nodes", type=click.IntRange(1), metavar="N", help="Nodes."),
            set_option(),
            option("--source", default="", metavar="TEXT", help="Source of the numbers of --set."),
            option(
                "-o",
                "--output",
                "path",
                type=WRITE,
                metavar="FILE",
                help="Machine file to write, as of calibrate, instead of NAME or FILE.toml; - prints it.",
            ),
            option("--force", is_flag=True, help="Overwrite an existing file."),
            output_options(file=False),
        ]
    )


@click.command()
@click.argument("name", metavar="NAME|FILE", required=False)
@option("--devices", type=click.IntRange(1), metavar="N", help="Devices of a node.")
@file_options()
def new(
    name: str | None, path: Path | None, devices: int | None, nodes: int | None, source: str, **flags: Any
) -> None:
    """Write a commented machine file, to be filled in from data sheets.

    NAME becomes one of your own machines; a FILE has .toml or a folder in it; - prints the file. Numbers
    are copied from another machine and marked as copied until you replace them: 'umm machine check' lists
    those left.
    """
    from umm.machines.drafts.scaffold import scaffold

    def content(other: "Machine", card: dict[str, Any], settings: dict[str, str]) -> dict[str, Any]:
        return scaffold(other, card, nodes=nodes, devices=devices, settings=settings, source=source)

    name = _only_name(name, path)
    if name is None:
        raise InputError("give the machine a NAME, or a FILE.toml, or -o FILE")
    _write(content, name=name, **flags)


def _only_name(name: str | None, path: Path | None) -> str | None:
    """Return where a machine file is written: the NAME, or the file of -o; None if neither is given.

    Raises:
        InputError: for both.
    """
    if path is None:
        return name
    if name is not None:
        raise InputError(
            f"-o is the machine file, as is {name!r}; give one. What is printed goes to a file by > FILE"
        )
    return STDOUT if str(path) == STDOUT else os.path.join(path.parent, path.name)


@click.command("import")
@click.argument("files", nargs=-1, metavar="FILE… [NAME|FILE.toml]")
@option(
    "--nvlink",
    default="25GB/s",
    show_default=True,
    callback=bandwidth,
    metavar="RATE",
    help="Bandwidth of one NVLink in one direction, which nvidia-smi does not print: 25GB/s for NVLink 2 "
    "to 4, 50GB/s for NVLink 5.",
)
@option(
    "--ranks",
    type=click.IntRange(2),
    metavar="P",
    help="Number of ranks, if a log does not state it, as OSU's.",
)
@option(
    "--kernels",
    "as_kernels",
    is_flag=True,
    help="FILES are tables of measured multiplies, Parquet or CSV: they count beside the machine file, "
    "which is written with the numbers of --from.",
)
@option(
    "--aic",
    metavar="SYSTEM/ENGINE[/VERSION]",
    help="A table of multiplies of AIConfigurator (extra aic), such as h100_sxm/vllm; no FILE is needed.",
)
@file_options(required=False)
def import_machine(
    files: tuple[str, ...],
    path: Path | None,
    as_kernels: bool,
    aic: str | None,
    nvlink: float,
    ranks: int | None,
    nodes: int | None,
    source: str,
    other: str | None,
    **flags: Any,
) -> None:
    """Write a machine file from the output of topology tools, or fit its numbers to benchmark logs.

    FILE is the output of 'nvidia-smi topo -m' or 'lstopo --of xml'; - is stdin. It gives the devices and the
    links between them; the other numbers are copied from --from and marked as copied until you replace them.

    Or FILES are logs: nccl-tests, rccl-tests, nvbandwidth, OSU micro-benchmarks, a table of XLA, a CSV of
    GEMMs. The output shows the fitted numbers, the error of each row, and what the logs could not determine.
    Without a NAME no file is written. By default --from is the machine whose device the logs name.
    """
    from umm.machines.drafts.imports import card_notes, imported, read
    from umm.machines.drafts.logs import is_log

    if as_kernels or aic is not None:
        written = _only_name(None, path)
        _with_table((*files, *([] if written is None else [written])), aic, other, flags)
        return
    if not files:
        raise InputError("name the files to read, or --aic h100_sxm/vllm")
    described, name = list(files), None
    if (
        path is None
        and len(files) > 1
        and (Path(files[-1]).suffix == ".toml" or not Path(files[-1]).is_file())
    ):
        name = described.pop()
    name = _only_name(name, path)
    texts = [_text(each) for each in described]
    if any(is_log(text) for text in texts):
        _fit(dict(zip(described, texts, strict=True)), name, other, ranks, nodes, source, flags)
        return
    if len(texts) > 1:
        raise InputError("nvidia-smi and hwloc describe a node in one file; give that and a name")
    node = read(texts[0], nvlink)
    if name is None or other is None:
        raise InputError("a topology gives links only: add --from MACHINE for the rest, and a NAME")

    output = Output(flags["as_json"], flags["quiet"], flags["no_color"])

    def content(other: "Machine", card: dict[str, Any], settings: dict[str, str]) -> dict[str, Any]:
        for note in card_notes(node, other):
            output.note(note)
        return imported(node, other, card, nodes=nodes or 1, settings=settings, source=source)

    _write(content, name=name, other=other, **flags)


def _with_table(files: tuple[str, ...], aic: str | None, other: str | None, flags: dict[str, Any]) -> None:
    """Write a machine file and, beside it, a table of measured multiplies.

    Raises:
        InputError: for a file that is no such table, and where it is not said whose machine it is of.
        MachineError: for a type of which that machine has no kernels.
    """
    from umm.files import whole_file
    from umm.machines import machine as find_machine
    from umm.machines import user_folder
    from umm.machines.drafts.measured import aic_table, read_measured, table_text
    from umm.machines.tables import NO_LAW, beside

    if aic is not None:
        machine, engine, table = aic_table(aic)
        names, paths = list(files), [table]
        other, name = other or f"{machine} kernels={engine}", f"{machine}-{engine}"
        if len(names) > 1:
            raise InputError("--aic has a table; give no FILE, and at most the machine's NAME")
        name = names[0] if names else name
    else:
        if len(files) < 2 or other is None:
            raise InputError(
                "--kernels needs FILE…, a NAME for the machine, and --from MACHINE it is measured on"
            )
        *tables, name = files
        paths = list(map(Path, tables))
    if name == STDOUT:
        raise InputError("a table is written beside a machine file; give a NAME or a FILE.toml, not -")
    begun = find_machine(other)
    measured = read_measured(paths)
    for dtype in {key[0] for key in measured.rows}:
        if begun.law_of(dtype) is None:
            raise InputError(f"the tables have {dtype}, of which {NO_LAW.format(begun.name)}")

    def content(other: "Machine", card: dict[str, Any], settings: dict[str, str]) -> dict[str, Any]:
        from umm.machines.settings import set_numbers

        return set_numbers(dict(other.document), settings, other.name)

    _write(content, name=name, other=other, **flags)
    is_path = name.endswith(".toml") or os.sep in name
    path = beside(Path(name) if is_path else user_folder() / f"{name}.toml")
    with whole_file(path) as partial:
        partial.write_text(table_text(measured.rows), encoding="utf-8")
    output = Output(flags["as_json"], flags["quiet"], flags["no_color"])
    output.note(f"{path}: {len(measured.rows):,} measured shapes; between them they count, elsewhere the law")
    for dtype, count in measured.left.items():
        output.note(f"left out: {count:,} rows of {dtype}, which umm does not multiply")


def _text(name: str) -> str:
    """Return a file's text; - is stdin."""
    if name != "-":
        return read_text(name, MOST_LOG)
    content = sys.stdin.buffer.read(MOST_LOG + 1)
    if len(content) > MOST_LOG:
        raise InputError(f"stdin has more than {MOST_LOG} bytes, which are not read")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise InputError("stdin is not a text in UTF-8") from None


def _fit(
    texts: dict[str, str],
    name: str | None,
    other: str | None,
    ranks: int | None,
    nodes: int | None,
    source: str,
    flags: dict[str, Any],
) -> None:
    """Fit a machine to logs, print what came out, and write its file if it has a name.

    Raises:
        MachineError: for a file that is no log, or a device that is not known.
    """
    from umm.cli.printed.machine_page import fit_record, print_fit
    from umm.errors import MachineError
    from umm.machines import machine as find_machine
    from umm.machines.drafts.fits import Fitted, fitted
    from umm.machines.drafts.logs import gpu_of, read_log
    from umm.machines.drafts.scaffold import marked
    from umm.machines.settings import read_setting, set_numbers

    output = Output(flags["as_json"], flags["quiet"], flags["no_color"])
    logs = {each: read_log(text, Path(each).name, ranks) for each, text in texts.items()}
    other = other or gpu_of(logs.values())
    if other is None:
        raise MachineError("the logs name no known device; give --from the most similar machine")
    said = source or f"fitted to {', '.join(Path(each).name for each in texts)}"
    stands_in, template = find_machine(other, nodes=nodes), find_machine(LIBRARY_OF)
    answer: list[Fitted] = []

    def content(other: "Machine", card: dict[str, Any], settings: dict[str, str]) -> dict[str, Any]:
        marked_as = marked(other.document, other.name)
        library = marked(template.document, template.name)["library"]
        begun = set_numbers(marked_as, settings, other.name, source or None)
        answer.append(fitted(begun, logs.values(), library, said))
        return answer[0].content

    if name is None:
        content(stands_in, {}, dict(map(read_setting, flags["changes"])))
        if flags["as_json"]:
            output.json("machine import", fit_record(answer[0], stands_in.name))
    else:
        _write(content, name=name, other=stands_in.name, **flags)
    if not flags["as_json"]:
        print_fit(output.console(), answer[0], list(logs.values()), stands_in.name)


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
    is_path = name.endswith(".toml") or os.sep in name or name == STDOUT
    if not is_path and not re.fullmatch(r"[\w][\w.+-]*", name):
        raise InputError(f"{name!r} is not a machine's name; take letters, digits, - and _, or a file.toml")
    path = Path(name) if is_path else user_folder() / f"{name}.toml"
    there = path if is_path else named_file(name)
    if name != STDOUT and there.exists() and not force:
        raise InputError(f"{there} exists; choose another name, or overwrite it with --force")
    card = marked(find_machine(CARD_OF).document["fabric"]["nic"], CARD_OF)
    content = content_of(find_machine(other), card, dict(map(read_setting, changes)))
    made = build(content, path, path.stem)
    written = text(content)
    if name == STDOUT:
        click.echo(written, nl=False)
        return
    if not is_path:
        path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as partial:
        partial.write_text(written, encoding="utf-8")
    if as_json:
        output.json("machine new", {"machine": machine_record(made) | {"copied": copied(made.facts)}})
    else:
        print_new_machine(output.console(), made, name)

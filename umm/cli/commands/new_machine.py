"""``umm machine new`` and ``umm machine import``: a commented machine file, to be filled in."""

import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from umm.cli.flags.declared import argument, command, flag
from umm.cli.flags.options import WRITE, Printed
from umm.cli.flags.values import among, bandwidth, machines
from umm.errors import InputError
from umm.files import read_text

if TYPE_CHECKING:
    from umm.machines import Machine

STDOUT = "-"
LIBRARY_OF = "h100-8"  # the machine whose library's ways stand for those of one that has none
MOST_LOG = 2**26  # bytes of a log that are read
CARD_OF = "dgx-h100x4"  # the machine whose network card stands for one that is not known yet
Content = Callable[["Machine", dict[str, Any], dict[str, str]], dict[str, Any]]
"""Returns what a file holds, from another machine, a network card and the numbers that are set."""


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
    force: bool = flag(is_flag=True, help="Overwrite an existing file.")

    def settings(self) -> dict[str, str]:
        """Return the numbers that are set."""
        from umm.machines.settings import read_setting

        return dict(map(read_setting, self.changes))

    def write(self, content_of: Content, name: str, other: str) -> None:
        """Write the file of a new machine, if its content is a machine.

        Args:
            content_of: Returns the content.
            name: The machine's name or file.
            other: The machine that the rest is taken from.

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

        is_path = name.endswith(".toml") or os.sep in name or name == STDOUT
        if not is_path and not re.fullmatch(r"[\w][\w.+-]*", name):
            raise InputError(
                f"{name!r} is not a machine's name; take letters, digits, - and _, or a file.toml"
            )
        path = Path(name) if is_path else user_folder() / f"{name}.toml"
        existing = path if is_path else named_file(name)
        if name != STDOUT and existing.exists() and not self.force:
            raise InputError(f"{existing} exists; choose another name, or overwrite it with --force")
        card = marked(find_machine(CARD_OF).document["fabric"]["nic"], CARD_OF)
        content = content_of(find_machine(other), card, self.settings())
        made = build(content, path, path.stem)
        written = text(content)
        if name == STDOUT:
            click.echo(written, nl=False)
            return
        if not is_path:
            path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as partial:
            partial.write_text(written, encoding="utf-8")
        if self.output.as_json:
            record = {"machine": machine_record(made) | {"copied": copied(made.facts)}}
            self.output.json("machine new", record)
        else:
            print_new_machine(self.output.console(), made, name)


class New(Written):
    """A new machine's name, and its size."""

    name: str | None = argument(metavar="NAME|FILE", required=False)
    devices: int | None = flag(type=click.IntRange(1), metavar="N", help="Devices of a node.")
    other: str = flag(
        "--from", required=True, metavar="NAME|FILE", shell_complete=among(machines),
        help="Machine to take all other numbers from; the most similar one.",
    )  # fmt: skip
    kernels: str | None = flag(metavar="ENGINE", help="Whose kernels of the other machine to take: vllm.")


@command(New)
def new(asked: New) -> None:
    """Write a commented machine file to fill in from data sheets.

    NAME becomes one of your own machines; a FILE has .toml or a folder in it; - prints the file. Numbers
    are copied from another machine and marked as copied until you replace them: 'umm machine check' lists
    those left. Kernels keep their shares of the peak and of the memory's bandwidth. Those of an engine get
    ranges of 20 % at least: laws of H100 are off by 10 to 13 % on H200, of B200 by 10 to 21 % on B300; of
    another family by 24 to 70 % and more.
    """
    from umm.machines.drafts.scaffold import scaffold
    from umm.machines.settings import with_settings

    def content(other: "Machine", card: dict[str, Any], settings: dict[str, str]) -> dict[str, Any]:
        if asked.kernels:
            other = replace(with_settings(other, {"kernels": asked.kernels}), name=other.name)
        size = {"nodes": asked.nodes, "devices": asked.devices}
        return scaffold(other, card, **size, settings=settings, source=asked.source)

    name = _only_name(asked.name, asked.path)
    if name is None:
        raise InputError("give the machine a NAME, or a FILE.toml, or -o FILE")
    asked.write(content, name, asked.other)


def _only_name(name: str | None, path: Path | None) -> str | None:
    """Return where a machine file is written: the NAME, or the file of -o; None if neither is given."""
    if path is None:
        return name
    if name is not None:
        raise InputError(
            f"-o is the machine file, as is {name!r}; give one. What is printed goes to a file by > FILE"
        )
    return STDOUT if str(path) == STDOUT else os.path.join(path.parent, path.name)


class Import(Written):
    """Outputs of topology tools, logs or tables, and the machine they are of."""

    files: tuple[str, ...] = argument(nargs=-1, metavar="FILE… [NAME|FILE.toml]")
    nvlink: float = flag(
        default="25GB/s", show_default=True, callback=bandwidth, metavar="RATE",
        help="Bandwidth of one NVLink in one direction, which nvidia-smi does not print: 25GB/s for NVLink 2 "
        "to 4, 50GB/s for NVLink 5.",
    )  # fmt: skip
    ranks: int | None = flag(
        type=click.IntRange(2), metavar="P", help="Number of ranks, if a log does not state it, as OSU's.",
    )  # fmt: skip
    as_kernels: bool = flag(
        "--kernels", is_flag=True,
        help="FILES are tables of measured multiplies, or AIConfigurator's of attention and experts (which "
        "umm serve takes), Parquet or CSV: they count beside the machine file, written with the numbers of "
        "--from.",
    )  # fmt: skip
    aic: str | None = flag(
        metavar="SYSTEM/ENGINE[/VERSION]",
        help="Tables of multiplies, attention and experts of AIConfigurator (extra aic), such as "
        "h100_sxm/vllm; no FILE is needed.",
    )  # fmt: skip


@command(Import, name="import")
def import_machine(asked: Import) -> None:
    """Write a machine file from topology tools or benchmark logs.

    FILE is the output of 'nvidia-smi topo -m' or 'lstopo --of xml'; - is stdin. It gives the devices and the
    links between them; the other numbers are copied from --from and marked as copied until you replace them.

    Or FILES are logs: nccl-tests, rccl-tests, nvbandwidth, OSU micro-benchmarks, a table of XLA, a CSV of
    GEMMs. The output shows the fitted numbers, the error of each row, and what the logs could not determine.
    Without a NAME no file is written. By default --from is the machine whose device the logs name.
    """
    from umm.machines.drafts.imports import card_notes, imported, read
    from umm.machines.drafts.logs import is_log

    files, path = asked.files, asked.path
    if asked.as_kernels or asked.aic is not None:
        written = _only_name(None, path)
        _with_table(asked, (*files, *([] if written is None else [written])))
        return
    if not files:
        raise InputError("name the files to read, or --aic h100_sxm/vllm")
    described, name = list(files), None
    last = Path(files[-1])
    if path is None and len(files) > 1 and (last.suffix == ".toml" or not last.is_file()):
        name = described.pop()
    name = _only_name(name, path)
    texts = [_text(each) for each in described]
    if any(is_log(text) for text in texts):
        _fit(asked, dict(zip(described, texts, strict=True)), name)
        return
    if len(texts) > 1:
        raise InputError("nvidia-smi and hwloc describe a node in one file; give that and a name")
    node = read(texts[0], asked.nvlink)
    if name is None or asked.other is None:
        raise InputError("a topology gives links only: add --from MACHINE for the rest, and a NAME")

    def content(other: "Machine", card: dict[str, Any], settings: dict[str, str]) -> dict[str, Any]:
        for note in card_notes(node, other):
            asked.output.note(note)
        return imported(node, other, card, nodes=asked.nodes or 1, settings=settings, source=asked.source)

    asked.write(content, name, asked.other)


def _with_table(asked: Import, files: tuple[str, ...]) -> None:
    """Write a machine file and, beside it, a table of measured multiplies.

    Raises:
        InputError: for a file that is no such table, and where it is not said whose machine it is of.
        MachineError: for a type of which that machine has no kernels.
    """
    from umm.files import whole_file
    from umm.machines import machine as find_machine
    from umm.machines import serving_tables, user_folder
    from umm.machines.drafts.measured import Measured, aic_table, lines_of, read_measured, table_text
    from umm.machines.drafts.measured_serving import aic_serving, is_serving, read_serving_tables
    from umm.machines.tables import NO_LAW, beside

    aic, other = asked.aic, asked.other
    if aic is not None:
        machine, engine, table = aic_table(aic)
        names, paths = list(files), [table, *aic_serving(table)]
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
    serving = [x for x in paths if is_serving(next(iter(lines_of(x)), {}))]
    kernels, left = read_serving_tables(serving)
    plain = [x for x in paths if x not in serving]
    measured = read_measured(plain) if plain else Measured({}, {})
    if kernels and not (begun.prefill or begun.decode or begun.experts):
        raise InputError(f"the tables have attention or experts, of which {NO_LAW.format(begun.name)}")
    for dtype in {key[0] for key in measured.rows}:
        if begun.law_of(dtype) is None:
            raise InputError(f"the tables have {dtype}, of which {NO_LAW.format(begun.name)}")

    def content(other: "Machine", card: dict[str, Any], settings: dict[str, str]) -> dict[str, Any]:
        from umm.machines.settings import set_numbers

        return set_numbers(dict(other.document), settings, other.name)

    asked.write(content, name, other)
    is_path = name.endswith(".toml") or os.sep in name
    file = Path(name) if is_path else user_folder() / f"{name}.toml"
    for path, text, count in (
        (beside(file), table_text(measured.rows), len(measured.rows)),
        (serving_tables.beside(file), table_text(kernels, serving_tables.COLUMNS), len(kernels)),
    ):
        if not count:
            path.unlink(missing_ok=True)
            continue
        with whole_file(path) as partial:
            partial.write_text(text, encoding="utf-8")
        asked.output.note(f"{path}: {count:,} measured shapes; between them they count, elsewhere the law")
    for dtype, count in measured.left.items():
        asked.output.note(f"left out: {count:,} rows of {dtype}, which umm does not multiply")
    for why, count in left.items():
        asked.output.note(f"left out: {count:,} rows of {why}")


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


def _fit(asked: Import, texts: dict[str, str], name: str | None) -> None:
    """Fit a machine to logs, print the result, and write its file if it has a name."""
    from umm.cli.printed.machine_page import fit_record, print_fit
    from umm.errors import MachineError
    from umm.machines import machine as find_machine
    from umm.machines.drafts.fits import Fitted, fitted
    from umm.machines.drafts.logs import gpu_of, read_log
    from umm.machines.drafts.scaffold import marked
    from umm.machines.settings import set_numbers

    output = asked.output
    logs = {each: read_log(text, Path(each).name, asked.ranks) for each, text in texts.items()}
    other = asked.other or gpu_of(logs.values())
    if other is None:
        raise MachineError("the logs name no known device; give --from the most similar machine")
    source = asked.source or f"fitted to {', '.join(Path(each).name for each in texts)}"
    stands_in, template = find_machine(other, nodes=asked.nodes), find_machine(LIBRARY_OF)
    answer: list[Fitted] = []

    def content(other: "Machine", card: dict[str, Any], settings: dict[str, str]) -> dict[str, Any]:
        marked_as = marked(other.document, other.name)
        library = marked(template.document, template.name)["library"]
        begun = set_numbers(marked_as, settings, other.name, asked.source or None)
        answer.append(fitted(begun, logs.values(), library, source))
        return answer[0].content

    if name is None:
        content(stands_in, {}, asked.settings())
        if output.as_json:
            output.json("machine import", fit_record(answer[0], stands_in.name))
    else:
        asked.write(content, name, stands_in.name)
    if not output.as_json:
        print_fit(output.console(), answer[0], list(logs.values()), stands_in.name)

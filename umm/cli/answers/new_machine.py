"""Answers of the commands in :mod:`umm.cli.commands.new_machine`."""

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from umm.cli.answers.machine import copied_in_words, machine_record
from umm.cli.commands.new_machine import Import, New, Written
from umm.cli.printed.output import grid
from umm.errors import InputError, MachineError
from umm.files import read_text, whole_file
from umm.machines import Machine, serving_tables, user_folder
from umm.machines import machine as find_machine
from umm.machines.build import build
from umm.machines.drafts.fits import Fitted, Residual, fitted
from umm.machines.drafts.imports import card_notes, imported, read
from umm.machines.drafts.logs import gpu_of, is_log, read_log
from umm.machines.drafts.measured import Measured, aic_table, doubt_of, lines_of, read_measured, table_text
from umm.machines.drafts.measured_serving import aic_serving, is_serving, read_serving_tables
from umm.machines.drafts.scaffold import copied, marked, scaffold, text
from umm.machines.files import named_file, tables_beside
from umm.machines.settings import read_setting, set_numbers, with_settings
from umm.machines.tables import NO_LAW
from umm.units import counted, format_bytes, format_seconds, percent

STDOUT = "-"
LIBRARY_OF = "h100-8"  # the machine whose library's ways stand for those of one that has none
MOST_LOG = 2**26  # bytes of a log that are read
CARD_OF = "dgx-h100x4"  # the machine whose network card stands for one that is not known yet
Content = Callable[[Machine, dict[str, Any], dict[str, str]], dict[str, Any]]
"""Returns the content of a file, from another machine, a network card and the numbers that are set."""


def new(asked: New) -> None:
    """Answer ``umm machine new``."""

    def content(other: Machine, card: dict[str, Any], settings: dict[str, str]) -> dict[str, Any]:
        if asked.kernels:
            other = replace(with_settings(other, {"kernels": asked.kernels}), name=other.name)
        size = {"nodes": asked.nodes, "devices": asked.devices}
        return scaffold(other, card, **size, settings=settings, source=asked.source)

    name = _only_name(asked.name, asked.path)
    if name is None:
        raise InputError("give the machine a NAME, or a FILE.toml, or -o FILE")
    _write(asked, content, name, asked.other)


def _only_name(name: str | None, path: Path | None) -> str | None:
    """Return where a machine file is written: the NAME, or the file of -o; None if neither is given."""
    if path is None:
        return name
    if name is not None:
        raise InputError(
            f"-o is the machine file, as is {name!r}; give one. What is printed goes to a file by > FILE"
        )
    return STDOUT if str(path) == STDOUT else os.path.join(path.parent, path.name)


def import_machine(asked: Import) -> None:
    """Answer ``umm machine import``."""
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
    if any(map(is_log, texts)):
        _fit(asked, dict(zip(described, texts, strict=True)), name)
        return
    if len(texts) > 1:
        raise InputError("nvidia-smi and hwloc describe a node in one file; give that and a name")
    node = read(texts[0], asked.nvlink)
    if name is None or asked.other is None:
        raise InputError("a topology gives links only: add --from MACHINE for the rest, and a NAME")

    def content(other: Machine, card: dict[str, Any], settings: dict[str, str]) -> dict[str, Any]:
        for note in card_notes(node, other):
            asked.output.note(note)
        return imported(node, other, card, nodes=asked.nodes or 1, settings=settings, source=asked.source)

    _write(asked, content, name, asked.other)


def _with_table(asked: Import, files: tuple[str, ...]) -> None:
    """Write a machine file and, beside it, a table of measured multiplies.

    InputError for a file that is no such table, and where it is not said whose machine it is of. MachineError
    for a type of which that machine has no kernels.
    """
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
    begun = find_machine(other, nodes=asked.nodes)
    serving = [x for x in paths if is_serving(next(iter(lines_of(x)), {}))]
    kernels, left = read_serving_tables(serving)
    plain = [x for x in paths if x not in serving]
    measured = read_measured(plain) if plain else Measured({}, {})
    if kernels and not (begun.prefill or begun.decode or begun.experts):
        raise InputError(f"the tables have attention or experts, of which {NO_LAW.format(begun.name)}")
    for dtype in {key[0] for key in measured.rows}:
        if begun.law_of(dtype) is None:
            raise InputError(f"the tables have {dtype}, of which {NO_LAW.format(begun.name)}")
    doubt = doubt_of(measured.rows, with_settings(begun, _settings(asked)))

    def content(other: Machine, card: dict[str, Any], settings: dict[str, str]) -> dict[str, Any]:
        return set_numbers(dict(begun.document), settings, begun.name)

    serving_text = table_text(kernels, serving_tables.COLUMNS) if kernels else ""
    _write(asked, content, name, other, (table_text(measured.rows) if measured.rows else "", serving_text))
    if doubt:
        asked.output.note(doubt)
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
    output = asked.output
    logs = {each: read_log(log, Path(each).name, asked.ranks) for each, log in texts.items()}
    other = asked.other or gpu_of(logs.values())
    if other is None:
        raise MachineError("the logs name no known device; give --from the most similar machine")
    source = asked.source or f"fitted to {', '.join(Path(each).name for each in texts)}"
    stands_in, template = find_machine(other, nodes=asked.nodes), find_machine(LIBRARY_OF)
    answer: list[Fitted] = []

    def content(other: Machine, card: dict[str, Any], settings: dict[str, str]) -> dict[str, Any]:
        marked_as = marked(other.document, other.name)
        library = marked(template.document, template.name)["library"]
        begun = set_numbers(marked_as, settings, other.name, asked.source or None)
        answer.append(fitted(begun, logs.values(), library, source))
        return answer[0].content

    if name is None:
        content(stands_in, {}, _settings(asked))
        if output.as_json:
            output.json("machine import", {
                "from": stands_in.name,
                "numbers": [number._asdict() for number in answer[0].numbers],
                "residuals": [x._asdict() | {"error": x.error} for x in answer[0].residuals],
                "undetermined": answer[0].unsaid,
            })  # fmt: skip
    else:
        _write(asked, content, name, stands_in.name)
    if output.as_json:
        return
    fit, console = answer[0], output.console()
    rows = ", ".join(
        f"{len(log.collectives) + len(log.copies) + len(log.messages) + len(log.gemms)} of {log.tool}"
        for log in logs.values()
    )
    console.print(f"Rows read: {rows}. Numbers that the logs leave open are those of {stands_in.name}.")
    headings = ("fitted", stands_in.name, "now")
    table = grid(headings, folds=headings)
    for number in fit.numbers:
        table.add_row(number.key, number.before, number.after)
    console.print(table)
    if fit.residuals:
        numbers = ("ranks", "size", "measured", "predicted", "off")
        table = grid(("row", *numbers), numbers, folds=["row"])
        for x in fit.residuals:
            size = format_bytes(x.nbytes) if x.nbytes else "–"
            times = format_seconds(x.measured_s), format_seconds(x.predicted_s)
            table.add_row(x.what, str(x.ranks), size, *times, percent(x.error, 1, signed=True))
        console.print(table)
        large = [x for x in fit.residuals if x.is_large]
        parts = [f"{_off(fit.residuals)} of {counted(len(fit.residuals), 'row')}"]
        if 0 < len(large) < len(fit.residuals):
            parts.append(f"{_off(large)} of the {len(large)} from 1 MiB on")
        console.print(f"Off by {', '.join(parts)} (geometric mean).")
    for remark in fit.unsaid:
        console.print(f"Not determined: {remark}.", soft_wrap=True)


def _settings(asked: Written) -> dict[str, str]:
    """Return the numbers that are set."""
    return dict(map(read_setting, asked.changes))


def _write(
    asked: Written, content_of: Content, name: str, other: str, tables: tuple[str, str] | None = None
) -> None:
    """Write the file of a new machine, if its content is a machine.

    InputError for a file that exists, or a name that cannot be one. MachineError for content that is none.

    Args:
        tables: Texts of the tables beside the file, empty for none; None to keep those of the same machine.
    """
    is_path = name.endswith(".toml") or os.sep in name or name == STDOUT
    if not is_path and not re.fullmatch(r"[\w][\w.+-]*", name):
        raise InputError(f"{name!r} is not a machine's name; take letters, digits, - and _, or a file.toml")
    path = Path(name) if is_path else user_folder() / f"{name}.toml"
    existing = path if is_path else named_file(name)
    if name != STDOUT and existing.exists() and not asked.force:
        raise InputError(f"{existing} exists; choose another name, or overwrite it with --force")
    card = marked(find_machine(CARD_OF).document["fabric"]["nic"], CARD_OF)
    begun = find_machine(other)
    content = content_of(begun, card, _settings(asked))
    made = build(content, path, path.stem)
    written = text(content)
    if name == STDOUT:
        click.echo(written, nl=False)
        return
    if not is_path:
        path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as partial:
        partial.write_text(written, encoding="utf-8")
    # All is written before anything is printed, for a reader such as `head` may end the command.
    if tables is not None or not path.samefile(begun.source_path):
        for table, rows in zip(tables_beside(path), tables or ("", ""), strict=True):
            if rows:
                with whole_file(table) as partial:
                    partial.write_text(rows, encoding="utf-8")
                shapes = f"{len(rows.splitlines()) - 1:,} measured shapes"
                asked.output.note(f"{table}: {shapes}, which also correct the law of shapes close by")
            elif table.is_file():
                table.unlink()
                asked.output.note(f"removed {table}, measured for an earlier file of this name")
    if asked.output.as_json:
        record = {"machine": machine_record(made) | {"copied": copied(made.facts)}}
        asked.output.json(asked.ctx.command_path.partition(" ")[2], record)
    else:
        console = asked.output.console()
        console.print(f"wrote {made.source_path}", soft_wrap=True)
        console.print(made.description)
        others = copied_in_words(copied(made.facts))
        for line in others:
            console.print(line)
        console.print("Each has a comment that says what it is. Then:" if others else "Then:")
        console.print(f"  umm machine check {name}\n  umm machine show {name}", soft_wrap=True)


def _off(rows: Sequence[Residual]) -> str:
    return percent(float(np.expm1(np.mean([abs(np.log1p(x.error)) for x in rows]))), 1)

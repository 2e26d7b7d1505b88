"""Answers of the commands in :mod:`umm.cli.commands.calibrate`."""

from pathlib import Path
from typing import Any

from rich.console import Console

from umm.cli.answers.machine import machine_record, print_machine
from umm.cli.commands.calibrate import Calibrate
from umm.cli.flags.performing import performing
from umm.cli.printed.output import Output, grid
from umm.cli.printed.save import check_targets
from umm.dtypes import canonical
from umm.errors import ExecutorUnavailableError, InputError, MachineError
from umm.executor import Calibrator, Rounds, executor, executor_names
from umm.files import MOST_TOML, read_bytes, whole_file
from umm.host.hardware import blas_libraries, kernel_warning
from umm.machines import Machine, machine, user_folder
from umm.machines.changes import Change, changes
from umm.machines.files import tables_beside
from umm.space.choice import Choice
from umm.space.what_if.decision_map import Decision, decisions

MAX_NUMBERS = 16  # numbers that are shown


def calibrate(asked: Calibrate) -> None:
    """Answer ``umm machine calibrate``."""
    output, executor, path, ranks = asked.output, asked.executor, asked.path, asked.ranks
    check_targets({} if path is None else {"output": path})
    dtypes = measured_types(executor, asked.dtype)
    options: dict[str, Any] = asked.options | ({"ranks": ranks} if ranks else {})
    if path is None:
        path = user_folder() / ("localhost.toml" if executor == "mpi" else f"{executor}.toml")
        path.parent.mkdir(parents=True, exist_ok=True)
    rounds = Rounds(path.with_name(f"{path.stem}.rounds.json"), asked.quick)
    with performing(asked, executor, options, ranks) as (performer, _):
        assert isinstance(performer, Calibrator)
        for row in blas_libraries():
            warning = kernel_warning(row["library"], row["kernel"])
            if warning:
                output.note(f"warning: {warning}")
        if asked.quick and not performer.in_rounds:
            raise InputError(f"executor {executor} does not measure in rounds; leave out --quick")
        try:
            text = performer.calibrate(dtypes, lambda what: output.note(f"measuring {what}"), rounds)
        except KeyboardInterrupt:
            if rounds.path.exists():
                output.note(f"finished rounds are kept in {rounds.path}; the same command continues")
            raise
    kept = path.with_name(f"{path.stem}-before{path.suffix}") if path.is_file() else None
    if kept:  # the file that is about to be replaced
        with whole_file(kept) as partial:
            partial.write_bytes(read_bytes(path, MOST_TOML))
        for table, of_kept in zip(tables_beside(path), tables_beside(kept), strict=True):
            of_kept.unlink(missing_ok=True)
            if table.is_file():
                table.rename(of_kept)
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")
    rounds.path.unlink(missing_ok=True)
    measured = machine(path)
    changed, decided = _compared(kept, measured, output) if kept else ([], [])
    record = {
        "machine": machine_record(measured),
        "kept": str(kept) if kept else None,
        "changes": [change._asdict() for change in changed],
        "decisions": [
            {
                "problem": dict(zip("mnk", x.problem, strict=True)),
                "before": x.before.to_dict(),
                "after": x.after.to_dict(),
                "costs": x.costs,
                "flips": x.flips,
            }
            for x in decided
        ],
    }

    def words(choice: Choice, other: Choice) -> str:
        return f"{choice.words}, {choice.beside(other)}"

    # Numbers that changed by more than they are unsure, then for each problem whether the new file chooses
    # other layouts, and the cost of the old ones.
    def shown(console: Console) -> None:
        print_machine(console, measured)
        sure = [change for change in changed if change.sure]
        within = len(changed) - len(sure)
        if changed and not sure:
            console.print(f"Nothing changed beyond its uncertainty; {within} numbers within it.")
        elif sure:
            texts = ("changed", "before", "now")
            table = grid((*texts, "times"), numbers=["times"], folds=texts)
            for x in sure[:MAX_NUMBERS]:
                factor = "" if x.factor is None else f"{x.factor:.3g}"
                table.add_row(x.key.removeprefix("devices."), x.before, x.after, factor)
            console.print(table)
            more = f"{len(sure) - MAX_NUMBERS} more changed; " if len(sure) > MAX_NUMBERS else ""
            console.print(f"{more}{within} other numbers changed within their uncertainty.")

        for y in decided:
            head, before, after = "x".join(map(str, y.problem)), y.before, y.after
            if not y.flips:
                console.print(f"{head}: still {words(before, before)}")
                continue
            console.print(
                f"{head}: now {words(after, before)}; before {words(before, after)}, "
                f"which takes {100 * (y.costs - 1):.2g} % longer"
            )

    asked.answer(lambda: record, shown)
    if kept:
        output.note(f"kept the previous file as {kept}")
    output.note(f"wrote {path}")


def _compared(old: Path, new: Machine, output: Output) -> tuple[list[Change], list[Decision]]:
    """Return the changes against the previous file, and both files' choices for a few problems."""
    try:
        before = machine(old)
    except MachineError as error:
        output.note(f"the previous file is not a machine: {error}")
        return [], []
    dtypes = [dtype for dtype in new.peaks if dtype in before.peaks]
    alike = bool(dtypes) and before.device_count == new.device_count
    return changes(before, new), decisions(before, new, dtypes[0]) if alike else []


def measured_types(name: str, dtype: str | None) -> list[str]:
    """Return the types to measure: those of a comma list, or all that an executor multiplies.

    InputError if the executor measures no machine, or does not multiply one of them.
    """

    def types_of(name: str) -> tuple[str, ...]:
        try:
            performer = executor(name)
        except ExecutorUnavailableError:
            return ()
        return performer.dtypes if isinstance(performer, Calibrator) else ()

    known = types_of(name)
    if not known:
        executor(name)  # says what is missing, if something is
        able = ", ".join(other for other in executor_names() if types_of(other))
        raise InputError(f"executor {name} measures no machine; choose from {able}")
    dtypes = list(known) if dtype is None else [canonical(part.strip()) for part in dtype.split(",")]
    for wanted in dtypes:
        if wanted not in known:
            raise InputError(
                f"{wanted!r} cannot be measured with executor {name}; choose from {', '.join(known)}"
            )
    return dtypes

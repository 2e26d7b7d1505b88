"""``umm machine calibrate``: measure this machine and write its machine file."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from umm.cli.flags.declared import command, flag
from umm.cli.flags.options import WRITE, Executed, Printed
from umm.cli.flags.performing import performing
from umm.cli.printed.output import Output
from umm.dtypes import canonical
from umm.errors import ExecutorUnavailableError, InputError, MachineError

if TYPE_CHECKING:
    from umm.machines import Machine
    from umm.machines.changes import Change
    from umm.space.what_if.decision_map import Decision


class Calibrate(Executed, Printed):
    """The machine to measure, and the target of its file."""

    executor: str = flag(
        default="mpi", show_default=True, metavar="NAME",
        help="What to measure: mpi measures the cores of this host; cuda, nvshmem and opencl its devices.",
    )  # fmt: skip
    ranks: int | None = flag(
        type=click.IntRange(min=1), metavar="P",
        help="Ranks to measure together; one per core if not given. Not for cuda.",
    )  # fmt: skip
    dtype: str | None = flag(
        metavar="LIST", help="Types to measure; all that the executor supports if not given.",
    )  # fmt: skip
    path: Path | None = flag(
        "-o", "--output", type=WRITE, metavar="FILE",
        help="Machine file to write; if not given, localhost.toml in your folder of machines, or "
        "EXECUTOR.toml for other executors than mpi.",
    )  # fmt: skip
    quick: bool = flag(
        is_flag=True,
        help="Take about one minute, with fewer rounds and smaller multiplies; for executor mpi.",
    )  # fmt: skip


@command(Calibrate)
def calibrate(asked: Calibrate) -> None:
    """Measure this machine and write its file.

    Microbenchmarks time multiplies of many shapes, gets and accumulates by size, and the overheads of
    actions. Each number of the file names its measurement, date, versions and uncertainty. Close other
    programs first. Calibrate with the options that you run with: --option accumulate=landing writes
    another file.

    Executor mpi measures in rounds and keeps each in NAME.rounds.json beside the file until all are done:
    after an early end the same command continues.

    An existing file is kept as NAME-before. The output shows which numbers changed, and for which of a few
    problems the best layouts did.
    """
    from umm.cli.printed.machine_page import calibrated_record, print_calibrated
    from umm.cli.printed.save import check_targets
    from umm.executor import Calibrator, Rounds
    from umm.files import MOST_TOML, read_bytes, whole_file
    from umm.host.hardware import blas_libraries, kernel_warning
    from umm.machines import machine, user_folder

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
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")
    rounds.path.unlink(missing_ok=True)
    measured = machine(path)
    changed, decided = _compared(kept, measured, output) if kept else ([], [])
    asked.answer(
        lambda: calibrated_record(measured, kept, changed, decided),
        lambda console: print_calibrated(console, measured, changed, decided),
    )
    if kept:
        output.note(f"kept the previous file as {kept}")
    output.note(f"wrote {path}")


def _compared(old: Path, new: "Machine", output: Output) -> tuple[list["Change"], list["Decision"]]:
    """Return the changes against the previous file, and both files' choices for a few problems."""
    from umm.machines import machine as find_machine
    from umm.machines.changes import changes
    from umm.space.what_if.decision_map import decisions

    try:
        before = find_machine(old)
    except MachineError as error:
        output.note(f"the previous file is not a machine: {error}")
        return [], []
    dtypes = [dtype for dtype in new.peaks if dtype in before.peaks]
    alike = bool(dtypes) and before.device_count == new.device_count
    return changes(before, new), decisions(before, new, dtypes[0]) if alike else []


def measured_types(name: str, dtype: str | None) -> list[str]:
    """Return the types to measure: those of a comma list, or all that an executor multiplies.

    Raises:
        InputError: if the executor measures no machine, or does not multiply one of them.
    """
    from umm.executor import Calibrator, executor, executor_names

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

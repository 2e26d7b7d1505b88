"""``umm machine calibrate``: measure this machine and write its topology file."""

from pathlib import Path

import click

from umm.cli.options import WRITE, option, output_options
from umm.cli.output import Output
from umm.errors import ExecutorUnavailableError, InputError

DTYPES = ("float32", "float64", "float16")


@click.command()
@option("--executor", default="mpi", show_default=True, metavar="NAME", help="Whose machine is measured.")
@option("--ranks", type=click.IntRange(min=1), metavar="P", help="Ranks measured together; one per core.")
@option("--dtype", default=",".join(DTYPES), show_default=True, metavar="LIST", help="Types to multiply.")
@option(
    "-o",
    "--output",
    "path",
    type=WRITE,
    metavar="FILE",
    help="Topology file to write; localhost.toml in your own folder of machines if not given.",
)
@output_options()
def calibrate(
    executor: str,
    ranks: int | None,
    dtype: str,
    path: Path | None,
    as_json: bool,
    quiet: bool,
    no_color: bool,
) -> None:
    """Measure this machine with microbenchmarks and write its topology file.

    Multiplies of many shapes, gets and accumulates by size, what an action costs beside its work: each number
    of the file with its measurement, date, versions and uncertainty. Nothing else should run meanwhile.
    """
    from umm.blas import blas_libraries, kernel_warning
    from umm.cli.machine_page import print_machine
    from umm.executor import Calibrator
    from umm.executor import executor as find_executor
    from umm.machines import machine as find_machine
    from umm.machines import user_folder
    from umm.whole_file import whole_file

    output = Output(as_json, quiet, no_color)
    dtypes = [name.strip() for name in dtype.split(",")]
    unknown = [name for name in dtypes if name not in DTYPES]
    if unknown:
        raise InputError(f"{unknown[0]!r} cannot be measured; choose from {', '.join(DTYPES)}")
    performer = find_executor(executor, **({"ranks": ranks} if ranks else {}))
    if not isinstance(performer, Calibrator):
        raise InputError(f"executor {executor} measures no machine; --executor mpi does")
    reason = performer.available()
    if reason is not None:
        raise ExecutorUnavailableError(reason)
    for row in blas_libraries():
        warning = kernel_warning(row["library"], row["kernel"])
        if warning:
            output.note(f"warning: {warning}")
    text = performer.calibrate(dtypes, lambda what: output.note(f"measuring {what}"))
    path = path or user_folder() / "localhost.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")
    found = find_machine(path)
    if as_json:
        from umm.cli.machine import machine_record

        output.json("machine calibrate", {"machine": machine_record(found)})
    else:
        print_machine(output.console(), found, found.bandwidth_matrix())
    output.note(f"wrote {path}")

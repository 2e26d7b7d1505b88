"""``umm doctor``: what is installed, what can run here, and the line that fixes what cannot."""

import platform
import re
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

import click

from umm import __version__
from umm.cli.flags.options import output_options
from umm.cli.printed.output import Output

DISTRIBUTION = "umm-sim"


@click.command()
@output_options()
def doctor(as_json: bool, quiet: bool, no_color: bool) -> None:
    """Tell what is installed and what can run here, with the line that fixes what cannot."""
    output = Output(as_json, quiet, no_color)
    packages, executors, blas = package_rows(), executor_rows(), blas_rows()
    if as_json:
        host = {"umm": __version__, "python": platform.python_version(), "machine": platform.machine()}
        output.json("doctor", {"host": host, "packages": packages, "executors": executors, "blas": blas})
        return
    from rich.table import Table

    from umm.machines import machine_names, user_folder

    console = output.console()
    console.print(f"umm {__version__}, Python {platform.python_version()}, {platform.platform()}")
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("\nexecutors")
    for row in executors:
        table.add_row(f"  {row['name']}", "ready" if row["reason"] is None else "no", row["reason"] or "")
    table.add_row("\npackages")
    for row in packages:
        missing = (
            f"pip install '{DISTRIBUTION}[{row['extra']}]'" if row["extra"] else f"pip install {row['name']}"
        )
        found = row["version"] or "no"
        table.add_row(f"  {row['name']}", found, "" if row["version"] else missing)
    table.add_row("\nBLAS")
    for row in blas:
        table.add_row(f"  {row['library']}", row["version"], f"{row['kernel']}, {row['threads']} threads")
        if row["warning"]:
            table.add_row("", "warning", row["warning"])
    if not blas:
        table.add_row("  unknown", "", "pip install threadpoolctl tells which one NumPy uses")
    console.print(table)
    console.print(f"\nmachines: {', '.join(machine_names())}")
    console.print(f"your own: {user_folder()}", soft_wrap=True)


def package_rows() -> list[dict[str, Any]]:
    """Return the packages umm needs or can use: name, version or None, extra it belongs to or empty."""
    rows: dict[str, dict[str, Any]] = {}
    for text in requires(DISTRIBUTION) or []:
        match = re.match(r"[\w.-]+", text)
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", text)
        assert match is not None
        try:
            found = version(match[0])
        except PackageNotFoundError:
            found = None
        row = {"name": match[0], "version": found, "extra": extra[1] if extra else ""}
        rows.setdefault(match[0], row)
    return sorted(rows.values(), key=lambda row: (row["extra"] != "", row["extra"], row["name"]))


def executor_rows() -> list[dict[str, Any]]:
    """Return each executor's name and None if it can run here, else why not and what fixes it."""
    from umm.errors import ExecutorUnavailableError
    from umm.executor import executor, executor_names

    rows = []
    for name in executor_names():
        try:
            reason = executor(name).available()
        except ExecutorUnavailableError as error:
            reason = str(error)
        rows.append({"name": name, "reason": reason})
    return rows


def blas_rows() -> list[dict[str, Any]]:
    """Return the BLAS libraries NumPy has loaded, with a warning if the CPU could do better, or None."""
    from umm.host.blas import blas_libraries, kernel_warning

    rows = blas_libraries()
    return [row | {"warning": kernel_warning(row["library"], row["kernel"])} for row in rows]

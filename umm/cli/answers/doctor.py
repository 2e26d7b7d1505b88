"""Answers of the commands in :mod:`umm.cli.commands.doctor`."""

import platform
import re
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from rich.console import Console
from rich.table import Table

from umm import __version__
from umm.cli.commands.doctor import Doctor
from umm.errors import ExecutorUnavailableError
from umm.executor import Located, executor, executor_names
from umm.host.hardware import blas_libraries, kernel_warning
from umm.machines import machine_names, user_folder

DISTRIBUTION = "umm-sim"


def doctor(asked: Doctor) -> None:
    """Answer ``umm doctor``."""
    # BLAS libraries NumPy has loaded, with a warning where the CPU could do better.
    blas = [x | {"warning": kernel_warning(x["library"], x["kernel"])} for x in blas_libraries()]
    packages, executors = package_rows(), executor_rows()
    host = {"umm": __version__, "python": platform.python_version(), "machine": platform.machine()}

    def shown(console: Console) -> None:
        console.print(f"umm {__version__}, Python {platform.python_version()}, {platform.platform()}")
        table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        table.add_row("\nexecutors")
        for row in executors:
            ready = "ready" if row["reason"] is None else "no"
            table.add_row(f"  {row['name']}", ready, row["reason"] or row["devices"])
        table.add_row("\npackages")
        for row in packages:
            table.add_row(f"  {row['name']}", row["version"] or "no", row["install"] or "")
        table.add_row("\nBLAS")
        for row in blas:
            table.add_row(f"  {row['library']}", row["version"], f"{row['kernel']}, {row['threads']} threads")
            if row["warning"]:
                table.add_row("", "warning", row["warning"])
        if not blas:
            table.add_row("  unknown", "", "pip install threadpoolctl shows which one NumPy uses")
        console.print(table)
        console.print(f"\nmachines: {', '.join(machine_names())}")
        console.print(f"your own: {user_folder()}", soft_wrap=True)

    record = {"host": host, "packages": packages, "executors": executors, "blas": blas}
    asked.answer(lambda: record, shown)


def package_rows() -> list[dict[str, Any]]:
    """Return the packages umm needs or can use.

    Each has its name, its version or None, the extra it belongs to or an empty text, and the line that
    installs it, None if it is there.
    """
    extras: dict[str, list[str]] = {}  # the packages of each; of the empty text those that umm needs
    for text in requires(DISTRIBUTION) or []:
        match = re.match(r"[\w.-]+", text)
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", text)
        assert match is not None
        extras.setdefault(extra[1] if extra else "", []).append(match[0])
    rows: dict[str, dict[str, Any]] = {}
    # A package is of the extra with the fewest others.
    for extra_name, names in sorted(extras.items(), key=lambda x: (x[0] != "", len(x[1]), x[0])):
        for name in names:
            try:
                installed = version(name)
            except PackageNotFoundError:
                installed = None
            install = f"pip install '{DISTRIBUTION}[{extra_name}]'" if extra_name else f"pip install {name}"
            row = {
                "name": name,
                "version": installed,
                "extra": extra_name,
                "install": None if installed else install,
            }
            rows.setdefault(name, row)
    return sorted(rows.values(), key=lambda row: (row["extra"] != "", row["extra"], row["name"]))


def executor_rows() -> list[dict[str, Any]]:
    """Return each executor's name, why it cannot run here (None if it can), and its devices."""
    rows = []
    for name in executor_names():
        devices = ""
        try:
            performer = executor(name)
            reason = performer.available()
            if reason is None and isinstance(performer, Located):
                devices = performer.here()
        except ExecutorUnavailableError as error:
            reason = str(error)
        rows.append({"name": name, "reason": reason, "devices": devices})
    return rows

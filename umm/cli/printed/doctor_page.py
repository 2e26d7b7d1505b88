"""What is installed and what can run here, in words."""

import platform
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from umm import __version__
from umm.machines import machine_names, user_folder

Rows = Sequence[dict[str, Any]]


def print_doctor(console: Console, packages: Rows, executors: Rows, blas: Rows) -> None:
    """Print executors, packages, BLAS libraries and machines, with the line that fixes what is missing."""
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
        table.add_row(f"  {row['name']}", row["version"] or "no", row["install"] or "")
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

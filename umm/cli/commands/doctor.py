"""``umm doctor``: installed packages, executors that can run here, and remedies for those that cannot."""

import platform
import re
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from umm import __version__
from umm.cli.flags.declared import command
from umm.cli.flags.options import Answering

DISTRIBUTION = "umm-sim"


@command(Answering)
def doctor(asked: Answering) -> None:
    """Show what is installed and what can run here, and the command that installs what is missing."""
    from umm.cli.printed.machine_page import print_doctor
    from umm.host.hardware import blas_libraries, kernel_warning

    # BLAS libraries NumPy has loaded, with a warning where the CPU could do better.
    blas = [x | {"warning": kernel_warning(x["library"], x["kernel"])} for x in blas_libraries()]
    rows = {"packages": package_rows(), "executors": executor_rows(), "blas": blas}
    host = {"umm": __version__, "python": platform.python_version(), "machine": platform.machine()}
    asked.answer(lambda: {"host": host, **rows}, lambda console: print_doctor(console, **rows))


def package_rows() -> list[dict[str, Any]]:
    """Return the packages umm needs or can use.

    Each has its name, its version or None, the extra it belongs to or an empty text, and the line that
    installs it, None if it is there.
    """
    rows: dict[str, dict[str, Any]] = {}
    for text in requires(DISTRIBUTION) or []:
        match = re.match(r"[\w.-]+", text)
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", text)
        assert match is not None
        try:
            installed = version(match[0])
        except PackageNotFoundError:
            installed = None
        install = f"pip install '{DISTRIBUTION}[{extra[1]}]'" if extra else f"pip install {match[0]}"
        row = {
            "name": match[0],
            "version": installed,
            "extra": extra[1] if extra else "",
            "install": None if installed else install,
        }
        rows.setdefault(match[0], row)
    return sorted(rows.values(), key=lambda row: (row["extra"] != "", row["extra"], row["name"]))


def executor_rows() -> list[dict[str, Any]]:
    """Return each executor's name, why it cannot run here (None if it can), and its devices."""
    from umm.errors import ExecutorUnavailableError
    from umm.executor import Located, executor, executor_names

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

"""The machine that is asked for: its name or file, and numbers of it that are set to others."""

from itertools import product
from typing import Any

from umm.errors import InputError
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.machines.settings import read_setting


def asked_machine(flags: dict[str, Any]) -> Machine:
    """Return the machine that --machine and --set describe.

    Raises:
        InputError: for several values of a number.
        MachineError: for a machine or a number that does not exist, or a value that cannot be.
    """
    for key, values in _settings(flags):
        if len(values) > 1:
            raise InputError(f"--set {key} has several values; a list is an axis of umm search and umm sweep")
    return asked_machines(flags["machine"], flags)[0]


def asked_machines(name: str, flags: dict[str, Any]) -> list[Machine]:
    """Return a machine with every combination of the values that --set gives.

    Args:
        name: The machine's name or file.
        flags: Those of the command.

    Raises:
        MachineError: for a machine or a number that does not exist, or a value that cannot be.
    """
    settings = _settings(flags)
    keys, lists = [key for key, _ in settings], [values for _, values in settings]
    return [find_machine(name, dict(zip(keys, values, strict=True))) for values in product(*lists)]


def _settings(flags: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Return each number that is set, with its values."""
    found = [read_setting(text) for text in flags["changes"]]
    return [(key, [part.strip() for part in value.split(",")]) for key, value in found]

"""Find topology files by name or path, and keep the machines already read."""

import difflib
import importlib.resources
import os
import tomllib
from pathlib import Path
from typing import Any

import platformdirs

from umm.errors import MachineError
from umm.machines.machine import Machine

_read: dict[tuple[Path, int, int], Machine] = {}


def shipped_folder() -> Path:
    """Return the folder of shipped topology files: inside the installed package, or in the checkout."""
    package = Path(str(importlib.resources.files("umm")))
    inside = package / "topologies"
    return inside if inside.is_dir() else package.parent / "topologies"


def user_folder() -> Path:
    """Return the user's folder of topology files; one of a shipped name takes that one's place."""
    return platformdirs.user_config_path("umm") / "machines"


def _available() -> dict[str, Path]:
    """Return the file of each known name, shipped ones first; the user's replace shipped ones."""
    found: dict[str, Path] = {}
    for folder in (shipped_folder(), user_folder()):
        found |= {path.stem: path for path in sorted(folder.glob("*.toml"))}
    return found


def machine_names() -> list[str]:
    """Return the names `machine` knows.

    >>> {"pvc-12", "h100-8"} <= set(machine_names())
    True
    """
    return sorted(_available())


def machine(name_or_path: str | Path) -> Machine:
    """Return a machine by name, or from a topology file; read once per version of the file.

    Args:
        name_or_path: A shipped or user's name such as `"h100-8"`, or a path to a `.toml` file.

    Raises:
        MachineError: There is no such machine, or its file does not describe one.

    >>> machine("pvc-12").device_count
    12
    """
    text = os.fspath(name_or_path)
    if isinstance(name_or_path, Path) or text.endswith(".toml") or os.sep in text:
        path = Path(text)
        if not path.is_file():
            raise MachineError(
                f"there is no topology file {text}; known machines: {', '.join(machine_names())}"
            )
    else:
        known = _available()
        if text not in known:
            close = difflib.get_close_matches(text, list(known), n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise MachineError(f"unknown machine {text!r}; {hint}choose from {', '.join(sorted(known))}")
        path = known[text]
    path = path.resolve()
    stat = path.stat()
    key = (path, stat.st_mtime_ns, stat.st_size)
    if key not in _read:
        _read[key] = _load(path)
    return _read[key]


def _load(path: Path) -> Machine:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MachineError(f"{path.name} is not TOML: {error}") from None
    from umm.machines.build import build

    return build(content, path, path.stem)


def resized(machine: Machine, devices: int) -> Machine:
    """Return a machine with another number of devices, its name followed by a colon and that number.

    Raises:
        MachineError: The fabric's shape is fixed, or nodes would not be whole.

    >>> resized(machine("h100-8"), 1024).name
    'h100-8:1024'
    """
    from umm.machines.build import build

    content: dict[str, Any] = dict(machine.document)
    old = content["devices"]
    count = {"value": devices, "source": f"resized from {machine.device_count}", "assumed": True}
    content["devices"] = {k: v for k, v in old.items() if k not in ("names", "default_ranks")} | {
        "count": count
    }
    return build(content, machine.source_path, f"{machine.name}:{devices}")

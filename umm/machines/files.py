"""Find topology files by name or path, and keep the machines already read."""

import difflib
import functools
import importlib.resources
import os
import tomllib
from pathlib import Path

import platformdirs

from umm.errors import MachineError
from umm.machines.machine import Machine

_read: dict[tuple[Path, int, int], Machine] = {}


@functools.cache
def shipped_folder() -> Path:
    """Return the folder of shipped topology files: inside the installed package, or in the checkout."""
    package = Path(str(importlib.resources.files("umm")))
    inside = package / "topologies"
    return inside if inside.is_dir() else package.parent / "topologies"


def user_folder() -> Path:
    """Return the user's folder of topology files; one of a shipped name takes that one's place."""
    return platformdirs.user_config_path("umm") / "machines"


def machine_names() -> list[str]:
    """Return the names `machine` knows.

    >>> {"pvc-12", "h100-8"} <= set(machine_names())
    True
    """
    return sorted(
        {
            path.stem
            for folder in (shipped_folder(), user_folder())
            for path in folder.glob("*.toml")
            if path.is_file()
        }
    )


def named_file(name: str) -> Path:
    """Return where the topology file of a name is, the user's before the shipped one; it may not exist."""
    path = user_folder() / f"{name}.toml"
    return path if path.is_file() else shipped_folder() / path.name


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
        path = named_file(text)
        if not path.is_file():
            known = machine_names()
            close = difflib.get_close_matches(text, known, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise MachineError(f"unknown machine {text!r}; {hint}choose from {', '.join(known)}")
    path = path.absolute()
    stat = path.stat()
    key = (path, stat.st_mtime_ns, stat.st_size)
    if key not in _read:
        _read[key] = _load(path)
    return _read[key]


def _load(path: Path) -> Machine:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MachineError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MachineError(f"{path.name} is not TOML: {error}") from None
    from umm.machines.build import build

    return build(content, path, path.stem)

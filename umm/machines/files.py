"""Find machine files by name or path, keep machines already read, and scale one to more devices."""

import difflib
import functools
import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import platformdirs

from umm.errors import InputError, MachineError, expect
from umm.files import MOST_TEXT, read_bytes, read_toml, shown
from umm.kept import kept
from umm.machines.machine import TF32, Machine
from umm.machines.parts import Parts, digest, version
from umm.quoting.terminal import in_lines, visible

_read: dict[tuple[Path, tuple[tuple[int, ...], ...]], Machine] = {}
_set: dict[tuple[Machine, tuple[tuple[str, str], ...]], Machine] = {}
_last: dict[str, Machine] = {}


@functools.cache
def shipped_folder() -> Path:
    """Return the folder of shipped machine files: inside the installed package, or in the checkout."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "topologies"
    return inside if inside.is_dir() else package.parent / "topologies"


def user_folder() -> Path:
    """Return the user's folder of machine files; one of a shipped name takes that one's place."""
    return platformdirs.user_config_path("umm") / "machines"


def machine_names() -> list[str]:
    """Return the names `machine` knows.

    >>> {"pvc-12", "h100-8"} <= set(machine_names())
    True
    """
    return sorted({*_stems(shipped_folder()), *_stems(user_folder())})


def named_file(name: str) -> Path:
    """Return where the machine file of a name is, the user's before the shipped one; it may not exist."""
    path = user_folder() / f"{name}.toml"
    return path if _is_file(path) else shipped_folder() / path.name


def _stems(folder: Path) -> list[str]:
    """Return the names of a folder's machine files, none of one that cannot be looked into."""
    try:
        with os.scandir(folder) as entries:  # glob takes ten times as long, and the page asks at every change
            return [x.name.removesuffix(".toml") for x in entries if x.name.endswith(".toml") and _is_file(x)]
    except OSError:
        return []


def _is_file(path: "Path | os.DirEntry[str]") -> bool:
    """Whether there is a file, as far as can be seen."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # a folder that may not be entered, a name that no file can have
        return False


def machine(
    name_or_path: str | Path,
    settings: Mapping[str, str] | None = None,
    *,
    nodes: int | None = None,
    kernels: str | None = None,
    graphs: bool | None = None,
) -> Machine:
    """Return a machine by name, or from a machine file; read once per version of the file.

    MachineError if there is no such machine, its file does not describe one, or has no such number.

    Args:
        name_or_path: A shipped or user's name such as `"h100-8"`, or a path to a `.toml` file. The name of a
            machine with settings has them behind it: `"h100-8 fabric.bandwidth=x0.5"`; with `:tf32` before
            them it multiplies float32 in TF32.
        settings: Numbers of the file to be set to others, by their dotted names: `{"memory": "40 GB",
            "fabric.bandwidth": "x0.5"}`.
        nodes: How many nodes, of a machine that has some or whose file has the cards of a node; the file's
            own number if None.
        kernels: Whose kernels it has, one of the engines of its file, such as ``"vllm"``; the file's own if
            None.
        graphs: Whether these are in CUDA graphs, so that none waits for the host; they are if None.

    >>> machine("pvc-12").device_count
    12
    >>> machine("h100-8", {"fabric.bandwidth": "225 GB/s"}).name
    'h100-8 fabric.bandwidth=225GB/s'
    >>> machine("h100-8", nodes=16)
    Machine(h100-8 nodes=16: 128 devices, 656 links)
    >>> machine("h100-8", kernels="vllm").engine.in_words
    'kernels of vLLM 0.24.0 in CUDA graphs, collectives of NCCL 2.29.2'
    """
    from umm.machines.settings import GRAPHS, KERNELS, split_settings, with_settings

    expect(name_or_path, (str, Path), "machine", "a name or the path of a machine file")
    name, named = split_settings(os.fspath(name_or_path))
    chosen = {} if kernels is None else {KERNELS: kernels}
    if graphs is not None:
        expect(graphs, bool, "graphs", "True or False")
        chosen[GRAPHS] = "yes" if graphs else "no"
    expect(settings or {}, Mapping, "settings", 'numbers by name: {"fabric.bandwidth": "x0.5"}')
    settings = {**chosen, **(settings or {})}
    for number, value in settings.items():
        expect(value, str, f"setting {number}", "a text such as '40 GB' or x0.5")
    if name.endswith(TF32):
        plain = machine(name.removesuffix(TF32), {**named, **settings}, nodes=nodes)
        return _kept(plain.with_tf32())
    all_settings = named | {key: "".join(text.split()) for key, text in settings.items()}
    if nodes is not None:
        all_settings = {"nodes": str(nodes)} | all_settings | {"nodes": str(nodes)}
    if not all_settings:
        return _found(name_or_path)
    key = (_found(name), tuple(all_settings.items()))
    if key not in _set:
        _set[key] = with_settings(key[0], all_settings)
    return _kept(_set[key])


def last_named(name: str) -> Machine:
    """Return the machine of a name that was asked for last, which may have come from any file.

    MachineError if none was, and there is no such machine.
    """
    return _last[name] if name in _last else machine(name)


def _kept(machine: Machine) -> Machine:
    _last[machine.name] = machine
    return machine


def file_of(name_or_path: str | Path) -> Path:
    """Return the machine file of a name, or a path as it is; MachineError if there is none."""
    text = os.fspath(name_or_path)
    if isinstance(name_or_path, Path) or text.endswith(".toml") or os.sep in text:
        path = Path(text)
        if not _is_file(path):
            raise MachineError(
                f"no such machine file: {visible(text)}; known machines: {', '.join(machine_names())}"
            )
        return path.absolute()
    path = named_file(text)
    if not _is_file(path):
        known = machine_names()
        close = difflib.get_close_matches(text, known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise MachineError(f"unknown machine {shown(text)}; {hint}choose from {', '.join(known)}")
    return path.absolute()


def mistakes(name_or_path: str | Path) -> list[str]:
    """Return all that is wrong with a machine file, a line each; [] if nothing is.

    MachineError if there is no such file, or it is not TOML.
    """
    from umm.machines.mistakes import all_explained

    return all_explained(_content(file_of(name_or_path)))


def _found(name_or_path: str | Path) -> Machine:
    """Return a machine as its file describes it."""
    path = file_of(name_or_path)
    stats = [path.stat(), *(table.stat() for table in tables_beside(path) if _is_file(table))]
    key = (path, tuple(map(version, stats)))
    if key not in _read:
        _read[key] = kept("machine", _written(path), lambda: _load(path))
    return _kept(_read[key])


def _written(path: Path) -> tuple[str, ...] | None:
    """Return where a machine file is, and hashes of it and its tables; None if one cannot be read."""
    try:
        content = hashlib.sha256(read_bytes(path, MOST_TEXT)).hexdigest()
        return str(path), content, *(digest(x) for x in tables_beside(path) if _is_file(x))
    except (InputError, MachineError):
        return None


def _load(path: Path) -> Machine:
    from umm.machines.build import build
    from umm.machines.serving_tables import ServingTables, read_kernels
    from umm.machines.tables import Tables, read_rows

    plain = machine = build(_content(path), path, path.stem)
    multiplies, serving = tables_beside(path)
    if _is_file(multiplies):
        machine = replace(machine, tables=Tables(Parts(multiplies, plain, read_rows), multiplies.name))
    if _is_file(serving):
        machine = replace(machine, serving=ServingTables(Parts(serving, plain, read_kernels), plain))
    return machine


def tables_beside(path: Path) -> tuple[Path, Path]:
    """Return where the tables of a machine file are, of multiplies and of attention and experts."""
    from umm.machines import serving_tables, tables

    name = path.name.removesuffix(".toml")
    return path.with_name(name + tables.BESIDE), path.with_name(name + serving_tables.BESIDE)


def _content(path: Path) -> dict[str, Any]:
    """Return a machine file's content, each source, description and name in it a line that can be shown."""
    if not path.stem.isprintable():
        raise MachineError(
            f"{shown(path.stem)}, the name of a machine file, has characters that cannot be shown; rename it"
        )
    try:
        content: dict[str, Any] = in_lines(read_toml(path))
    except InputError as error:
        raise MachineError(str(error)) from None
    return content


def resized(machine: Machine, devices: int) -> Machine:
    """Return the same machine with another number of devices.

    MachineError if the fabric's shape is fixed (mesh, torus, fat tree, explicit links), or nodes would not be
    whole.
    """
    from umm.machines.build import build
    from umm.machines.cluster import with_count

    count = {"value": devices, "source": f"resized from {machine.device_count}", "assumed": True}
    content = with_count({**machine.document, **machine.choices}, count)
    return build(content, machine.source_path, f"{machine.name}:{devices}")

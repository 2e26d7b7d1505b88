"""Whose kernels a machine's numbers are of: an engine's multiplies and small all-reduces, a library's rest.

Beside the numbers that count where nothing else is asked for, a machine file may hold those of several
engines under ``engines``. Libraries of collectives that these share are under ``libraries``. The one that is
chosen takes the place of the file's own; all that it does not state stays.
"""

from collections.abc import Mapping
from typing import Any

from umm.errors import MachineError, did_you_mean
from umm.machines.curves import Efficiency
from umm.machines.declaring import Field
from umm.machines.decode import Decode
from umm.machines.exchange import Exchange
from umm.machines.experts import Experts
from umm.machines.fused import Attention, Grouped
from umm.machines.library import Library, Pace
from umm.machines.prefill import Prefill
from umm.machines.quantities import Name, Seconds, Source, Table

CHOSEN = "engine"  # the table of a file that names whose its numbers are
CHOICES = ("engines", "libraries")  # the tables of a file of which one each is chosen
SERVING = ("prefill", "decode", "experts", "exchange")  # kernels of serving, which no file has but by engine
ATTENTION = ("prefill", "decode")  # those that may have several backends
VERSION = "@"  # between the key of an engine and that of a version which differs from it
HALVES = ("bfloat16", "float16")  # types whose multiplies take the same time, on the same units


class Engine(Table):
    """An engine's kernels, where they differ from the file's own numbers."""

    name: Name  # the engine and its version
    source: Source  # where the numbers are from, of those that do not say it
    # Its library of collectives, one of the file's `libraries`; the file's own if None.
    collectives: Name | None = None
    launch: Seconds | None = None  # seconds of a kernel in a graph, of those that have no start of their own
    # Seconds of a transfer in a graph beside its links' latencies: no host submits it.
    transfer_overhead: Seconds | None = None
    efficiency: list[Efficiency] = Field(default_factory=list)  # GEMMs by type
    attention: list[Attention] = Field(default_factory=list)  # fused attention by type and direction
    grouped: list[Grouped] = Field(default_factory=list)  # multiplies of several experts by type
    prefill: list[Prefill] = Field(default_factory=list)  # attention of prompts
    decode: list[Decode] = Field(default_factory=list)  # attention of tokens that follow
    experts: list[Experts] = Field(default_factory=list)  # layers of experts
    exchange: list[Exchange] = Field(default_factory=list)  # tokens to their experts and back
    # The engine's own, for small sizes; without any all are the library's.
    all_reduces: dict[Name, Pace] = Field(default_factory=dict)
    # Seconds of each of these without graphs, at least: its host issues it by its own code.
    issue: Seconds | None = None


class VersionedLibrary(Library):
    """A library of collectives that engines share."""

    version: Name  # of the library


class Chosen(Table):
    """The engine whose kernels a machine's numbers are of."""

    key: Name  # as it is asked for
    name: Name  # the engine and its version
    collectives: Name | None = None  # the library of collectives and its version
    graphs: bool  # whether kernels are in graphs, so that none waits for the host

    @property
    def in_words(self) -> str:
        """Return it as answers have it.

        >>> Chosen(key="vllm", name="vLLM 0.24.0", collectives="NCCL 2.29.2", graphs=True).in_words
        'kernels of vLLM 0.24.0 in CUDA graphs, collectives of NCCL 2.29.2'
        """
        how = "in CUDA graphs" if self.graphs else "launched one by one"
        library = f", collectives of {self.collectives}" if self.collectives else ""
        return f"kernels of {self.name} {how}{library}"


def with_engine(document: Mapping[str, Any], key: str, graphs: bool, machine: str) -> dict[str, Any]:
    """Return a machine file's content with an engine's kernels in the place of its own.

    Without graphs no multiply takes less than the host takes to launch it, the file's ``launch``.
    MachineError if the file has no such engine, or has it only in graphs or only without.

    Args:
        key: Of the engine, or of a version of it such as ``sglang@packed-scales``; with ``+triton`` or
            another backend of attention where the engine has one.
        graphs: Whether its kernels are in graphs.
        machine: Whose content it is, for errors.
    """
    content = {name: item for name, item in document.items() if name not in CHOICES}
    present = document.get(CHOSEN)
    if present is not None and present["key"] == key:
        if present["graphs"] != graphs:
            now, other = ("in graphs", "--graphs") if present["graphs"] else ("without graphs", "--eager")
            raise MachineError(f"{machine} has the kernels of {present['name']} only {now}; use {other}")
        return content
    engines = document.get("engines", {})
    base, _, backend = (key, "", "") if key in engines else key.partition("+")
    if base not in engines:
        known = [*engines, *([present["key"]] if present is not None else [])]
        if not known:
            raise MachineError(
                f"the file of {machine} has no kernels by engine; leave out --kernels, or choose h100-8, "
                "b200-8 or another machine whose 'umm machine show' lists some"
            )
        raise MachineError(f"{machine} has no kernels of {key!r}; {did_you_mean(key, known)}")
    engine = _completed(engines, base)
    if backend:
        engine = _with_backend(engine, backend, machine)
    devices = {**content["devices"]}
    content["devices"] = devices
    devices["efficiency"] = _replaced(devices.get("efficiency", []), _with_halves(engine), ("dtype",))
    for name, keys in (("attention", ("dtype", "direction")), ("grouped", ("dtype",))):
        if name in engine:
            devices[name] = _replaced(devices.get(name, []), engine[name], keys)
    devices |= {name: engine[name] for name in SERVING if name in engine}
    if graphs:
        devices |= {name: engine[name] for name in ("launch", "transfer_overhead") if name in engine}
    else:
        devices["efficiency"] = [_launched(x, devices["launch"]["value"]) for x in devices["efficiency"]]
    collectives = _with_library(content, document, engine, graphs, machine)
    content[CHOSEN] = {"key": key, "name": engine["name"], "graphs": graphs} | (
        {"collectives": collectives} if collectives else {}
    )
    return content


def _completed(engines: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return an engine, a version such as ``sglang@packed-scales`` with all else of ``sglang``."""
    engine, usual = engines[key], engines.get(key.partition(VERSION)[0], {})
    tables = _replaced(usual.get("efficiency", []), engine.get("efficiency", []), ("dtype",))
    return {**usual, **engine, "efficiency": tables}


def _with_library(
    content: dict[str, Any],
    document: Mapping[str, Any],
    engine: Mapping[str, Any],
    graphs: bool,
    machine: str,
) -> str | None:
    """Put the engine's library of collectives and its all-reduces into a file's content; return its name."""
    library = {**content.get("library", {})}
    name = engine.get("collectives")
    version = None
    if name is not None:
        libraries = document.get("libraries", {})
        if name not in libraries:
            choice = did_you_mean(name, list(libraries)) if libraries else f"add [libraries.{name}]"
            raise MachineError(f"{machine} has no library {name!r}; {choice}")
        library |= {key: item for key, item in libraries[name].items() if key != "version"}
        version = f"{library['name']} {libraries[name]['version']}"
    if library:
        late = {} if graphs or "issue" not in engine else {"issue": engine["issue"]}
        for name, ways in (("kernels", engine.get("all_reduces", {})), ("all-reduce", library["all-reduce"])):
            library[name] = {way: {**pace, **late} for way, pace in ways.items()}
        content["library"] = library
    return version


def _with_backend(engine: Mapping[str, Any], backend: str, machine: str) -> dict[str, Any]:
    """Return an engine whose attention is a backend's wherever it has that."""
    known = {x["backend"] for name in ATTENTION for x in engine.get(name, []) if "backend" in x}
    if backend not in known:
        choice = did_you_mean(backend, sorted(known)) if known else "leave out the backend"
        raise MachineError(f"{engine['name']} of {machine} has no attention by {backend!r}; {choice}")
    chosen = {}
    for name in ATTENTION:
        tables = engine.get(name, [])
        mine = [x for x in tables if x.get("backend") == backend]
        usual = [{key: item for key, item in x.items() if not key.startswith("usual")} for x in mine]
        chosen[name] = usual + [x for x in tables if x not in mine]
    return {**engine, "name": f"{engine['name']} with {backend}", **chosen}


def _with_halves(engine: Mapping[str, Any]) -> list[Any]:
    """Return an engine's GEMMs by type, with both types of 16 bits where it states one of them."""
    tables = list(engine.get("efficiency", []))
    stated = {x["dtype"] for x in tables}
    for name in HALVES:
        other = next((x for x in tables if x["dtype"] in HALVES), None)
        if name not in stated and other is not None:
            tables.append({**other, "dtype": name})
    return tables


def _replaced(tables: list[Any], by: list[Any], keys: tuple[str, ...]) -> list[Any]:
    """Return tables of which those with the keys of others have given way to them."""
    new = {tuple(x[key] for key in keys) for x in by}
    return [x for x in tables if tuple(x[key] for key in keys) not in new] + by


def _launched(table: Mapping[str, Any], launch: str) -> dict[str, Any]:
    """Return GEMMs of a type whose kernels take no less than the host takes to launch one."""
    kernels = table.get("kernels")
    if kernels is None:
        return dict(table)
    return {**table, "kernels": {**kernels, "issues": [{"time": launch}, *kernels.get("issues", [])]}}

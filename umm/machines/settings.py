"""A machine with numbers of its file set to others: ``fabric.bandwidth=225GB/s``, or times a factor."""

import copy
import fnmatch
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from umm.errors import InputError, MachineError, did_you_mean
from umm.machines.declaring import fields_of
from umm.machines.engines import CHOICES, SERVING, with_engine
from umm.machines.kernels import Kernels
from umm.machines.machine import Machine
from umm.machines.quantities import Sourced, declared
from umm.machines.unequal import factor_in, is_apart
from umm.numbers import parse_real, parse_whole, whole_in
from umm.units import parse_bandwidth

NODES, PER_NODE = "nodes", "ranks_per_node"
"""Settings that are no numbers of the file: how many nodes there are, and devices of a node with a rank."""
KERNELS, GRAPHS = "kernels", "graphs"
"""Whose kernels a machine has, and whether they are in graphs: ``yes`` or ``no``."""

_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_AMOUNT = re.compile(rf"\s*({_NUMBER})\s*(.*)", re.DOTALL)


class Numbered(NamedTuple):
    """A number of a machine file, or a word."""

    key: str  # its dotted name: `devices.memory`, `devices.efficiency.float32`, `fabric.nic.bandwidth`
    value: Any  # as the file has it
    path: tuple[str | int, ...]  # where it is in the file


WORDS = ("owner",)
"""Keys that hold a word alone, without a source, which can be set like a number: ``fabric.nic.owner``."""


def numbers(document: Mapping[str, Any]) -> list[Numbered]:
    """Return the numbers of a machine file's content that can be set.

    >>> from umm.machines import machine
    >>> [x.key for x in numbers(machine("h100-8").document) if x.key.startswith("fabric")]
    ['fabric.bandwidth', 'fabric.latency']
    """
    return [x for x in _values(document, "", ()) if not _is_word(x.value) and x.path[0] != "network"]


def _number(key: str, text: str) -> int:
    """Return a number of nodes, or of ranks of one, as it is written."""
    number = whole_in(text.strip(), 1, 10**6)
    if number is None:
        raise MachineError(f"{key} cannot be {text!r}; write a whole number of at least 1, such as {key}=4")
    return number


def _yes(text: str) -> bool:
    """Return whether a setting says yes."""
    if text not in ("yes", "no"):
        raise MachineError(f"{GRAPHS} cannot be {text!r}; write yes or no")
    return text == "yes"


def _values(node: Any, key: str, path: tuple[str | int, ...]) -> Iterator[Numbered]:
    """Yield every value of a file with its name: numbers, and words such as ``pairs``."""
    if isinstance(node, list):
        for i, item in enumerate(node):
            name = item.get("dtype", i) if isinstance(item, Mapping) else i
            yield from _values(item, f"{key}.{name}", (*path, i))
    elif isinstance(node, Mapping):
        if "source" in node and "value" in node:
            yield Numbered(key, node["value"], path)
            return
        for name, item in node.items():
            if name in WORDS:
                yield Numbered(f"{key}.{name}", item, (*path, name))
            yield from _values(item, f"{key}.{name}" if key else name, (*path, name))


def with_settings(machine: Machine, settings: Mapping[str, str]) -> Machine:
    """Return a machine with some numbers of its file set to others; its name says which.

    MachineError for a number that the file has not, or a value that cannot be.

    Args:
        settings: By dotted name (``devices.`` may be left out; ``fabric*bandwidth`` is all that match) the
            new value as the file writes it, but without spaces, or a factor such as ``x0.5``; ``nodes`` is
            how many nodes there are, ``ranks_per_node`` how many devices of each have a rank, ``kernels``
            whose kernels it has and ``graphs`` (yes or no) how they run; they come before the others. One
            device, link or card is set apart as ``device.3.peak``, ``link.g0-g1.bandwidth`` and ``nic.7``.

    >>> from umm.machines import machine
    >>> half = with_settings(machine("h100-8"), {"fabric.bandwidth": "x0.5"})
    >>> half.name, float(half.link_bandwidth[0])
    ('h100-8 fabric.bandwidth=x0.5', 187000000000.0)
    """
    from umm.machines.build import rebuilt
    from umm.machines.cluster import clustered, with_fewer

    document = {**machine.document, **machine.choices}
    if KERNELS in settings:
        graphs = _yes(settings.get(GRAPHS, "yes"))
        document = with_engine(document, settings[KERNELS], graphs, machine.name)
    elif GRAPHS in settings:
        raise MachineError(
            "--graphs and --eager are of an engine's kernels; name whose they are: --kernels vllm"
        )
    if NODES in settings:
        document = clustered(document, _number(NODES, settings[NODES]), machine.name)
    if PER_NODE in settings:
        document = with_fewer(document, _number(PER_NODE, settings[PER_NODE]), machine.name)
    numbers_alone = {k: v for k, v in settings.items() if k not in (NODES, PER_NODE, KERNELS, GRAPHS)}
    engine = f" {KERNELS}={settings[KERNELS]}" if KERNELS in settings else ""
    content = set_numbers(document, numbers_alone, machine.name + engine)
    devices = with_memory(document["devices"], content["devices"])
    if devices != document["devices"] and "rank" in devices:
        devices = {**devices, "rank": f"{document['devices']['rank']} (before --set)"}
    content["devices"] = devices
    name = " ".join([machine.name, *(f"{key}={text}" for key, text in settings.items() if not _is_one(text))])
    if name == machine.name:
        return machine
    try:
        # The engines to choose from were checked with the file, and no setting changes them.
        choices = {key: content.pop(key) for key in CHOICES if key in content}
        changed = rebuilt(machine, content, name, choices)
        if machine.tables is None and machine.serving is None:
            return changed
        return replace(changed, tables=machine.tables, serving=machine.serving)
    except MachineError as error:
        reason = str(error).removeprefix(f"{machine.source_path.name}: ")
        raise MachineError(f"{name} cannot be: {reason}") from None


_OF_MEMORY = frozenset(x.key for x in declared(Kernels) if x.of_memory) | {"write", "passes", "again"}
"""What kernels reach of the memory's bandwidth."""


def with_memory(old: Mapping[str, Any], new: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return devices whose kernels reach the same share of the memory's bandwidth as before it was set."""
    was, now = (parse_bandwidth(x["memory_bandwidth"]["value"]) for x in (old, new))
    if now == was or not now:
        return new
    result = {**new}
    for name in ("kernels", "efficiency", "grouped", *SERVING):
        if name in new:
            result[name] = _of_memory(new[name], now / was)
    return result


def _of_memory(node: Any, factor: float) -> Any:
    """Return tables with the kernels' rates of the memory's bandwidth times a factor."""
    if isinstance(node, list):
        return [_of_memory(x, factor) for x in node]
    if not isinstance(node, Mapping):
        return node
    return {
        name: scaled(x, factor) if name in _OF_MEMORY and isinstance(x, str) else _of_memory(x, factor)
        for name, x in node.items()
    }


def set_numbers(
    document: Mapping[str, Any],
    settings: Mapping[str, str],
    machine: str,
    source: str | None = None,
    assumed: bool = True,
) -> dict[str, Any]:
    """Return a file's content with some numbers set to others.

    MachineError for a number that the file has not, or a value of another kind.

    Args:
        settings: By dotted name the new value or a factor, as :func:`with_settings` takes them.
        machine: Whose file it is, for errors.
        source: Where the new numbers are from; None for that they are set.
        assumed: Whether nothing but judgement stands behind them.
    """
    content: dict[str, Any] = dict(document)  # what changes is copied, the rest shared
    for key, text in settings.items():
        known = {"source": source or f"set to {text}"} | ({"assumed": True} if assumed else {})
        targets = [] if is_apart(key) else matching(content, key, machine, words=True)
        if _is_one(text):
            continue
        if is_apart(key):
            content["apart"] = {**content.get("apart", {}), key: {"value": text, **known}}
        for number in targets:
            _set(content, number, text, known)
    return content


def split_settings(text: str) -> tuple[str, dict[str, str]]:
    """Return a machine's name or path and the settings that follow it, as ``with_settings`` writes them.

    >>> split_settings("h100-8 fabric.bandwidth=x0.5 memory=40GB")
    ('h100-8', {'fabric.bandwidth': 'x0.5', 'memory': '40GB'})
    """
    match = re.fullmatch(r"(.*?)((?:\s+[^\s=/]+=\S+)*)\s*", text, re.DOTALL)
    assert match is not None
    settings = dict(part.split("=", 1) for part in match[2].split())
    return match[1], settings


def read_setting(text: str) -> tuple[str, str]:
    """Return the name and the value of a setting such as ``fabric.bandwidth=225GB/s``.

    MachineError if it is not one.
    """
    key, equals, value = (part.strip() for part in text.partition("="))
    if not (key and equals and value) or re.search(r"\s", key):
        raise MachineError(
            f"{text!r} does not set a number; write it like fabric.bandwidth=225GB/s, or =x0.5"
        )
    return key, value


CARD = re.compile(r"\b(nic|network\.card)\.")
CALLED_CARDS = ("nic", "card", "network")
"""How network cards are called that some files keep as ``fabric.nic``, some as ``network.card``."""


def matching(content: Mapping[str, Any], key: str, machine: str, words: bool = False) -> list[Numbered]:
    """Return the values that a name means, or the numbers of a pattern; MachineError if there are none."""
    is_name = words and not re.search(r"[*?]", key)
    plain = {name: item for name, item in content.items() if name not in CHOICES}
    known = list(_values(plain, "", ())) if is_name else numbers(plain)
    wanted = key.replace("[", ".").replace("]", "")
    # On several nodes the network of a file is part of its fabric, and its links of one node are inside.
    for pattern in (
        wanted,
        f"devices.{wanted}",
        *([f"fabric.{wanted}"] if wanted.startswith("network") else []),
        wanted.replace("fabric.", "fabric.inside.", 1),
    ):
        matches = [x for x in known if fnmatch.fnmatchcase(x.key, pattern)]
        if matches:
            return matches
    names = [x.key.removeprefix("devices.") for x in known]
    ends = wanted.split(".")
    like = [x for x in names if x.split(".")[0] == ends[0] and x.split(".")[-1] == ends[-1]]
    if like:
        hint = f"choose from {', '.join(like)}, or {ends[0]}*{ends[-1]} for all"
    else:
        called = re.split(r"[.*?]", wanted.removeprefix("fabric."))[0]
        cards = [x for x in names if CARD.search(x)] if called in CALLED_CARDS else []
        hint = f"of the network's cards it has {', '.join(cards)}" if cards else did_you_mean(key, names)
    raise MachineError(f"{machine} has no number {key!r}; {hint}")


def _is_word(value: Any) -> bool:
    """Return whether a value of a file is one of some words: ``pairs`` of ``fabric.inside``."""
    return isinstance(value, str) and _AMOUNT.fullmatch(value) is None


def _is_one(text: str) -> bool:
    """Return whether a setting is the factor 1, which changes nothing."""
    return factor_in("a setting", text) == 1


def _set(content: dict[str, Any], number: Numbered, text: str, known: Mapping[str, Any]) -> None:
    """Set a number of a file's content, with the source of the new one."""
    node: Any = content
    for part in number.path[:-1]:
        node[part] = node = copy.copy(node[part])
    factor = factor_in(number.key, text)
    if number.path[-1] in WORDS:
        node[number.path[-1]] = text if factor is None else _times(number, factor)
        return
    old = dict(node[number.path[-1]])
    value = _read(number, text) if factor is None else _times(number, factor)
    replaced = {"value", "range", *fields_of(Sourced), *(() if isinstance(value, list) else "mnk")}
    node[number.path[-1]] = {name: x for name, x in old.items() if name not in replaced} | {
        "value": value,
        **known,
    }
    if number.key == "devices.count" and value != number.value:  # these go by their number
        for name in ("names", "default_ranks"):
            content["devices"].pop(name, None)


def scaled(value: Any, factor: float) -> Any:
    """Return a value of a file times a factor: a number, a text with its unit, or a list of them.

    >>> scaled("374 GB/s", 0.5), scaled([[0.8, 0.4]], 0.5)
    ('187 GB/s', [[0.4, 0.2]])
    """
    if isinstance(value, list):
        return [scaled(item, factor) for item in value]
    if not isinstance(value, str):
        return value * factor
    amount = _AMOUNT.fullmatch(value)
    assert amount is not None  # the file was read
    return f"{parse_real(amount[1]) * factor:.12g} {amount[2]}".strip()


def _times(number: Numbered, factor: float) -> Any:
    """Return a number times a factor; one that counts stays whole."""
    if _is_word(number.value):
        raise MachineError(f"{number.key} is {number.value!r}, which cannot be multiplied")
    value = scaled(number.value, factor)
    if not isinstance(number.value, int):
        return value
    if not math.isfinite(value) or value != int(value):
        raise MachineError(f"{number.key} is {number.value}; times {factor:g} it is not a whole number")
    return int(value)


def _read(number: Numbered, text: str) -> Any:
    value = number.value
    if isinstance(value, str):
        return text
    try:
        if isinstance(value, int):
            return parse_whole(text)
        if isinstance(value, list) and all(isinstance(x, int) for x in value):
            return [parse_whole(part) for part in text.split("x")]
        return parse_real(text)
    except InputError:
        raise MachineError(f"{number.key} cannot be {text!r}; it is {value!r} in the file") from None

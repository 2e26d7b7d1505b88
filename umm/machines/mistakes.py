"""Mistakes of a machine file, each in one line: the first, or all of them."""

import copy
import difflib
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pydantic import ValidationError

from umm.dtypes import DTYPES
from umm.errors import MachineError, did_you_mean
from umm.files import shown
from umm.machines.content import MachineFile, kinds
from umm.machines.declaring import fields_of, hints_of
from umm.machines.fabric import Ends
from umm.machines.kind import Kind
from umm.machines.quantities import Number, Table

MAX_LINES = 100  # mistakes of a file that are explained; a file of 250,000 unknown keys has as many
MOST_ROUNDS = 8
MOST_ROUTES = 8
REPAIRED = "repaired"
RIGHT = (1, 0.5, [1], "beside", "switch", "rails", "1 s", "1 B", "1 B/s", "1 flop/s")
"""Values among which every kind of number has one that is right."""


def explained(error: ValidationError) -> str:
    """Return one mistake of the file in one line: a misspelt key before keys missing because of it."""
    mistakes = error.errors(include_url=False)
    return _line(min(mistakes, key=lambda mistake: mistake["type"] != "extra_forbidden"))


def all_explained(content: Mapping[str, Any]) -> list[str]:
    """Return all mistakes of a file's content, a line each; a misspelt key is not missing too."""
    # What is wrong by itself would hide what only several numbers together show; so it is repaired, and the
    # content is read again.
    repaired: dict[str, Any] = copy.deepcopy(dict(content))
    lines: list[str] = []
    more = 0
    for _ in range(MOST_ROUNDS):
        try:
            file = MachineFile.model_validate(repaired)
        except ValidationError as error:
            mistakes = error.errors(include_url=False)
            unknown = [x for x in mistakes if x["type"] == "extra_forbidden"]
            meant = {_meant(x) for x in unknown[:MAX_LINES]}
            wrong = [x for x in mistakes if x["type"] != "missing" or _key(x) not in meant]
            lines += [_line(x) for x in wrong[:MAX_LINES]]
            more += len(wrong[MAX_LINES:])
            if not _repair(repaired, mistakes):
                break
        else:
            if repaired["fabric"] == content["fabric"] and file.devices.count.source != REPAIRED:
                lines += _fabric_mistakes(file)
            break
    return [*dict.fromkeys(lines), *([f"and {more} more mistakes"] if more else [])]


def _fabric_mistakes(file: MachineFile) -> list[str]:
    """Return mistakes in the links of a file that is right by itself: no fabric, or no route."""
    devices = file.devices
    count = devices.count.value
    names = tuple(devices.names or (f"g{i}" for i in range(count)))
    try:
        fabric = file.fabric.fabric(Ends(names, 0.0, devices.numbers["memory_bandwidth"]))
    except MachineError as error:
        return [str(error)]
    lines = []
    pairs = list(fabric.without_route())
    for pair in pairs[:MOST_ROUTES]:
        try:
            fabric.route(*pair)
        except MachineError as error:
            lines.append(str(error))
    more = len(pairs) - MOST_ROUTES
    return [*lines, *([f"and {more} more pairs have no route"] if more > 0 else [])]


def _line(mistake: Any) -> str:
    """Return a mistake that pydantic has found in one line."""
    table, parts = _walk(mistake["loc"])
    key = ".".join(parts)
    match mistake["type"]:
        case "extra_forbidden":
            return f"unknown key {key!r}; {did_you_mean(parts[-1], _keys(table))}"
        case "literal_error" if parts[-1] == "[key]":
            return f"unknown key {'.'.join(parts[:-1])!r}; {did_you_mean(parts[-2], (*DTYPES, 'tf32'))}"
        case "missing" if parts[-1] == "source":
            return f'{".".join(parts[:-1])} has no source; say where the number comes from: source = "…"'
        case "missing":
            return f"{key} is missing"
        case "model_type" if issubclass(_model(mistake["loc"]), Number):
            return f'{key} has no source; write it like {{ value = …, source = "…" }}'
        case "union_tag_invalid" | "union_tag_not_found":
            names = ", ".join(name for kind in kinds() for name in _names(kind))
            return f"fabric.kind must be one of {names}"
        case "value_error":
            return f"{key}: {mistake['ctx']['error']}"
        case _:
            message = mistake["msg"]
            return f"{key}: {message[0].lower()}{message[1:]}, not {shown(mistake['input'])}"


def _key(mistake: Any) -> str:
    return ".".join(_walk(mistake["loc"])[1])


def _meant(mistake: Any) -> str | None:
    """Return the key that a misspelt one is most like, if it is like any."""
    table, parts = _walk(mistake["loc"])
    close = difflib.get_close_matches(parts[-1], _keys(table), n=1)
    return ".".join([*parts[:-1], *close]) if close else None


def _repair(content: Any, mistakes: Sequence[Any]) -> bool:
    """Put something right in the place of all that is wrong; return whether that could be done."""
    removed, named = set(), set()
    for mistake in mistakes:
        loc = mistake["loc"]
        number = _number(loc)
        path = _path(number or loc)
        item = next((n for n, part in enumerate(path) if isinstance(part, int)), None)
        if "[key]" in loc:
            named.add(_path(loc))
        elif number:
            table, key = _at(content, path[:-1]), path[-1]
            table[key] = _right(_model(number), table.get(key))
        elif mistake["type"] == "extra_forbidden":
            removed.add(path)
        elif item is not None:
            removed.add(path[: item + 1])
        else:
            return False
    for path in sorted(removed, key=lambda parts: [f"{part:>9}" for part in parts], reverse=True):
        del _at(content, path[:-1])[path[-1]]  # the last of a list first
    for path in named:
        table = _at(content, path[:-1])
        if path[-1] in table:  # unless the table is new, in the place of a number
            table[next(name for name in DTYPES if name not in table)] = table.pop(path[-1])
    return True


def _path(loc: Sequence[int | str]) -> tuple[int | str, ...]:
    """Return a location as the file has it: pydantic puts in the tag of the chosen fabric, and ``[key]``."""
    return tuple(x for i, x in enumerate(loc) if x != "[key]" and not (i == 1 and loc[0] == "fabric"))


def _at(content: Any, path: Sequence[int | str]) -> Any:
    for part in path:
        content = content[part]
    return content


def _number(loc: tuple[int | str, ...]) -> tuple[int | str, ...] | None:
    """Return where the number of a location is, in a table by its name; None if nowhere."""
    for n in range(1, len(loc) + 1):
        model = _model(loc[:n])
        if issubclass(model, Number):
            by_name = len(loc) > n and loc[n] not in fields_of(model)
            return loc[: n + by_name]
    return None


def _right(number: type[Table], given: Any) -> dict[str, Any]:
    """Return a number of a kind with nothing wrong: the value that is given, if it is a right one."""
    stated = given.get("value") if isinstance(given, Mapping) else given
    for value in (stated, *RIGHT):
        try:
            number.model_validate({"value": value, "source": REPAIRED})
        except ValidationError:
            continue
        return {"value": value, "source": REPAIRED}
    raise AssertionError(f"no value of {number.__name__} is known")


def _model(loc: tuple[int | str, ...]) -> type[Table]:
    """Return the innermost model a location lies in (for a model's own error, that model)."""
    return _walk(loc, last=True)[0]


def _walk(loc: tuple[int | str, ...], last: bool = False) -> tuple[type[Table], list[str]]:
    """Return the table a location's last key belongs to, and the keys as the file writes them.

    pydantic puts the tag of the chosen fabric into the location; the file has no such key.
    """
    table: type[Table] = MachineFile
    parts: list[str] = []
    for position, part in enumerate(loc):
        if isinstance(part, int):
            parts[-1] += f"[{part}]"
            continue
        if parts == ["fabric"] and position == 1:
            table = next(kind for kind in kinds() if part in _names(kind))
            continue
        parts.append(part)
        name = next((name for name, info in fields_of(table).items() if (info.alias or name) == part), None)
        if name is not None and (last or position < len(loc) - 1):
            table = _inner(hints_of(table)[name]) or table
    return table, parts


def _inner(annotation: Any) -> type[Table] | None:
    """Return the table inside an optional, a list or a dict."""
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return annotation
    return next((table for x in get_args(annotation) if (table := _inner(x))), None)


def _keys(table: type[Table]) -> list[str]:
    return [info.alias or name for name, info in fields_of(table).items()]


def _names(kind: type[Kind]) -> tuple[str, ...]:
    """Return the names by which a file may write this kind of fabric."""
    return get_args(hints_of(kind)["kind"])

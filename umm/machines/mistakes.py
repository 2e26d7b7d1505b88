"""What is wrong with a topology file, said in one line."""

from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from umm.dtypes import DTYPES
from umm.errors import did_you_mean
from umm.machines.content import MachineFile, kinds
from umm.machines.kind import Kind
from umm.machines.quantities import Number


def explained(error: ValidationError) -> str:
    """Return one mistake of the file in one line: a misspelt key before what is missing because of it."""
    mistakes = error.errors(include_url=False)
    first = min(mistakes, key=lambda mistake: mistake["type"] != "extra_forbidden")
    table, parts = _walk(first["loc"])
    key = ".".join(parts)
    match first["type"]:
        case "extra_forbidden":
            return f"unknown key {key!r}; {did_you_mean(parts[-1], _keys(table))}"
        case "literal_error" if parts[-1] == "[key]":
            return f"unknown key {'.'.join(parts[:-1])!r}; {did_you_mean(parts[-2], (*DTYPES, 'tf32'))}"
        case "missing" if parts[-1] == "source":
            return f'{".".join(parts[:-1])} has no source; say where the number comes from: source = "…"'
        case "missing":
            return f"{key} is missing"
        case "model_type" if issubclass(_model(first["loc"]), Number):
            return f'{key} has no source; write it like {{ value = …, source = "…" }}'
        case "union_tag_invalid" | "union_tag_not_found":
            names = ", ".join(name for kind in kinds() for name in _names(kind))
            return f"fabric.kind must be one of {names}"
        case "value_error":
            return f"{key}: {first['ctx']['error']}"
        case _:
            said = first["msg"]
            return f"{key}: {said[0].lower()}{said[1:]}, not {first['input']!r}"


def _model(loc: tuple[int | str, ...]) -> type[BaseModel]:
    """Return the innermost model a location lies in (for a model's own error, that model)."""
    return _walk(loc, last=True)[0]


def _walk(loc: tuple[int | str, ...], last: bool = False) -> tuple[type[BaseModel], list[str]]:
    """Return the table a location's last key belongs to, and the keys as the file writes them.

    pydantic puts the tag of the chosen fabric into the location; the file has no such key.
    """
    table: type[BaseModel] = MachineFile
    parts: list[str] = []
    for position, part in enumerate(loc):
        if isinstance(part, int):
            parts[-1] += f"[{part}]"
            continue
        fields = {info.alias or name: info for name, info in table.model_fields.items()}
        if parts == ["fabric"] and position == 1:
            table = next(kind for kind in kinds() if part in _names(kind))
            continue
        parts.append(part)
        if part in fields and (last or position < len(loc) - 1):
            table = _inner(fields[part].annotation) or table
    return table, parts


def _inner(annotation: Any) -> type[BaseModel] | None:
    """Return the model inside an optional, a list or a dict."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in get_args(annotation):
        found = _inner(inner)
        if found is not None:
            return found
    return None


def _keys(table: type[BaseModel]) -> list[str]:
    return [info.alias or name for name, info in table.model_fields.items()]


def _names(kind: type[Kind]) -> tuple[str, ...]:
    """Return what a file may write as the kind of this fabric."""
    return get_args(kind.model_fields["kind"].annotation)

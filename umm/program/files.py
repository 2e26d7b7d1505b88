"""A chain in a TOML file."""

from pathlib import Path
from typing import Any

from umm.errors import InputError
from umm.files import MOST_TOML, parse_toml, read_text, whole_file
from umm.program.outline import Outline
from umm.quoting.toml import toml_key, toml_value


def load_chain(path: str | Path) -> Outline:
    """Return the chain that a TOML file holds; strict: an unknown key is refused.

    InputError in one line, if it cannot be read or is not a chain.
    """
    return parse_chain(read_text(path, MOST_TOML), path)


def parse_chain(text: str, path: str | Path) -> Outline:
    """Return the chain that a TOML text holds; strict: an unknown key is refused.

    InputError in one line, if it is not a chain.
    """
    content = parse_toml(text, path)
    try:
        return Outline.from_dict(content)
    except InputError as error:
        raise type(error)(f"{path}: {error}") from None


def save_chain(outline: Outline, path: str | Path) -> None:
    """Write a chain as TOML; :func:`load_chain` gives it back; InputError if the file cannot be written."""
    with whole_file(path) as partial:
        partial.write_text(toml(outline), encoding="utf-8")


def toml(outline: Outline) -> str:
    """Return a chain as TOML."""
    content = outline.to_dict()
    lines = [f"{key} = {_value(content[key])}" for key in ("name", "kept", "weights")]
    for table in ("tensors", "statements"):
        for row in content[table]:
            lines += ["", f"[[{table}]]", *(f"{key} = {_value(value)}" for key, value in row.items())]
    for name, texts in content["layouts"].items():
        lines += ["", f"[layouts.{toml_key(name)}]"]
        lines += [f"{toml_key(key)} = {toml_value(text)}" for key, text in texts.items()]
    if "given" in content:
        lines += ["", "[given]"]
        lines += [f"{toml_key(key)} = {_value(text)}" for key, text in content["given"].items()]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    """Return a text, a number, or a list or object of these, as TOML writes it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{toml_key(key)} = {_value(x)}" for key, x in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return toml_value(value)

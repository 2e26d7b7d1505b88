"""A command as a tool: its flags as a JSON schema, and arguments as the words of a command line."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import click

from umm.cli.flags.declared import Command, names_of
from umm.cli.flags.options import WRITE, Measured, Printed
from umm.cli.main import main
from umm.errors import InputError, did_you_mean

MAX_CHARACTERS = 100_000  # Of a value: Linux takes 128 KiB in a word of a command line.
LEFT_OUT = {*names_of(Measured), *names_of(Printed), "check", "config", "fail_above", "module"}
"""Flags that execute, judge an execution, import, read flags from a file or choose the form of the output."""
AS_TEXT = {"emit", "as_toml", "help_all"}  # flags whose answer is a program, a file or help, and no JSON


@dataclass(frozen=True)
class Served:
    """A command that is served."""

    words: tuple[str, ...]  # its words after `umm`
    command: Command  # as Click has it
    required: tuple[str, ...] = ()  # flags that its tool requires and the command does not

    @property
    def name(self) -> str:
        """Name of the tool."""
        return "_".join(self.words).replace("-", "_")

    @cached_property
    def params(self) -> dict[str, click.Parameter]:
        """The flags and arguments that are served, by the names that a call gives them."""
        shown = (x for x in self.command.params if not (isinstance(x, click.Option) and x.hidden))
        params = [x for x in shown if x.name not in LEFT_OUT and x.type is not WRITE]
        # Its long name without dashes, or its short one.
        return {max(x.opts, key=len).lstrip("-").replace("-", "_"): x for x in params}

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments: of many flags the usual ones, though all are taken."""
        # All flags of 15 tools would be 75 kB, which an agent reads before its first question.
        required = [name for name, x in self.params.items() if x.required or name in self.required]
        briefly = any(x.name == "help_all" for x in self.params.values())
        usual = {x for x, (_, most) in self.command.groups.items() if most} | {"help_all", *required}
        listed = {name: x for name, x in self.params.items() if not briefly or x.name in usual}
        listed |= {name: x for name, x in self.params.items() if isinstance(x, click.Argument)}
        properties = {name: _schema(x) for name, x in listed.items()}
        return {"type": "object", "properties": properties, "required": required}

    def command_line(self, arguments: Mapping[str, Any]) -> list[str]:
        """Return the words after ``umm`` that give the arguments.

        InputError for one that is unknown, missing, or cannot be typed.
        """
        missing = [x for x in self.required if not arguments.get(x)]
        if missing and not arguments.get("help_all"):
            raise InputError(f"{self.name} lacks {missing[0]}; give it")
        words, positional, text = [*self.words], list[str](), False
        for name, value in arguments.items():
            if name not in self.params:
                instead = did_you_mean(name, self.params) if self.params else "it takes no arguments"
                raise InputError(f"{self.name} takes no {name[:80]!r}; {instead}")
            param = self.params[name]
            if value is None:  # as if it were not given
                continue
            text = text or (param.name in AS_TEXT and value is not False)
            if isinstance(param, click.Argument):
                positional += _texts(name, value)
            elif isinstance(param, click.Option) and param.is_flag:
                if not isinstance(value, bool):
                    raise InputError(f"{name} takes true or false, not {str(value)[:40]!r}")
                words += [param.opts[0]] if value else param.secondary_opts[:1]
            else:
                typed, texts = max(param.opts, key=len), _texts(name, value)
                if len(texts) != 1 and not param.multiple:
                    raise InputError(f"{name} takes one value, not {len(texts)}")
                # A long name is joined to its value, which may begin with a dash; a short one takes any next
                # word.
                for one in texts:
                    words += [f"{typed}={one}"] if typed.startswith("--") else [typed, one]
        words += [] if text else ["--json"]
        return [*words, "--", *positional] if positional else words


def tools() -> dict[str, Served]:
    """Return the commands that are served, by the names of their tools.

    They predict, search and look up. None writes a file, executes a schedule or imports a module.
    """
    names = (
        "simulate", "search", "step", "serve", "muon", "peers", "fuse", "collective", "what-if", "plan",
        "compare", "machine list", "machine show", "model", "models",
    )  # fmt: skip
    # Without a profile, umm compare would execute.
    required = {"compare": ("profile",)}
    served = dict[str, Served]()
    for name in names:
        command: click.Command | None = main
        for word in name.split():
            assert isinstance(command, click.Group), name
            command = command.get_command(click.Context(command), word)
        assert isinstance(command, Command), name
        tool = Served(tuple(name.split()), command, required.get(name, ()))
        served[tool.name] = tool
    return served


def _schema(param: click.Parameter) -> dict[str, Any]:
    """Return a flag's JSON schema; sizes are texts, such as 48K."""
    kind, schema = param.type, dict[str, Any]()
    if isinstance(param, click.Option) and param.is_flag:
        schema["type"] = "boolean"
    elif isinstance(kind, click.Choice) and "," not in (param.metavar or ""):
        schema |= {"type": "string", "enum": list(kind.choices)}
    elif type(kind) in (click.types.IntParamType, click.IntRange):
        schema["type"] = "integer"
    elif type(kind) in (click.types.FloatParamType, click.FloatRange):
        schema["type"] = "number"
    else:
        schema["type"] = "string"
    for key, end in (("minimum", "min"), ("maximum", "max")):
        limit = getattr(kind, end, None)
        if limit is not None and schema["type"] in ("integer", "number"):
            schema[key if not getattr(kind, f"{end}_open") else f"exclusive{key.capitalize()}"] = limit
    if param.multiple or param.nargs == -1:
        schema = {"type": "array", "items": schema}
    words = getattr(param, "help", None) or ""
    form = f"{param.make_metavar(click.Context(click.Command('')))}. " if not words or param.metavar else ""
    schema["description"] = f"{form}{words}".strip()
    if isinstance(param.default, str | int | float) and param.default not in (False, ""):
        schema["default"] = param.default
    return schema


def _texts(name: str, value: Any) -> list[str]:
    """Return a value, or each of a list, as it is typed."""
    texts = []
    for one in value if isinstance(value, list | tuple) else [value]:
        if isinstance(one, bool) or not isinstance(one, str | int | float):
            raise InputError(f"{name} takes a text or a number, not {type(one).__name__}")
        text = str(int(one)) if isinstance(one, float) and one.is_integer() else str(one)
        if "\0" in text or len(text) > MAX_CHARACTERS or text.encode(errors="ignore").decode() != text:
            raise InputError(
                f"{name} cannot be typed: it has a NUL, half a character or over {MAX_CHARACTERS:,} of them"
            )
        texts.append(text)
    return texts

"""Parsing typed texts, completing them in a shell, and defaults from files and presets."""

import re
from collections.abc import Callable, Iterable
from fractions import Fraction
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import click

from umm.errors import InputError, did_you_mean
from umm.files import read_toml, shown
from umm.numbers import real_in, share_in, whole_in
from umm.units import parse_bandwidth, parse_bytes, parse_dimension, parse_seconds

T = TypeVar("T")


def parsed_by(parse: Callable[[str], T]) -> Callable[[click.Context, click.Parameter, str | None], T | None]:
    """Return the callback of an option whose text is parsed, and refused as the option's own."""

    def read(ctx: click.Context, param: click.Parameter, text: str | None) -> T | None:
        if text is None:
            return None
        try:
            return parse(text)
        except InputError as error:
            raise click.BadParameter(str(error), ctx, param) from None

    return read


@parsed_by
def ranks(text: str) -> int | tuple[int, ...]:
    """Return the number of ranks that a text means, or several of a comma list."""
    parts = [whole_in(part.strip(), -(10**9), 10**9) for part in text.split(",")]
    counts = tuple(part for part in parts if part is not None)
    if len(counts) < len(parts):
        raise InputError(f"{text!r} is not a number of ranks; write it like 8, or 8,16,32")
    return counts[0] if len(counts) == 1 else counts


dimension = parsed_by(parse_dimension)  # the integer that a matrix dimension such as 48K means
bandwidth = parsed_by(parse_bandwidth)  # the bytes/s that a bandwidth such as 25GB/s means


@parsed_by
def dimension_list(text: str) -> list[int]:
    """Return the dimensions that a comma list such as 1K,2K means."""
    return [parse_dimension(part) for part in text.split(",")]


@parsed_by
def nbytes(text: str) -> int:
    """Return the bytes that a buffer's size means; 1M is 1 MiB, as nccl-tests takes it."""
    return parse_bytes(f"{text.strip()}iB" if text.strip().endswith(("K", "M", "G")) else text)


class Finite(click.FloatRange):
    """A finite number: neither nan nor inf, which are in no range and in every one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number that a text means."""
        number: float = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


class Several(click.Choice[str]):
    """Some of a few words, in a comma list, in the order typed."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the words that a text means, each once."""
        parts = value.split(",") if isinstance(value, str) else value
        return tuple(dict.fromkeys(super(Several, self).convert(x.strip(), param, ctx) for x in parts))


OPTIMIZERS = {"adam": 12.0, "sgd": 0.0}
"""Bytes of state for each element of a weight; Adam: two moments and the weight itself in float32."""


class OptimizerState(Finite):
    """Bytes of an optimizer's state for each element of a weight, or the name of an optimizer."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the bytes that a text means."""
        try:
            return super().convert(OPTIMIZERS.get(value, value), param, ctx)
        except click.BadParameter:
            named, bytes_ = " or ".join(OPTIMIZERS), f"bytes from {self.min} to {self.max}"
            self.fail(f"{value!r} is not {named}, nor {bytes_}", param, ctx)


@parsed_by
def seconds(text: str) -> float:
    """Return the seconds of a time such as 8.2s."""
    value = parse_seconds(text)
    if value <= 0:
        raise InputError(f"{text} is no time that something takes; write it like 8.2s")
    return value


@parsed_by
def share(text: str) -> float:
    """Return the share a text means: 0.25 for 25% and for 0.25."""
    value = share_in(text)
    if value is None:
        raise InputError(f"{text!r} is not a share; write it like 25% or 0.25")
    return value


@parsed_by
def scale(text: str) -> Fraction:
    """Return the factor that a text means: 1/16 or 0.0625, more than 0 and at most 1."""
    try:  # a short text: Fraction writes out 1e-9999999
        value = Fraction(text.replace(" ", "") if re.fullmatch(r"[0-9./ ]{1,40}", text) else 0)
    except (ValueError, ZeroDivisionError):
        value = Fraction(0)
    if not 0 < value <= 1:
        raise InputError(f"{text!r} is not a scale; write it like 1/16 or 0.25")
    return value


def named_values(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
    """Parse a list of NAME=VALUE: numbers, on and off, and text otherwise."""
    words = {"on": True, "off": False, "true": True, "false": False}
    values: dict[str, Any] = {}
    for part in (part for text in texts for part in text.split(",")):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name.isidentifier() and equals and value):
            raise click.BadParameter(f"{part!r} is not an option; write it like blocks=16", ctx, param)
        integer, real = whole_in(value), real_in(value) if "." in value else None
        number = real if integer is None else integer
        values[name] = words.get(value, value if number is None else number)
    return values


Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def among(find: Callable[[], Iterable[str]]) -> Complete:
    """Return a completer of the last part of a comma list, from names that are looked up only then."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in find() if name.startswith(last)]

    return complete


def machines() -> Iterable[str]:
    """Return the machines known by name."""
    from umm.machines import machine_names

    return machine_names()


def executors() -> Iterable[str]:
    """Return the executors that are installed."""
    from umm.executor import executor_names

    return executor_names()


# Brock & Golin (2025), section 5.1: the two multiplies of a transformer's MLP; m is the batch.
PRESETS = {"mlp1": {"m": 8192, "n": 49152, "k": 12288}, "mlp2": {"m": 8192, "n": 12288, "k": 49152}}

CONFIG = "umm.config"  # where a click context keeps the path of the file


def load_config(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    """Let the values of a TOML file stand in for flags that are not given.

    InputError if the file cannot be read, has a key that is not a flag of the command, or a value of another
    type than its flag.
    """
    if path is None:
        return None
    content = read_toml(path)
    ctx.meta[CONFIG] = path
    params = {
        flag.lstrip("-"): param
        for param in ctx.command.params
        if isinstance(param, click.Option) and param.name not in ("config", "help")
        for flag in param.opts
    }
    values: dict[str, Any] = {}
    for key, value in content.items():
        where = f"{path}: {shown(key)}"
        if key not in params:
            raise InputError(f"{where} is not a flag of {ctx.command_path}; {did_you_mean(key, params)}")
        param = params[key]
        if param.name in values:
            raise InputError(f"{where} is the same flag as another key; keep one")
        if param.is_flag and not isinstance(value, bool):
            raise InputError(f"{where} must be true or false, not {shown(value)}")
        if not param.is_flag and (not isinstance(value, str | int | float) or isinstance(value, bool)):
            raise InputError(f"{where} must be a string or a number, not {shown(value)}")
        if "\0" in str(value):
            raise InputError(f"{where} = {shown(value)} has a NUL, which no value has")
        text = value if isinstance(value, bool) else str(value)
        values[str(param.name)] = [text] if param.multiple else text
    ctx.default_map = {**(ctx.default_map or {}), **values}
    return path


def load_preset(ctx: click.Context, param: click.Parameter, name: str | None) -> str | None:
    """Take the sizes of a preset where neither a flag, a variable nor a file gives them."""
    if name is not None:
        ctx.default_map = {**{x: str(size) for x, size in PRESETS[name].items()}, **(ctx.default_map or {})}
    return name
